"""Layers by `torch.compile`: each runs as a graph of its own, and keeps its weights' names."""

from __future__ import annotations

from parlay.runtime.unit_members import stages_of
from torch import nn


def compile_layers(model: nn.Module) -> None:
    """After: the layers of `model` compile when they first run, for the one shape that they have.

    Layers of one kind share a graph. What stands before and behind them runs as it is.
    """
    for stage in stages_of(model):
        for layer in stage.layers.values():
            layer.compile(dynamic=False, fullgraph=True)
