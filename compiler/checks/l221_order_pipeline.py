"""`order` gives the experts other pipelines than the dense layers.

What
    The pipeline groups of the expert grid are those of the dense grid.
Why
    etp takes tp's place in the order, edp takes dp's, and cp is dropped. The axes before pp then
    may have another product than before, and a microbatch would have to jump between pipelines
    from a dense layer to an expert layer. With pp last this cannot happen.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      ep = 4
      order = [tp, pp, dp]
      #       ^^^^^^^^^^^^ L221
      zero = 1
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 4
      pp = 2
      ep = 4
      order = [tp, dp, pp]
      zero = 1
    }
Source
    Megatron-Core, parallel_state: the pipeline groups of attention and expert layers are the same.
    It refuses further orders, which a target's own rules tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parlay.compiler.checks import fix, words
from parlay.compiler.checks.degrees import order_holds
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.orders import (
    dense_grid,
    expert_grid,
    needs_expert_grid,
    pipelines_agree,
)
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.runtime.axes import Grid

CODE = "L221"
TITLE = "`order` gives the experts other pipelines than the dense layers"
READS = (
    "cluster.gpus",
    "parallel.order",
    "parallel.tp",
    "parallel.cp",
    "parallel.dp",
    "parallel.pp",
    "parallel.ep",
    "parallel.etp",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    world, parallel = subject.world, subject.parallel
    assert world is not None
    if not needs_expert_grid(subject.spec) or not order_holds(parallel):
        return
    dense = dense_grid(parallel)
    if dense.world != world:
        return
    expert = expert_grid(parallel, world=world)
    if expert is None or pipelines_agree(dense, expert):
        return
    last = (*(axis for axis in parallel.order if axis != "pp"), "pp")
    span, label = subject.label("parallel.order", "pp stands at another stride for the experts")
    yield error(
        CODE,
        "`order` gives the experts other pipelines than the dense layers",
        span,
        label,
        also=[
            subject.label(f"parallel.{axis}", words.ranks(axis, getattr(parallel, axis)))
            for axis in ("tp", "cp", "ep", "etp")
            if getattr(parallel, axis) > 1
        ],
        notes=[
            f"dense: {_stride(dense)}",
            f"experts: {_stride(expert)}",
        ],
        help=["with pp last both grids have the same pipelines"],
        fixes=fix.set_fields(subject, {"parallel.order": fix.order_text(last)}),
    )


def _stride(grid: Grid) -> str:
    """`tp 4 · cp 2 before pp: its ranks are 8 apart`."""
    before = grid.sizes[: grid.axes.index("pp")]
    sizes = " · ".join(f"{name} {size}" for name, size in before if size > 1)
    apart = prod(size for _, size in before)
    return f"{sizes or 'nothing'} before pp, whose ranks stand {apart} apart"
