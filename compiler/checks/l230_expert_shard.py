"""The experts' state cannot be sharded as `shard` asks.

What
    Where `shard` is smaller than dp · cp, the ranks of edp that lie in one shard group are the same
    number everywhere: the strides of the dense grid and of the expert grid divide each other.
Why
    Expert parameters are sharded over the part of edp inside the dense shard group. With a factor
    in one grid that the other lacks (3 against 2, say) the groups would be of unequal size.
Example
    model from "mixtral-8x7b" { experts { count = 6 } }
    cluster { nodes = 6, node from "gb200-nvl72" }
    parallel {
      tp = 4
      ep = 3
      zero = 1
      shard = 3
      #       ^ L230
    }
Instead
    model from "mixtral-8x7b" { experts { count = 6 } }
    cluster { nodes = 6, node from "gb200-nvl72" }
    parallel {
      tp = 4
      ep = 3
      zero = 1
    }
Source
    This compiler's layout algebra.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L230"
TITLE = "the experts' state cannot be sharded as `shard` asks"
READS = ("layout", "model.experts.count", "parallel.zero", "parallel.shard")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    layout, parallel = subject.laid_out, subject.parallel
    if parallel.zero == 0 or layout.expert is None or layout.sharded_expert is not None:
        return
    span, label = subject.label("parallel.shard", "cuts the experts' ranks unevenly")
    group = layout.size("dp_cp")
    near = suggest.choices(subject, "parallel.shard", words.divisors(group), wanted=parallel.shard)
    edp = layout.expert.size("edp")
    yield error(
        CODE,
        f"shard = {parallel.shard} does not cut the {edp} ranks of edp evenly",
        span,
        label,
        also=[
            subject.label(f"parallel.{axis}", words.ranks(axis, getattr(parallel, axis)))
            for axis in ("tp", "ep", "etp")
            if getattr(parallel, axis) > 1
        ],
        notes=[
            f"strides of the dense grid: {_strides(layout.sharded.sizes)}",
            f"strides of the expert grid: {_strides(layout.expert.sizes)}",
        ],
        help=near.help,
        fixes=near.fixes,
    )


def _strides(sizes: tuple[tuple[str, int], ...]) -> str:
    strides, stride = [], 1
    for _, size in sizes:
        if size > 1:
            strides.append(stride)
        stride *= size
    return words.listed(strides)
