"""The pieces of train.py that keep routed experts apart from all else: other ranks share them."""

from __future__ import annotations

from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call

DTYPE = "dtype=precision.dtype(plan.dtypes.gradients)"


def names(structure: Structure) -> list[str]:
    """The constants of model.py that train.py imports."""
    return ["EXPERTS"] if structure.experts is not None else []


def imports(structure: Structure) -> list[str]:
    """Of the runtime's modules up to `pipeline`."""
    if not structure.parted:
        under = structure.based and structure.experts is not None and not structure.gathers
        return ["from parlay.runtime.parts import WeightParts"] if under else []
    return ["from parlay.runtime.parts import GradientParts, WeightParts"]


def buffers(structure: Structure) -> list[str]:
    """The classes of gradients."""
    zero = [structure.zero]
    zero += [structure.expert_zero] if structure.parted else []
    return sorted({"ShardedGradients" if cut else "Gradients" for cut in zero})


def dealt(structure: Structure) -> list[str]:
    """Who holds the experts."""
    arguments = ["EXPERTS", *(f"{axis}=mesh.{axis}" for axis in structure.dealt)]
    return [f"dealt = Dealt({', '.join(arguments)})"] if structure.experts is not None else []


def frozen(structure: Structure, common: list[str], *, named: bool) -> list[str]:
    """The weights under adapters, those of experts among them; `named` where they are used."""
    device = "device=mesh.device" if structure.mesh else "device=device"
    experts = ["model", "dtype=compute", device, "dealt=dealt", "trained=False"]
    if not named:
        lines = call("Weights(", common, indent=4) if common else []
        return [*lines, *call("Weights(", experts, indent=4)]
    return [
        "frozen = WeightParts(",
        *_argument("common=Weights(", common),
        *_argument("experts=Weights(", experts),
        ")",
    ]


def weights(structure: Structure, common: list[str]) -> list[str]:
    """The weights in two parts; `common` are the arguments for what is no expert's."""
    device = "device=mesh.device" if structure.mesh else "device=device"
    experts = ["model", "dtype=compute", device, "dealt=dealt"]
    experts += ["multiple=mesh.edp.size"] if structure.expert_zero else []
    return [
        "weights = WeightParts(",
        *_argument("common=Weights(", common),
        *_argument("experts=Weights(", experts),
        ")",
    ]


def gradients(structure: Structure) -> list[str]:
    """The gradients, each part cut over the ranks that share it."""
    if not structure.parted:
        return []
    parts = (
        ("common", structure.zero, structure.shard_axis),
        ("experts", structure.expert_zero, "edp"),
    )
    lines = ["gradients = GradientParts("]
    for name, cut, axis in parts:
        arguments = [f"weights.{name}", DTYPE, *([f"axis=mesh.{axis}"] if cut else [])]
        lines += _argument(f"{name}={'Sharded' if cut else ''}Gradients(", arguments)
    return [*lines, ")"]


def _argument(before: str, arguments: list[str]) -> list[str]:
    lines = call(before, arguments, indent=8, after="),")
    return [f"    {line}" for line in lines]


def norm(structure: Structure) -> list[str]:
    """What the norm is told of the ranks that own the same."""
    if not structure.parted:
        return []
    if structure.owners == "world":
        axis = structure.batch_axis
        found = [f"replicas=job.mesh.{axis}"] if axis and not structure.zero else []
        if structure.replicates:
            return [*found, "experts=job.mesh.replicate"]
        return found + (
            ["experts=job.mesh.edp"] if structure.edp and not structure.expert_zero else []
        )
    return ["experts=job.mesh.tp"] if structure.tp and not structure.expert_zero else []


def reduced(structure: Structure, plan: str) -> str:
    """The sum of the experts' gradients over the ranks that hold the same ones."""
    if not structure.edp or not structure.parted:
        return ""
    if structure.expert_zero:
        return "job.gradients.experts.reduce_scatter(axis=mesh.edp)"
    return f"job.gradients.experts.all_reduce(axis=mesh.edp, bucket={plan}.buckets.gradients)"


def reduced_for(structure: Structure) -> str:
    """What that follows from, as a comment."""
    if not structure.edp:
        return ""
    fields = [structure.at(f"parallel.{axis}") for axis in structure.dealt]
    says = (
        "each expert has seen the tokens of its ep and etp ranks"
        if fields
        else "each rank has all experts"
    )
    return f"{', '.join(fields) or structure.at('model.experts.count')}: {says}."


def all_gather(structure: Structure) -> str:
    """What makes the weights of both parts whole after an update."""
    lines = []
    if structure.zero:
        lines.append(f"job.weights.common.all_gather(axis=job.mesh.{structure.shard_axis})")
    if structure.expert_zero:
        lines.append("job.weights.experts.all_gather(axis=job.mesh.edp)")
    return "\n    ".join(lines)
