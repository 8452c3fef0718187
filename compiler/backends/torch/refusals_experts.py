"""What the PyTorch back end cannot express of a mixture of experts, told at the field."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends.torch.refusals_model import CODE
from parlay.compiler.layout.orders import (
    dense_grid,
    expert_grid,
    shard_parts,
    sharded_expert_grid,
    sharded_grid,
)
from parlay.compiler.spec.blocks import Experts, Model, Parallel, Train
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.runtime.axes import Grid


def expert_refusals(
    phase: Phase, model: Model, train: Train, parallel: Parallel
) -> Iterator[Diagnostic]:
    """One diagnostic for each field, or pair of fields, of experts."""
    experts = model.experts
    if experts is None:
        return

    def refused(path: str, what: str, words: str, help: str = "") -> Diagnostic:
        place, label = phase.origins.label(path, words)
        said = f"target torch cannot express {what}"
        return error(CODE, said, place, label, help=[help] if help else [])

    yield from _of_routing(phase, experts, parallel, refused)
    shares = parallel.etp
    if "mlp" in (model.bias or ()) and shares and model.hidden and model.hidden % shares:
        yield refused(
            "model.bias",
            f"biases of experts of hidden = {model.hidden} over etp = {shares}",
            f"each rank adds those of hidden / {shares} features",
            "a width that etp divides",
        )
    known = None not in (parallel.zero, parallel.dp, parallel.cp, parallel.tp)
    if known and parallel.zero > 1 and parallel.dp * parallel.cp == 1 and _copied(parallel):
        yield refused(
            "parallel.zero",
            f"`zero = {parallel.zero}` of experts alone yet",
            "dp = 1: all else is on one rank of each replica",
            "`zero = 1` cuts masters and optimizer state of experts over edp",
        )
    beside = [n for n in ("aux_loss", "z_loss", "router_bias") if getattr(experts, n)]
    if train.precision == "fp16" and beside:
        what = " and ".join(f"`{name}`" for name in beside)
        yield refused(
            "train.precision",
            f"fp16 with {what} of experts yet",
            "their gradients are not scaled up with the loss",
            "`precision = bf16`",
        )
    if experts.router_bias and train.precision == "bf16" and train.master != "fp32":
        yield refused(
            "train.master",
            "`router_bias` without fp32 masters",
            "a correction moves by 0.001, which 16 bits lose from 0.25 on",
            "`master = fp32`",
        )
    if experts.router_bias and train.gradients == "bf16":
        yield refused(
            "train.gradients",
            "`gradients = bf16` with `router_bias`",
            "visits of experts are counted where gradients are, and 16 bits count to 256",
            "`gradients = fp32`",
        )
    degrees = (parallel.tp, parallel.cp, parallel.dp, parallel.pp, parallel.ep, parallel.etp)
    known = None not in (*degrees, parallel.zero, parallel.shard, parallel.order)
    if known and not _copies_agree(phase, parallel):
        yield refused(
            "parallel.shard",
            "copies of the training state that do not hold all experts each",
            "experts are dealt out over several copies",
            "a `shard` that ep and etp lie inside of, or no `shard`",
        )
    recompute = train.recompute
    if recompute is not None and recompute.name == "selective":
        parts = recompute.flags
        if "mlp" in parts and "experts" not in parts:
            yield refused(
                "train.recompute",
                "`recompute = selective(mlp)` beside experts that are kept",
                "shared experts are MLPs, too",
                "`selective(mlp, experts)`, or `selective(experts)`",
            )


def _copies_agree(phase: Phase, parallel: Parallel) -> bool:
    """Whether copies of the experts' state are on the ranks that copies of all else are on."""
    cluster = phase.spec.cluster
    if not parallel.zero or parallel.shard in (None, parallel.dp * parallel.cp) or cluster is None:
        return True
    expert, dense = expert_grid(parallel, world=cluster.gpus), dense_grid(parallel)
    if expert is None or shard_parts(dense, parallel.shard) is None:
        return True  # in error, which is told
    return copies_agree(expert, sharded_grid(dense, parallel.shard))


def copies_agree(expert: Grid, sharded: Grid) -> bool:
    """Whether the ranks at one place of each copy of the state are the same for experts, and the
    others of edp neighbours on it; `sharded` is the dense grid, cut in copies."""
    cut = sharded_expert_grid(expert, sharded)
    if cut is None:
        return True  # in error, which is told
    names = [axis for axis in cut.axes if axis.startswith("edp")]
    if not set(names) <= {"edp", "edp_replicate"} or "edp_replicate" not in names:
        return False
    ours = cut.group_of(0, ("edp_replicate",))
    return ours == sharded.group_of(0, ("cp_replicate", "dp_replicate"))


def _copied(parallel: Parallel) -> bool:
    """Whether several ranks of a replica hold the same experts."""
    return parallel.tp > (parallel.ep or 1) * (parallel.etp or 1)


def _groups_are_nodes(phase: Phase, experts: Experts, parallel: Parallel) -> bool:
    """Whether the groups that a token may visit lie on no more nodes than it may, in any case.

    A group of experts lies on ep · etp / groups neighbours of the expert grid.
    """
    cluster, degrees = phase.spec.cluster, (parallel.ep, parallel.etp)
    asked = (experts.node_limit, experts.groups, experts.top_groups)
    if cluster is None or None in (*degrees, *asked) or not experts.groups:
        return True  # in error, which is told
    if cluster.node is None or cluster.node.gpus is None:
        return True
    assert experts.node_limit is not None
    span, rest = divmod(parallel.ep * parallel.etp, experts.groups)
    inside = rest == 0 and span > 0 and cluster.node.gpus % span == 0
    return inside and experts.top_groups <= experts.node_limit


def _of_routing(
    phase: Phase, experts: Experts, parallel: Parallel, refused: object
) -> Iterator[Diagnostic]:
    assert callable(refused)
    at = "model.experts"
    if experts.capacity is not None:
        yield refused(
            f"{at}.capacity",
            "a capacity of experts",
            "tokens beyond it are dropped",
            "leave `capacity` out: which tokens a rank drops follows from the layout, so that no "
            "proof could compare it with another",
        )
    if experts.node_limit is not None and not _groups_are_nodes(phase, experts, parallel):
        yield refused(
            f"{at}.node_limit",
            "a limit of nodes",
            "a token's experts would follow from the layout",
            "`groups` and `top_groups` limit groups of experts; ep / groups ranks hold one",
        )
    if experts.shared_gate and not experts.shared:
        yield refused(
            f"{at}.shared_gate", "a gate without shared experts", "there is nothing to gate"
        )
