"""Experts on more ranks than shard one copy.

What
    ep divides dp_shard · cp · tp, the ranks of one stage that hold one copy of the dense
    layers.
Why
    Experts borrow the ranks of the sharded grid, and no others: replicas keep experts of their
    own.
Example
    model from "qwen3-30b-a3b" { experts { node_limit = 4 } }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      zero = 3
      shard = 8
      ep = 16
      #    ^^ B611
      order = [tp, cp, ep, dp, pp]
    }
Instead
    model from "qwen3-30b-a3b" { experts { node_limit = 4 } }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      zero = 3
      shard = 8
      ep = 8
    }
Source
    torchtitan, August 2026, parallel_dims.py: (dp_shard · cp · tp) is a multiple of ep; issue
    4258.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, suggest, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B611"
TITLE = "experts on more ranks than shard one copy"
READS = ("model.experts.count", "parallel.ep", "parallel.tp", "parallel.shard", "parallel.zero")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    ranks = parallel.tp * (parallel.shard if parallel.zero else 1)
    if ranks % parallel.ep == 0:
        return
    span, label = subject.label("parallel.ep", f"more than the {ranks} ranks of one copy")
    near = suggest.choices(subject, "parallel.ep", words.divisors(ranks), wanted=parallel.ep)
    yield error(
        CODE,
        f"ep = {parallel.ep} does not divide dp_shard · cp · tp = {ranks}",
        span,
        label,
        also=[
            subject.label("parallel.shard", f"{parallel.shard} ranks of dp · cp"),
            subject.label("parallel.tp", f"{parallel.tp} TP ranks"),
        ],
        notes=[words.leaves(ranks, parallel.ep)],
        help=near.help,
        fixes=near.fixes,
    )
