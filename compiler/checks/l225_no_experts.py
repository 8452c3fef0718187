"""Expert degrees for a model without experts.

What
    `ep` and `etp` are above 1 only where the model has experts.
Why
    They say over how many ranks the experts are dealt and how many share each of them. A dense
    model has none: the ranks would do the same work twice.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      ep = 4
      #    ^ L225
      zero = 1
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 4
      zero = 2
    }
Source
    Megatron-Core, TransformerConfig: expert parallelism needs num_moe_experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L225"
TITLE = "expert degrees for a model without experts"
READS = ("model.layers", "parallel.ep", "parallel.etp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.model.experts is not None:
        return
    asked = [name for name in ("ep", "etp") if getattr(subject.parallel, name) > 1]
    if not asked:
        return
    name, *others = asked
    value = getattr(subject.parallel, name)
    span, label = subject.label(f"parallel.{name}", "no experts to deal out")
    yield error(
        CODE,
        f"{name} = {value}, but the model has no experts",
        span,
        label,
        also=[
            (subject.origins.block("model"), "no `experts` here"),
            *(subject.label(f"parallel.{other}", "nor to cut") for other in others),
        ],
        fixes=fix.set_fields(subject, {f"parallel.{each}": 1 for each in asked}),
    )
