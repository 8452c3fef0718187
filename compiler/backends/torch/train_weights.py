"""The lines of train.py that build the model of a rank and its weights."""

from __future__ import annotations

from parlay.compiler.backends.torch import copied, expert_state
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call


def model_built(structure: Structure) -> list[str]:
    """The model of this rank, on the meta device."""
    return [*_modules(structure), *(["freeze(model)"] if structure.adapted else [])]


def _modules(structure: Structure) -> list[str]:
    arguments = "plan, mesh" if structure.model_meets else "plan"
    if structure.chunked:
        return [
            "own = [stage for stage in plan.stages if stage.stage == mesh.pp.rank]",
            f"model = Chunks(Stage({arguments}, stage=stage) for stage in own)",
        ]
    if structure.pp:
        return [f"model = Stage({arguments}, stage=plan.stages[mesh.pp.rank])"]
    return [f"model = Model({arguments})"]


def weights_built(structure: Structure) -> list[str]:
    """The memory of its weights, and who holds what of them."""
    arguments = ["model", "dtype=compute"]
    arguments.append("device=mesh.device" if structure.mesh else "device=device")
    arguments += ["cut=CUT"] if structure.tp else []
    arguments += [copies] if (copies := copied.argument(structure)) else []
    axis = f"mesh.{structure.shard_axis}"
    if structure.adapted:
        named = "frozen = " if structure.keeps_frozen else ""
        units = [f"axis={axis}", "gathers=True"] if structure.gathers else []
        dealt = expert_state.dealt(structure)
        given = [*arguments, "trained=False", *units]
        if dealt and structure.gathers:
            given += ["dealt=dealt", *["experts=mesh.edp"] * structure.expert_zero]
        if dealt and not structure.gathers:
            frozen = expert_state.frozen(structure, given, named=structure.based)
        else:
            kind = "UnitWeights" if structure.gathers else "Weights"
            frozen = call(f"{named}{kind}(", given, indent=4)
        padded = [f"multiple={axis}.size"] if structure.zero else []
        arguments = [*arguments, "trained=True", *padded]
        return [*dealt, *frozen, *call("weights = Weights(", arguments, indent=4)]
    dealt = expert_state.dealt(structure)
    if structure.scatters:
        arguments += [f"axis={axis}", f"gathers={structure.gathers}"]
        arguments += ["dealt=dealt"] if dealt else []
        arguments += ["experts=mesh.edp"] if structure.expert_zero else []
        return [*dealt, *call("weights = UnitWeights(", arguments, indent=4)]
    arguments += [f"multiple={axis}.size"] if structure.zero else []
    if structure.parted:
        return [*dealt, *expert_state.weights(structure, arguments)]
    return call("weights = Weights(", arguments, indent=4)


def filled(structure: Structure) -> list[str]:
    """Their initial values."""
    arguments = ["model", "plan=plan"]
    arguments += ["cut=CUT", "axis=mesh.tp"] if structure.tp else []
    arguments += [copies] if (copies := copied.argument(structure, axes=("kv",))) else []
    arguments += ["dealt=dealt"] if structure.experts is not None else []
    arguments += [f"gathered={structure.gathered}.drawn"] if structure.gathers else []
    return call("init.fill(", arguments, indent=4)


def frozen_class(structure: Structure) -> str:
    """The class of the weights under adapters."""
    if structure.gathers:
        return "UnitWeights"
    return "Weights" if structure.experts is None else "WeightParts"


def weights_class(structure: Structure) -> str:
    """The class of the weights that are trained."""
    if structure.parted:
        return "WeightParts"
    return "UnitWeights" if structure.scatters else "Weights"
