"""The memory side of the accuracy report: stated peaks, and stated out-of-memory cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import memory
from parlay.compiler.layout import lay_out
from parlay.compiler.ledger.memory import account
from rows import NEEDED, NODES, Case, Row, read, spec_of
from scoring import summary
from stacks import stack_of, usual_of

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
            made = memory.predict(row)
            if not isinstance(made, str):
                errors.append(made.error)
    told = [fits(row) for row in rows if out_of_memory(row) and priced(row)]
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


def fits(row: Row) -> bool:
    """Whether a row is predicted to fit."""
    spec = spec_of(row, usual_of(stack_of(row)))
    return _fits(spec, lay_out(spec))


def _fits(spec: Any, layout: Any) -> bool:
    peak = account(spec, layout).worst.peak_bytes
    return bool(peak + CONTEXT_BYTES <= spec.cluster.node.gpu.memory_bytes)
