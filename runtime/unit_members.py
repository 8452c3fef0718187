"""Which weights are a unit: a layer, or what stands before the layers or behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from parlay.runtime.weights import routed
from torch import nn

FIRST = ("embedding", "position", "embedding_norm")
"""The children of a stage that stand before its layers."""

FIRST_UNIT = "first"
"""What stands before the layers, none of it a linear."""


def units_of(
    model: nn.Module, *, trained: bool | None = None
) -> Iterator[tuple[str, list[tuple[str, nn.Parameter]], bool]]:
    """The units of a model, or of the stages that a rank holds, in the order of a forward; the
    first of each stage is told.

    A weight that two units use is the first one's: a tied embedding is gathered for the head too.
    With `trained` only weights that ask for gradients are in them; where it is false, the others.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    taken: set[int] = set()
    for stage in stages_of(model):
        ends = True
        for unit, modules in children(stage):
            members = []
            for module in modules:
                for parameter in module.parameters():
                    asked = trained in (None, parameter.requires_grad)
                    if asked and id(parameter) not in taken:
                        taken.add(id(parameter))
                        members.append((names[id(parameter)], parameter))
            common = [one for one in members if not routed(one[0])]
            if common:
                yield unit, common, ends
                ends = False
            if len(common) < len(members):
                yield f"{unit}.experts", [one for one in members if routed(one[0])], False


def shared_by(stages: Sequence[nn.Module]) -> set[int]:
    """The ids of weights that two stages use."""
    uses = Counter(id(parameter) for stage in stages for parameter in stage.parameters())
    return {parameter for parameter, times in uses.items() if times > 1}


def stages_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """The stages of this rank; a model without a pipeline is one."""
    return getattr(model, "stages", (model,))


def children(stage: Any) -> Iterator[tuple[str, list[nn.Module]]]:
    """The modules of a stage by unit: `FIRST_UNIT`, its layers by their numbers, `last`."""
    first: list[nn.Module] = []
    last: list[nn.Module] = []
    opens = not hasattr(stage, "stage") or stage.stage.embedding
    for name, child in stage.named_children():
        if name != "layers":
            (first if opens and name in FIRST else last).append(child)
    if first:
        yield FIRST_UNIT, first
    for number, layer in stage.layers.items():
        yield number, [layer]
    if last:
        yield "last", last
