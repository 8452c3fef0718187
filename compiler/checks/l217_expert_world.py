"""The expert degrees do not fill the cluster.

What
    etp · ep · pp divides the number of GPUs; what is left is edp.
Why
    The experts have a grid of their own over the same ranks: etp · ep · edp · pp is the world. ep
    may exceed dp, since it takes its ranks from tp, cp and dp together.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 3, node from "gb200-nvl72" }
    parallel {
      ep = 8
      #    ^ L217
      zero = 1
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 3, node from "gb200-nvl72" }
    parallel {
      ep = 4
      zero = 1
    }
Source
    Megatron-Core, parallel_state.initialize_model_parallel; etp defaults to tp there and to 1 here.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.orders import expert_data_parallel
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L217"
TITLE = "the expert degrees do not fill the cluster"
READS = ("cluster.gpus", "parallel.etp", "parallel.ep", "parallel.pp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, world = subject.parallel, subject.world
    assert world is not None
    asked = parallel.etp * parallel.ep > 1
    product = parallel.etp * parallel.ep * parallel.pp
    # A pipeline that does not divide the world is told by the dense product.
    if not asked or world % parallel.pp or product == 0:
        return
    if expert_data_parallel(world=world, etp=parallel.etp, ep=parallel.ep, pp=parallel.pp):
        return
    names = [name for name in ("etp", "ep", "pp") if getattr(parallel, name) > 1]
    at = "ep" if parallel.ep > 1 else "etp"
    span, label = subject.label(f"parallel.{at}", words.ranks(at, getattr(parallel, at)))
    near = suggest.choices(
        subject,
        f"parallel.{at}",
        words.divisors(world // parallel.pp),
        wanted=getattr(parallel, at),
    )
    said = words.product(names, [getattr(parallel, name) for name in names])
    yield error(
        CODE,
        f"{said} does not divide the {words.counted(world, 'GPU')} of the cluster",
        span,
        label,
        also=[
            subject.label(f"parallel.{name}", words.ranks(name, getattr(parallel, name)))
            for name in names
            if name != at
        ],
        notes=["etp · ep · edp · pp is the number of GPUs", words.leaves(world, product)],
        help=near.help,
        fixes=near.fixes,
    )
