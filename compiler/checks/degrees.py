"""Whether a phase can be laid out at all: the conditions of `lay_out`, as pure predicates."""

from __future__ import annotations

from typing import Protocol

from parlay.compiler.layout.orders import (
    DENSE,
    dense_grid,
    expert_grid,
    needs_expert_grid,
    pipelines_agree,
    shard_parts,
)
from parlay.compiler.layout.stages import steps_of
from parlay.compiler.spec.blocks import Cluster, Model, Parallel, Spec
from parlay.compiler.spec.origins import Kind, Origins

_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp", "shard", "order", "schedule")
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "activation")
_EXPERTS = ("count", "top_k", "ffn", "shared", "shared_ffn", "dense_layers", "every")
_MLA = ("kv_rank", "nope_dim", "rope_dim", "v_dim")


class Resolved(Protocol):
    """A phase as far as its layout goes."""

    @property
    def spec(self) -> Spec: ...
    @property
    def origins(self) -> Origins: ...


def degrees_hold(phase: Resolved) -> bool:
    """Whether product, order, expert grid, shard and stages all hold, so that `lay_out` may run.

    The rules say one by one what is wrong where they do not.
    """
    cluster, parallel = phase.spec.cluster, phase.spec.parallel
    if cluster is None or not _machines_known(cluster):
        return False
    if any(getattr(parallel, name) is None for name in _DEGREES) or not order_holds(parallel):
        return False
    dense = dense_grid(parallel)
    if dense.world != cluster.gpus:
        return False
    expert = expert_grid(parallel, world=dense.world)
    experts_fit = expert is not None and pipelines_agree(dense, expert)
    if needs_expert_grid(phase.spec) and not experts_fit:
        return False
    if shard_parts(dense, parallel.shard) is None:
        return False
    stages_in_error = parallel.stages is None and phase.origins.kind("parallel.stages") is Kind.FILE
    return not stages_in_error and stages_hold(phase.spec.model, parallel)


def order_holds(parallel: Parallel) -> bool:
    """Whether `order` names every axis at most once and none above size 1 is left out."""
    return not repeated_axes(parallel) and not missing_axes(parallel)


def repeated_axes(parallel: Parallel) -> tuple[str, ...]:
    """Axes that `order` names more than once."""
    order = parallel.order
    return tuple(axis for axis in dict.fromkeys(order) if order.count(axis) > 1)


def missing_axes(parallel: Parallel) -> tuple[str, ...]:
    """Axes above size 1 that `order` leaves out; one whose size is not known is passed over."""
    return tuple(
        axis for axis in DENSE if axis not in parallel.order and (getattr(parallel, axis) or 1) > 1
    )


def stages_hold(model: Model | None, parallel: Parallel) -> bool:
    """Whether every layer has a stage and every stage a layer; true for a model without a shape."""
    if model is None or model.layers is None:
        return True
    steps, stages = steps_of(parallel.schedule, parallel.pp), parallel.stages
    if stages is None:
        return model.layers % steps == 0
    if isinstance(stages, str):
        return shape_known(model) and steps <= model.layers
    return len(stages) == steps and sum(stages) == model.layers and min(stages) > 0


def shape_known(model: Model) -> bool:
    """Whether the sizes that a layer's cost follows from are all there."""
    parts = ((model, _SHAPE), (model.experts, _EXPERTS), (model.mla, _MLA))
    return all(
        getattr(block, name) is not None for block, names in parts if block for name in names
    )


def _machines_known(cluster: Cluster) -> bool:
    node = cluster.node
    if cluster.nodes is None or node is None or node.gpus is None:
        return False
    return node.link is None or node.link.domain is not None
