"""The rules of one back end: their pages run, they are silent without the target, fixes mend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends import refusals, rules
from parlay.compiler.checks import Page
from parlay.dsl.diagnostics import Diagnostic, Severity

Check = Callable[[str], tuple[Diagnostic, ...]]
BESIDE = {"B612": "S201"}
"""Rules that refuse what is a warning of a general rule everywhere else: that one is told too."""


def _page(code: str) -> Page:
    page = rules.page(code)
    assert page is not None
    return page


def _check(text: str, code: str, folder: Path) -> list[Diagnostic]:
    """What the general rules and those of the code's target find, but for the notes of others."""
    path = folder / "run.par"
    path.write_text(text)
    job = pipeline.check(path)
    told = [*job.diagnostics]
    told += [each for phase in job.phases for each in rules.found(rules.target_of(code), phase)]
    told = [each for each in told if each.code != BESIDE.get(code)]
    return [each for each in told if each.severity is not Severity.NOTE or each.code == code]


@pytest.mark.parametrize("code", rules.codes())
def test_example(code: str, tmp_path: Path) -> None:
    example = _page(code).example
    [found] = _check(example, code, tmp_path)
    assert found.code == code and found.span is not None
    marked = next(line for line in example.splitlines() if line.endswith(f"^ {code}"))
    place = example[: found.span.start].count("\n")
    column = found.span.start - example[: found.span.start].rfind("\n") - 1
    assert example.splitlines()[place + 1] == marked
    assert marked.index("^") == column
    assert marked.count("^") == found.span.end - found.span.start


@pytest.mark.parametrize("code", rules.codes())
def test_instead(code: str, tmp_path: Path) -> None:
    assert not _check(_page(code).instead, code, tmp_path)


@pytest.mark.parametrize("code", rules.codes())
def test_page_is_whole(code: str) -> None:
    page = _page(code)
    assert all((page.what, page.why, page.example, page.instead))
    assert "August 2026" in page.source, "a page names the version that was read"


@pytest.mark.parametrize("code", rules.codes())
def test_silent_without_the_target(code: str, check: Check) -> None:
    told = check(_page(code).example)
    assert all(each.severity is Severity.NOTE or each.code == BESIDE.get(code) for each in told)


@pytest.mark.slow
@pytest.mark.parametrize("code", rules.codes())
def test_fixes_mend(code: str, tmp_path: Path) -> None:
    example = _page(code).example
    for fix in _check(example, code, tmp_path)[0].fixes:
        text = example
        for edit in sorted(fix.edits, key=lambda edit: edit.span.start, reverse=True):
            text = text[: edit.span.start] + edit.text + text[edit.span.end :]
        left = _check(text, code, tmp_path)
        assert not [each for each in left if each.severity is Severity.ERROR or each.code == code]


@pytest.mark.parametrize("target", rules.MODULES)
def test_asked_with_the_target(target: str, tmp_path: Path) -> None:
    """`check --target` asks them, and tells no place twice."""
    code = next(iter(rules.MODULES[target]))
    path = tmp_path / "run.par"
    path.write_text(_page(code).example)
    told = pipeline.check(path, [target]).diagnostics
    assert code in [each.code for each in told]
    [phase] = pipeline.load(path).phases
    found = [each for each in refusals(target, phase) if each.code == code]
    places = [each.span for each in refusals(target, phase)]
    assert found and places.count(found[0].span) == 1


TRAIN = "train { seq = 2Ki, micro_batch = 1, global_batch = 64, steps = 10 }\n"


def test_a_warning_hides_no_refusal(tmp_path: Path) -> None:
    """B506 warns of a cp that the back end refuses in a pipeline: both are told."""
    path = tmp_path / "run.par"
    layout = "parallel { cp = 2, cp_method = ulysses, pp = 2, zero = 1 }"
    machine = 'cluster { node from "dgx-h100" }'
    path.write_text(f'model from "llama3-8b"\n{machine}\n{layout}\n{TRAIN}')
    told = pipeline.check(path, ["deepspeed"]).diagnostics
    assert {"B506", "B340"} <= {each.code for each in told}


@pytest.mark.parametrize("target", ["torch", "deepspeed", "megatron", "torchtitan"])
@pytest.mark.parametrize(
    ("model", "train", "said"),
    [
        ('model from "llama3-8b"', "", "needs a `train` block"),
        ("model { params = 7B }", TRAIN, "needs the shape of the model"),
    ],
)
def test_half_a_job_is_told_not_emitted(
    target: str, model: str, train: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.par"
    path.write_text(f'{model}\ncluster {{ node from "dgx-h100" }}\nparallel {{}}\n{train}')
    told = pipeline.check(path, [target]).errors
    assert any(said in each.message for each in told), [each.message for each in told]


def test_no_rule_of_that_name() -> None:
    assert rules.rule("B999") is None and rules.page("B999") is None


@pytest.mark.parametrize(("tp", "hidden"), [("2", False), ("two", True)])
def test_refusals_end_at_a_field_in_error_alone(
    tp: str, hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the compiler's own is none of the file's."""
    from parlay.compiler.backends import torch

    def broken(phase: object) -> Iterator[Diagnostic]:
        yield from ()
        raise TypeError("'>' not supported between instances of 'NoneType' and 'int'")

    monkeypatch.setattr(torch, "refusals", broken)
    path = tmp_path / "run.par"
    path.write_text(
        f'model from "llama3-8b"\ncluster {{ node from "dgx-h100" }}\nparallel {{ tp = {tp} }}\n'
    )
    [phase] = pipeline.load(path).phases
    if hidden:
        assert list(refusals("torch", phase)) == []
    else:
        with pytest.raises(TypeError):
            list(refusals("torch", phase))
