"""A phase's model does not fit the checkpoint it starts from.

What
    Every weight of a phase has the name and shape that it has in the phase before, padding of the
    vocabulary left out.
Why
    Phases run in order, each from the last one's checkpoint. A weight that is not in it, or stands
    there in another shape, cannot be loaded, which shows when the first phase is done.
Example
    model from "llama3.2-3b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    phase "long" {
      model { layers = 40 }
      #                ^^ L235
    }
Instead
    model from "llama3.2-3b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    phase "long" {
      train { global_batch = 16 }
    }
Source
    Parlay: the order of phases is the language's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.reload import Placed, reload
from parlay.compiler.spec.blocks import Model
from parlay.compiler.spec.schema import fields_of
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L235"
TITLE = "a phase's model does not fit the checkpoint it starts from"
READS = ("layout", "whole", "model.layers", "model.hidden", "model.vocab")
ALLOWED = False

SHOWN: Final = 4


def check(subject: Subject) -> Iterator[Diagnostic]:
    before = subject.before
    if before is None or not before.has(READS):
        return
    found = reload(Placed(before.spec, before.laid_out), Placed(subject.spec, subject.laid_out))
    if found.loads or _returns(subject, before):
        return
    changed = _changed(before.model, subject.model)
    first, *rest = changed
    span, label = subject.label(first, "not as in the phase before")
    words = [cut.words for cut in found.cuts]
    more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    yield error(
        CODE,
        "the phase cannot start from the last one's checkpoint",
        span,
        label,
        also=[subject.label(path, "nor this") for path in rest],
        notes=[*words[:SHOWN], *more],
        help=["a phase changes batch, sequence, recipe or layout; another model is another job"],
    )


def _returns(subject: Subject, before: Subject) -> bool:
    """Whether an earlier phase has this model: then the phase between them is the odd one."""
    earlier = before.before
    while earlier is not None and earlier.has(READS):
        placed = Placed(earlier.spec, earlier.laid_out)
        if reload(placed, Placed(subject.spec, subject.laid_out)).loads:
            return True
        earlier = earlier.before
    return False


def _changed(before: Model, after: Model) -> list[str]:
    """The paths of the model's fields that differ."""
    return [
        f"model.{schema.name}"
        for schema in fields_of(Model)
        if getattr(before, schema.attribute) != getattr(after, schema.attribute)
    ]
