"""The memory side of the accuracy report: stated peaks, and stated out-of-memory cases.

What is measured differs by stack, and is chosen by it: Megatron's tests log the bytes that PyTorch
allocated at most on the last stage's last rank, exact; torchtitan logs what PyTorch's allocator
reserved at most on the fullest rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import memory
from parlay.compiler.layout import lay_out
from parlay.compiler.ledger.memory import account
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.schema import Setting
from row_spec import NODES, spec_of
from rows import NEEDED, Case, read, unreadable
from scoring import summary
from stacks import Row, stack_of, usual_of

CONTEXT_BYTES = 2 * 2**30
"""Of a GPU, what context, communicators and kernels take beside the tensors."""


RESERVED = {"torchtitan": 1.15}
"""Stacks whose runs state reserved memory, by how much it is over what is allocated: one number for
all rows of a stack, the middle of what full and selective recompute, eager and compiled, need."""


def memory_report(path: Path, cases: Sequence[Case]) -> dict[str, Any]:
    """Errors of the peak where one is stated in bytes, and how cases are told that did not fit.

    `ran` counts the runs with a speed, which did fit, and how many of them are told so.
    """
    rows = read(path)
    errors: list[float] = []
    classes: dict[str, list[float]] = defaultdict(list)
    sources: dict[str, list[float]] = defaultdict(list)
    skipped: Counter[str] = Counter()
    for row in rows:
        if row["peak_mem_gib"]:
            error = peak_error(row)
            if isinstance(error, str):
                skipped[error] += 1
                continue
            errors.append(error)
            classes[memory.kind_of(row)].append(error)
            sources[f"{row['source_group']}, {measured(row)}"].append(error)
    told = [fits(row) for row in rows if out_of_memory(row) and priced(row)]
    told = [one for one in told if one is not None]
    ran = [_fits(case.spec, case.layout) for case in cases]
    return {
        "memory": summary(errors),
        "memory_by_class": {name: summary(classes[name]) for name in sorted(classes)},
        "memory_by_source": {name: summary(sources[name]) for name in sorted(sources)},
        "memory_skipped": dict(skipped.most_common()),
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
    if unreadable(row):
        return None
    try:
        spec = spec_of(row, usual_of(stack_of(row)))
        return _fits(spec, lay_out(spec))
    except UNREADABLE:
        return None


def measured(row: Row) -> str:
    """What the row's source calls its memory."""
    return "reserved" if family(row) in RESERVED else "allocated"


def family(row: Row) -> str:
    """The stack without its generation and words; nanotron, priced like eager torchtitan, logs what
    is allocated."""
    stack = stack_of(row)
    return stack if stack == "torchtitan-eager" else stack.partition("-")[0]


def peak_error(row: Row) -> float | str:
    """predicted / measured − 1 of the peak, or why there is none.

    Megatron's own logs, exact to the byte, are of the last stage's rank of its functional tests
    (`megatron_tests.py`); other rows are priced as the time side prices them, the fullest rank.
    """
    wrong = unreadable(row)
    if wrong:
        return wrong
    try:
        if priced(row) and "exact bytes" not in row["notes"]:
            spec = said_by_torchtitan(spec_of(row, usual_of(stack_of(row))), row)
            held = account(spec, lay_out(spec)).worst.peak_bytes
            share = RESERVED.get(family(row), 1.0)
            return held * share / (float(row["peak_mem_gib"]) * 2**30) - 1.0
        made = memory.predict(row)
    except UNREADABLE as error:
        return f"no such layout ({error})"
    return made if isinstance(made, str) else made.error


def said_by_torchtitan(spec: Spec, row: Row) -> Spec:
    """What torchtitan's rows say in words of their own: `selective (op)` is a bare `selective`."""
    train = spec.train
    if train is None or not train.stack.startswith("torchtitan"):
        return spec
    if "op" in re.split(r"\W+", row["recompute"]):
        train = replace(train, recompute=Setting("selective"))
    return replace(spec, train=train)


def _fits(spec: Any, layout: Any) -> bool:
    peak = account(spec, layout).worst.peak_bytes
    return bool(peak + CONTEXT_BYTES <= spec.cluster.node.gpu.memory_bytes)
