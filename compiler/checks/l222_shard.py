"""`shard` does not cut the ZeRO group.

What
    `shard` divides dp · cp, and takes whole ranks of the faster axis first: it divides the faster
    of cp and dp, or is a whole number of it that divides the slower.
Why
    The ranks that share one copy of the training state, and those that hold the same part of it,
    each form a line or plane of the grid.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      zero = 3
      shard = 6
      #       ^ L222
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      zero = 3
      shard = 8
    }
Source
    Megatron-Core, parallel_state: num_distributed_optimizer_instances divides dp · cp; PyTorch,
    HYBRID_SHARD.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.degrees import order_holds
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.orders import dense_grid, shard_axes, shard_parts
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L222"
TITLE = "`shard` does not cut the ZeRO group"
READS = (
    "parallel.shard",
    "parallel.dp",
    "parallel.cp",
    "parallel.tp",
    "parallel.pp",
    "parallel.order",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    if not order_holds(parallel):
        return
    dense = dense_grid(parallel)
    if shard_parts(dense, parallel.shard) is not None:
        return
    group, shard = parallel.dp * parallel.cp, parallel.shard
    first, second = shard_axes(dense)
    if group % shard:
        message = f"shard = {shard} does not divide dp · cp = {group}"
        notes = [words.leaves(group, shard)]
    else:
        message = f"shard = {shard} is no plane of {first} and {second}"
        notes = [
            f"{first} = {dense.size(first)} varies faster than {second} = {dense.size(second)}: "
            f"whole runs of {dense.size(first)} come first"
        ]
    span, label = subject.label("parallel.shard", "ranks that share one copy of the state")
    near = suggest.choices(subject, "parallel.shard", words.divisors(group), wanted=shard)
    yield error(
        CODE,
        message,
        span,
        label,
        also=[
            subject.label(f"parallel.{axis}", words.ranks(axis, dense.size(axis)))
            for axis in (first, second)
            if dense.size(axis) > 1
        ],
        notes=notes,
        help=near.help,
        fixes=near.fixes,
    )
