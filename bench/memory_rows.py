"""The memory side of the accuracy report: stated peaks, and stated out-of-memory cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import memory
from parlay.compiler.layout import lay_out
from parlay.compiler.ledger.memory import account
from row_spec import NODES, spec_of
from rows import NEEDED, Case, read
from scoring import summary
from stacks import Row, stack_of, usual_of

CONTEXT_BYTES = 2 * 2**30
"""Of a GPU, what context, communicators and kernels take beside the tensors."""


def memory_report(path: Path, cases: Sequence[Case]) -> dict[str, Any]:
    """Errors of the peak where one is stated in bytes, and how cases are told that did not fit.

    `ran` counts the runs with a speed, which did fit, and how many of them are told so.
    """
    rows = read(path)
    errors = []
    for row in rows:
        if row["peak_mem_gib"]:
            error = peak_error(row)
            if error is not None:
                errors.append(error)
    told = [fits(row) for row in rows if out_of_memory(row) and priced(row)]
    told = [one for one in told if one is not None]
    ran = [_fits(case.spec, case.layout) for case in cases]
    return {
        "memory": summary(errors),
        "out_of_memory": {
            "stated": len(told),
            "told_right": sum(not one for one in told),
            "ran": len(ran),
            "ran_told_right": sum(ran),
        },
    }


def out_of_memory(row: Row) -> bool:
    """Whether a row says that it ran out of memory, and has no speed."""
    words = re.sub(r"(borderline|close to) OOM|mbs \d+ OOM", "", row.get("notes", ""))
    ran = row["step_time_s"] or row["tokens_per_s_per_gpu"] or row["mfu_pct"]
    return "OOM" in words and not ran


def priced(row: Row) -> bool:
    """Whether a row states what a prediction of its memory needs."""
    names = (*NEEDED["shape"], *NEEDED["degrees"], "micro_batch", "global_batch_seqs")
    return row["gpu"] in NODES and all(row[name] for name in names)


UNREADABLE = (AssertionError, ArithmeticError, LookupError, ValueError)


def fits(row: Row) -> bool | None:
    """Whether a row is predicted to fit; None where no spec can be made of it."""
    try:
        spec = spec_of(row, usual_of(stack_of(row)))
        return _fits(spec, lay_out(spec))
    except UNREADABLE:
        return None


def peak_error(row: Row) -> float | None:
    """predicted / measured − 1 of the peak; None where the row lacks what it takes.

    Megatron's own logs, exact to the byte, are of the last stage's rank of a plain GPT
    (`memory.py`); other rows are priced as the time side prices them, the fullest rank.
    """
    try:
        if priced(row) and "exact bytes" not in row["notes"]:
            spec = spec_of(row, usual_of(stack_of(row)))
            held = account(spec, lay_out(spec))
            return held.worst.peak_bytes / (float(row["peak_mem_gib"]) * 2**30) - 1.0
        made = memory.predict(row)
    except UNREADABLE:
        return None
    return None if isinstance(made, str) else made.error


def _fits(spec: Any, layout: Any) -> bool:
    peak = account(spec, layout).worst.peak_bytes
    return bool(peak + CONTEXT_BYTES <= spec.cluster.node.gpu.memory_bytes)
