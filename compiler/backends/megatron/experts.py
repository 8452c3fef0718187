"""Mixture of experts as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends.megatron.argument import Piece, chosen, field, given, refused
from parlay.compiler.spec.blocks import Experts, Spec
from parlay.compiler.spec.resolve import Phase


def experts(phase: Phase, spec: Spec) -> Iterator[Piece]:
    """The experts; nothing for a dense model."""
    model = spec.model
    assert model is not None
    experts = model.experts
    if experts is None:
        return
    yield given("--num-experts", experts.count, path="model.experts.count")
    yield given("--moe-ffn-hidden-size", experts.ffn, path="model.experts.ffn")
    where = "model.experts.dense_layers" if experts.dense_layers else "model.experts.every"
    yield given("--moe-layer-freq", pattern(experts, model.layers), path=where)
    if experts.shared:
        width = experts.shared * experts.shared_ffn
        yield given("--moe-shared-expert-intermediate-size", width, path="model.experts.shared")
        if experts.shared_gate:
            yield given("--moe-shared-expert-gate", path="model.experts.shared_gate")
    elif experts.shared_gate:
        yield refused(phase, "model.experts.shared_gate", "a gate without shared experts")
    yield from _router(phase, experts)
    yield from _dispatch(phase, spec, experts)
    if "mlp" in model.bias:
        etp = spec.parallel.etp
        if etp > 1:
            words = "experts have biases at etp = 1 alone"
            yield refused(phase, "model.bias", f"biases of experts at etp = {etp}", words=words)
        if experts.shared:
            yield refused(phase, "model.bias", "biases of shared experts")


def pattern(experts: Experts, layers: int) -> str:
    """Which layers have experts: `1`, or an expression of Python lists.

    4 layers, `dense_layers = 1` --> `([0]*1+[1]*3)`; `every = 2` --> `([0]*1+[1]*1)*2`
    """
    first, every = experts.dense_layers, experts.every
    if first == 0 and every == 1:
        return "1"
    runs, rest = divmod(max(0, layers - first), every)
    if first == 0 and rest == 0:
        return f"([0]*{every - 1}+[1]*1)*{runs}"
    parts = [f"[0]*{min(first, layers)}"] if first else []
    if every == 1:
        parts.append(f"[1]*{runs}")
    else:
        parts.append(f"([0]*{every - 1}+[1]*1)*{runs}")
        parts += [f"[0]*{rest}"] if rest else []
    return f"({'+'.join(parts)})"


def _router(phase: Phase, experts: Experts) -> Iterator[Piece]:
    yield given("--moe-router-topk", experts.top_k, path="model.experts.top_k")
    yield given("--moe-router-score-function", experts.router, path="model.experts.router")
    if experts.top_k == 1 and experts.router == "softmax":
        # After the choice of one there would be nothing left to weigh.
        yield given("--moe-router-pre-softmax", path="model.experts.top_k")
    elif not experts.normalize:
        if experts.router == "sigmoid" and experts.top_k > 1:
            words = "sigmoids of several experts are divided by their sum"
            yield refused(phase, "model.experts.normalize", "`normalize = off`", words=words)
        elif experts.router == "softmax":
            yield given("--moe-router-pre-softmax", path="model.experts.normalize")
    if experts.scale != 1:
        yield given("--moe-router-topk-scaling-factor", experts.scale, path="model.experts.scale")
    if experts.router_bias:
        if experts.router == "softmax":
            words = "chosen by scores of a sigmoid alone"
            shown = "`router_bias` with softmax"
            yield refused(phase, "model.experts.router_bias", shown, words=words)
        yield given("--moe-router-enable-expert-bias", path="model.experts.router_bias")
    if experts.groups > 1:
        yield given("--moe-router-num-groups", experts.groups, path="model.experts.groups")
        yield given("--moe-router-group-topk", experts.top_groups, path="model.experts.top_groups")
    kind = "aux_loss" if experts.aux_loss else "none"
    yield chosen("--moe-router-load-balancing-type", kind, path="model.experts.aux_loss")
    if experts.aux_loss:
        yield given("--moe-aux-loss-coeff", experts.aux_loss, path="model.experts.aux_loss")
    if experts.z_loss:
        yield given("--moe-z-loss-coeff", experts.z_loss, path="model.experts.z_loss")


def _dispatch(phase: Phase, spec: Spec, experts: Experts) -> Iterator[Piece]:
    if experts.capacity is not None:
        path = "model.experts.capacity"
        yield given("--moe-expert-capacity-factor", experts.capacity, path=path)
    if experts.node_limit is not None and not _groups_are_nodes(spec, experts):
        yield refused(
            phase,
            "model.experts.node_limit",
            field(phase, "model.experts.node_limit"),
            words="the router limits groups of experts, not nodes",
            help=["`groups` with one group a node and `top_groups` limit the same"],
        )
    yield chosen("--moe-token-dispatcher-type", "alltoall")
    yield chosen("--moe-grouped-gemm")


def _groups_are_nodes(spec: Spec, experts: Experts) -> bool:
    """Whether no more nodes than `node_limit` can be reached through `top_groups` groups.

    A group of experts lies on ep / groups neighbours of the expert grid: within a node where
    these, with their etp, are no more than a node's GPUs and divide them.
    """
    assert spec.cluster is not None and experts.node_limit is not None
    span, rest = divmod(spec.parallel.ep * spec.parallel.etp, experts.groups)
    inside = rest == 0 and span > 0 and spec.cluster.node.gpus % span == 0
    return inside and experts.top_groups <= experts.node_limit
