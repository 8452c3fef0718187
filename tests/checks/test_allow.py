"""`allow`: which errors it turns, and what is told about itself; phases."""

from __future__ import annotations

from collections.abc import Callable

from parlay.dsl.diagnostics import Diagnostic, Severity

Check = Callable[[str], tuple[Diagnostic, ...]]
Job = Callable[..., str]
WIDE = {"model": 'from "llama2-7b"', "parallel": "{ tp = 16 }"}


def test_an_allowed_error_is_a_warning(job: Job, check: Check) -> None:
    [found] = check(job(**WIDE, rest='allow N201 "one switch"'))
    assert (found.code, found.severity) == ("N201", Severity.WARNING)
    assert found.notes[-1] == 'allowed: "one switch"'


def test_needless(job: Job, check: Check) -> None:
    [found] = check(job(rest='allow N201 "one switch"'))
    assert (found.code, found.severity) == ("W290", Severity.WARNING)


def test_not_needless_where_its_rule_could_not_be_asked(job: Job, check: Check) -> None:
    told = check(job(parallel="{ tp = 48 }", rest='allow N201 "one switch"'))
    assert "W290" not in [each.code for each in told]
    told = check(job(parallel="{ tp = auto }", rest='allow N201 "one switch"'))
    assert "W290" not in [each.code for each in told]


def test_a_slip_in_the_code_has_a_fix(job: Job, check: Check) -> None:
    [found] = check(job(rest='allow n201 "one switch"'))
    assert found.code == "T290"
    assert [fix.title for fix in found.fixes] == ["write `N201`"]
    [edit] = found.fixes[0].edits
    assert (edit.span, edit.text) == (found.span, "N201")


def test_one_allow_for_the_phase_that_needs_it(job: Job, check: Check) -> None:
    phase = 'phase "long" { parallel { tp = 16 } }\n'
    model = 'from "llama2-7b"'
    moved, found = check(job(model, rest=f'{phase}allow N201 "one switch"'))
    assert (moved.code, moved.severity) == ("L236", Severity.NOTE)
    assert (found.code, found.severity) == ("N201", Severity.WARNING)
    assert 'in phase "long"' in found.notes


def test_what_every_phase_has_is_told_once(job: Job, check: Check) -> None:
    phases = 'phase "a" { log { every = 2 } }\nphase "b" { log { every = 3 } }\n'
    model = 'from "llama3-8b" { kv_heads = 6, heads = 48, head_dim = 128 }'
    [found] = check(job(model, rest=phases))
    assert found.code == "L203"
    assert not [note for note in found.notes if "phase" in note]


def test_a_later_phase_alone_has_no_fixes_in_the_text_of_the_first(job: Job, check: Check) -> None:
    [found] = check(job(parallel="{ tp = 8, pp = 4 }", rest='phase "b" { model { layers = 30 } }'))
    assert found.code == "L206"
    assert found.notes[-1] == 'in phase "b"'
    assert not found.fixes
