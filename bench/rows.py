"""A row of published runs --> the spec it ran, or why no spec can be made of it.

Of a row's identity nothing enters but its software stack: `stacks.py` names it from the source,
or the row names it itself in a column `stack`. The shape comes from the columns; what they have no
column for (latent attention, shared experts, gated activations) from the catalog's model of the
same shape, whatever the row calls it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.blocks import Spec
from row_spec import NODES, gpu_named, spec_of, task_of
from speeds import COUNTED, from_flops, speed
from stacks import Row, stack_of, usual_of
from words import modelled

COLUMNS = (
    *("id", "source_url", "source_group", "model", "params_b", "layers", "hidden", "ffn", "heads"),
    *("kv_heads", "vocab", "seq", "experts", "topk", "gpu", "gpus", "gpus_per_node", "tp", "sp"),
    *("pp", "vpp", "cp", "ep", "dp", "zero_stage_or_sharding", "micro_batch", "grad_accum"),
    *("global_batch_seqs", "recompute", "precision", "attention", "step_time_s"),
    *("tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "hfu_pct", "peak_flops_used_tflops"),
    *("peak_mem_gib", "notes", "check_flags"),
)
CONTRADICTS = ("MISMATCH", "COPY_OF", "PP_TYPO", "SWAPPED", "NOT_STATED")
NUMBERS = (
    *("params_b", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq", "gpus"),
    *("gpus_per_node", "tp", "pp", "cp", "ep", "micro_batch", "global_batch_seqs"),
    *("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "hfu_pct"),
    *("peak_flops_used_tflops", "peak_mem_gib"),
)
"""Columns whose cells are numbers above zero where they are filled."""
BEYOND = {"layers": 1e4}
"""No column has a figure as large as that, or as a hundred million."""
NEEDED = {
    "shape": ("layers", "hidden", "ffn", "heads", "seq"),
    "degrees": ("gpus", "tp", "pp"),
    "micro-batch": ("micro_batch",),
    "global batch": ("global_batch_seqs",),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A row that is scored: what it ran, how fast it was, and how it is counted.

    `tokens` is tokens/s a GPU as measured; `stated` says whether the row names its recompute and
    its attention kernel; `group` is what a fit must not have seen when the row is tested, `work`
    what rows share whose layouts are ranked.
    """

    row: Row
    spec: Spec
    layout: Layout
    tokens: float
    stated: bool
    kind: str
    accelerator: str
    source: str
    group: str
    work: tuple[str, ...]
    outlier: bool


def read(path: Path) -> list[Row]:
    """The rows of a file in the format of the published runs; a column left out is not stated."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        found = csv.DictReader(file)
        rows = [
            dict.fromkeys(COLUMNS, "") | {k: (v or "").strip() for k, v in row.items() if k}
            for row in found
        ]
    return [row | {"gpu": gpu_named(row["gpu"])} for row in rows]


def case_of(row: Row) -> Case | str:
    """The case of a row, or the reason to leave it out."""
    try:
        wrong = reason_to_skip(row)
        if wrong:
            return wrong
        usual = usual_of(stack_of(row))
        spec = spec_of(row, usual)
        layout = lay_out(spec)
    except (AssertionError, ArithmeticError, LookupError, ValueError) as fault:
        return f"degrees that make no layout ({fault})"
    assert spec.train is not None and spec.model is not None
    return Case(
        row=row,
        spec=spec,
        layout=layout,
        tokens=speed(row) or from_flops(row, spec),
        stated=bool(row["recompute"] and row["attention"]),
        kind=kind_of(spec, row),
        accelerator=family_name(row["gpu"]),
        source=row.get("source_group", ""),
        group=group_of(spec),
        work=work_of(row, spec),
        outlier="OUTLIER" in row.get("check_flags", ""),
    )


def group_of(spec: Spec) -> str:
    """Source and model without their names: the stack's family, and the model's widths.

    Models of equal widths are one group however deep they are, and sources that ran the same
    stack are not told apart.
    """
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    experts = model.experts.count if model.experts is not None else 0
    family = train.stack.partition("-")[0]
    return f"{family}/{model.hidden}x{model.ffn}x{experts}"


def work_of(row: Row, spec: Spec) -> tuple[str, ...]:
    """What rows have in common that did the same work: among them layouts are ranked."""
    assert spec.train is not None
    columns = ("layers", "hidden", "ffn", "heads", "experts", "gpu", "gpus", "seq")
    shape = tuple(row[name] for name in columns)
    return (*shape, row["global_batch_seqs"], spec.train.precision, spec.train.stack, task_of(row))


def reason_to_skip(row: Row) -> str | None:
    """Why a row cannot be scored."""
    if row["gpu"] not in NODES:
        return "accelerator not modelled"
    flags = row.get("check_flags", "")
    for flag in CONTRADICTS:
        if flag in flags:
            repeats = flag == "COPY_OF"
            return "repeats another row" if repeats else "contradicts itself"
    for what, names in NEEDED.items():
        if not all(row[name] for name in names):
            return f"{what} not stated"
    wrong = unreadable(row)
    if wrong:
        return wrong
    if float(row["experts"] or 0):
        if not float(row["topk"] or 0):
            return "shape not stated"
        if not row["ep"]:
            return "degrees not stated"
    if not speed(row) and not any(row[name] for name in COUNTED):
        return "speed not stated"
    if not modelled(row["precision"]):
        return "precision not modelled"
    if "ZB-2p" in row.get("notes", ""):
        return "schedule ZB-2p is not in the language"
    return None


def unreadable(row: Mapping[str, str]) -> str | None:
    """What is wrong with the first cell that should be a number and is none."""
    for name in (*NUMBERS, "experts", "topk"):
        least = 0.0 if name in ("experts", "topk") else 1e-9
        try:
            good = not row.get(name) or least <= float(row[name]) < BEYOND.get(name, 1e8)
        except ValueError:
            good = False
        if not good:
            return f"no number that can be in the column {name}"
    return None


def kind_of(spec: Spec, row: Row) -> str:
    """The class that a row is counted in."""
    assert spec.train is not None and spec.model is not None
    if task_of(row) != "pretrain":
        return "finetune"
    if spec.model.experts is not None:
        return "moe"
    low = {"fp8": "dense_fp8", "mxfp8": "dense_fp8", "nvfp4": "dense_fp4"}
    return low.get(spec.train.precision, "dense_bf16")


def family_name(gpu: str) -> str:
    """The accelerator's generation: `GB200-NVL72` --> `Blackwell`."""
    if gpu.startswith(("B", "GB")):
        return "Blackwell"
    return gpu.split("-")[0]
