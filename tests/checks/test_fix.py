"""Edits: values replaced and inserted where the file has a place for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from parlay.compiler.checks import (
    Subject,
    fix,
)
from parlay.dsl.diagnostics import Fix

Job = Callable[..., str]
Read = Callable[[str], Subject]


def applied(text: str, fixes: tuple[Fix, ...]) -> str:
    [one] = fixes
    for edit in sorted(one.edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


@pytest.mark.parametrize(
    ("parallel", "values", "after"),
    [
        ("{ tp = 8 }", {"tp": 4}, "{ tp = 4 }"),
        ("{ tp = 8 }", {"pp": 2}, "{ tp = 8, pp = 2 }"),
        ("{ tp = 8 }", {"tp": 4, "pp": 2}, "{ tp = 4, pp = 2 }"),
        ("{ tp = 8, zero = 1 }", {"pp": 2, "cp": 3}, "{ tp = 8, zero = 1, pp = 2, cp = 3 }"),
        ("{ zero = 1, tp = 8 }", {"pp": 2}, "{ zero = 1, tp = 8, pp = 2 }"),
        ("{ tp = auto }", {"tp": 4}, "{ tp = 4 }"),
        ("{ tp = 8, dp = auto }", {"dp": 4}, "{ tp = 8, dp = 4 }"),
        ("{ tp = 8, schedule = interleaved(chunks = 2) }", {"schedule.chunks": 4},
         "{ tp = 8, schedule = interleaved(chunks = 4) }"),
    ],
)  # fmt: skip
def test_set_fields(
    parallel: str, values: dict[str, int], after: str, job: Job, subject: Read
) -> None:
    text = job(parallel=parallel)
    fixes = fix.set_fields(subject(text), {f"parallel.{k}": v for k, v in values.items()})
    assert applied(text, fixes) == job(parallel=after)
    said = ", ".join(f"{name.rpartition('.')[2]} = {value}" for name, value in values.items())
    assert fixes[0].title == said
    [named] = fix.set_fields(subject(text), {"parallel.tp": 2}, "another name")
    assert named.title == "another name"


def test_no_edit_without_a_place(job: Job, subject: Read) -> None:
    one = subject(job(parallel="{ }"))
    assert fix.set_fields(one, {"parallel.tp": 2}) == ()
    assert fix.set_fields(one, {"cluster.nodes": 2, "parallel.tp": 2}) == ()
    assert fix.set_fields(one, {"train.seq": 2}) == ()
    one = subject(job())
    assert fix.set_fields(replace(one, editable=False), {"parallel.tp": 2}) == ()
    assert fix.set_fields(replace(one, searching=True), {"parallel.tp": 2}) == ()
    assert fix.order_text(("tp", "cp")) == "[tp, cp]"
