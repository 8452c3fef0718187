"""Whether every value that a back end reads is there: a value in error is None in the spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parlay.compiler.checks import degrees_hold
from parlay.compiler.spec.resolve import Phase
from parlay.compiler.spec.schema import Nested, fields_of
from parlay.dsl.diagnostics import Diagnostic, error


def complete(phase: Phase) -> bool:
    """Whether model, cluster, degrees and recipe are whole; what is not was told by the rules."""
    spec = phase.spec
    if spec.model is None or spec.train is None or spec.cluster is None:
        return False
    blocks = (spec.model, spec.cluster, spec.parallel, spec.train, spec.data, spec.checkpoint)
    return all(_whole(block) for block in (*blocks, spec.log)) and degrees_hold(phase)


def missing(phase: Phase, target: str, code: str, *, shape: bool = True) -> Iterator[Diagnostic]:
    """What a back end that makes a whole job cannot do without: blocks, and the model's shape."""
    spec, origins = phase.spec, phase.origins
    for name, there in (("model", spec.model), ("cluster", spec.cluster), ("train", spec.train)):
        if there is None and name not in origins.blocks:
            yield error(code, f"target {target} needs a `{name}` block", origins.start, "none here")
    if shape and spec.model is not None and spec.model.params is not None:
        yield error(
            code,
            f"target {target} needs the shape of the model",
            origins.span("model.params"),
            "a number of parameters has no layers",
            help=["layers, hidden, heads, ffn and vocab, or `from` a preset"],
        )


def _whole(block: Any) -> bool:
    for schema in fields_of(type(block)):
        value = getattr(block, schema.attribute)
        if isinstance(schema.types[0], Nested):
            if value is not None and not _whole(value):
                return False
        elif value is None and schema.default is not None:
            return False
    return True


def steps_of(phase: Phase) -> int | None:
    """Steps to train: as given, or what the token budget comes to, rounded up; None for neither."""
    train = phase.spec.train
    if train is None or train.steps is not None:
        return train.steps if train else None
    if train.tokens is None:
        return None
    return -(-train.tokens // (train.global_batch * train.seq))
