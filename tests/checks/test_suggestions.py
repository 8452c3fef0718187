"""Suggestions: each is legal, keeps the world, and its fix gives that very layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
from parlay.dsl.diagnostics import Diagnostic, Fix, Severity

Check = Callable[[str], tuple[Diagnostic, ...]]
Job = Callable[..., str]


def applied(text: str, fix: Fix) -> str:
    for edit in sorted(fix.edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def test_the_example_of_the_language(job: Job, check: Check) -> None:
    text = job(
        'from "llama3-8b" { heads = 48, head_dim = 128, kv_heads = 6 }',
        parallel="{ tp = 8, pp = 4 }",
    )
    [found] = check(text)
    assert found.message == "tp = 8 does not divide kv_heads = 6"
    assert found.labels[0].text == "each TP rank needs a whole number of key/value heads"
    assert found.labels[1].text == "6 key/value heads"
    assert found.notes == ("6 / 8 leaves 6",)
    assert re.fullmatch(
        r"tp = 2, pp = 4, dp = 8 keeps 64 GPUs and fits "
        r"\(weights and states [\d.]+ GB of 85.5 GB\)",
        found.help[0],
    )


def test_at_most_three(job: Job, check: Check) -> None:
    [found] = check(job('from "llama3-8b" { heads = 48, head_dim = 128, kv_heads = 6 }'))
    assert 0 < len(found.help) <= 3 and len(found.fixes) == len(found.help)


@pytest.mark.parametrize(("tp", "pp", "dp"), list(product((3, 8, 16), (3, 5), ("auto", "7"))))
def test_every_fix_leaves_a_clean_file(tp: int, pp: int, dp: str, job: Job, check: Check) -> None:
    """Fixes that set degrees lead to the layout they name, and that has no error."""
    text = job(
        'from "llama3-8b" { layers = 36 }',
        '{ nodes = 6, node from "dgx-h100" }',
        f"{{\n  tp = {tp}\n  pp = {pp}\n  dp = {dp}\n  zero = 1\n}}",
    )
    offered = [fix for found in check(text) for fix in found.fixes if fix.title.count("=") == 3]
    for fix in offered:
        mended = applied(text, fix)
        errors = [each for each in check(mended) if each.severity is Severity.ERROR]
        assert not errors, (fix.title, errors)
        sizes = dict(re.findall(r"(\w+) = (\w+)", fix.title))
        assert f"tp = {sizes['tp']}\n" in mended and f"pp = {sizes['pp']}\n" in mended
        assert int(sizes["tp"]) * int(sizes["pp"]) * int(sizes["dp"]) == 48


def test_a_field_that_is_not_there_is_inserted(job: Job, check: Check) -> None:
    text = job(parallel="{ pp = 3 }", cluster='{ nodes = 3, node from "dgx-h100" }')
    [found] = check(text)
    assert found.code == "L206"
    assert "pp = 3, stages = auto }" in applied(text, found.fixes[0])


def test_no_fix_where_there_is_no_place_for_it(job: Job, check: Check) -> None:
    found = check(job('from "gpt2-xl" { heads = 26 }', parallel="{ }"))
    assert [each.code for each in found] == ["L205"]


def test_a_warning_free_layout_goes_first(job: Job, check: Check) -> None:
    """dp = 1 would make zero = 1 shard nothing: not offered while better ones exist."""
    [found] = check(job('from "llama3-70b"', parallel="{ tp = 8 }"))
    assert found.code == "M201"
    assert found.help[0].startswith("zero = 1 fits (")
    assert all("dp = 1 " not in help for help in found.help)
