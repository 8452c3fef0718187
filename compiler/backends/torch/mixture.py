"""The pieces of model.py that stand in the place of an MLP: router, experts, what is shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.linears import BODY, bias_argument, recomputed
from parlay.compiler.backends.torch.model_layer import bent, clamps, inputs
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, comment, says, tuple_of
from parlay.compiler.spec.blocks import Experts


def context(structure: Structure) -> dict[str, Any]:
    """What experts.py.j2 prints."""
    experts = structure.experts
    if experts is None:
        return {"mixture": False}
    return {
        "mixture": True,
        "dealt": [(Code(f'"{name}"'), dim) for name, dim in dealt(structure)],
        "held_parameters": Code("plan: Plan, mesh: Mesh" if structure.routes else "plan: Plan"),
        "held_init": _codes(_held_init(structure)),
        "held_forward": _codes(_held_forward(structure)),
        "held_out": _codes(_held_out(structure)),
        "held_inputs": Code(", ".join(f"{part}: Tensor" for part in inputs(structure))),
        "mixture_says": Code(_says(structure, experts)),
        "mixture_init": _codes(_init(structure, experts)),
        "mixture_forward": _codes(_forward(structure, experts)),
        "mixture_again": structure.again_alone,
    }


def dealt(structure: Structure) -> Iterator[tuple[str, int]]:
    """The ends of the names of all weights of routed experts, and the dim that etp cuts."""
    biased = "mlp" in structure.model.bias
    for name in inputs(structure):
        yield f"experts.{name}.weight", 1
        if biased:
            yield f"experts.{name}.bias", 1
    yield "experts.down.weight", 2
    if biased:
        yield "experts.down.bias", 1


def arguments(structure: Structure) -> str:
    """What a layer, or a mixture, is built with."""
    return "plan, mesh" if structure.model_meets else "plan"


def _codes(lines: list[str]) -> list[Code]:
    return [Code(line) for line in lines]


# ── The experts of a rank ─────────────────────────────────────────────────────


def _held_init(structure: Structure) -> list[str]:
    count = "e.count // mesh.ep.size" if "ep" in structure.dealt else "e.count"
    width = "e.ffn // mesh.etp.size" if "etp" in structure.dealt else "e.ffn"
    biased = ", bias=True" if "mlp" in structure.model.bias else ""
    summed = ", summed=mesh.etp" if biased and "etp" in structure.dealt else ""
    return [
        "m, e = plan.model, plan.model.experts",
        *clamps(structure),
        f"held, ffn = {count}, {width}",
        *(f"self.{part} = Grouped(held, m.hidden, ffn{biased})" for part in inputs(structure)),
        f"self.down = Grouped(held, ffn, m.hidden{biased}{summed})",
    ]


def _held_forward(structure: Structure) -> list[str]:
    if "activation" in structure.recomputed:
        made = ", ".join(f"self.{part}(x, counts)" for part in inputs(structure))
        return [f"return {recomputed('self.out', f'{made}, counts')}"]
    before, y = bent(structure, gate="self.gate(x, counts)", up="self.up(x, counts)")
    return [*before, f"return self.down({y}, counts)"]


def _held_out(structure: Structure) -> list[str]:
    if "activation" not in structure.recomputed:
        return []
    before, y = bent(structure, gate="gate", up="up")
    return [*before, f"return self.down({y}, counts)"]


# ── A layer's mixture ─────────────────────────────────────────────────────────


def _says(structure: Structure, experts: Experts) -> str:
    at = structure.at
    shared = f", and {at('model.experts.shared')}" if experts.shared else ""
    return says(f"{at('model.experts.top_k')} of {at('model.experts.count')}{shared}.")


def _init(structure: Structure, experts: Experts) -> list[str]:
    at = structure.at
    lines = ["m, e = plan.model, plan.model.experts"]
    lines += [f"self.{axis} = mesh.{axis}" for axis in structure.dealt]
    lines.append("self.top_k = e.top_k")
    if experts.groups > experts.top_groups:
        lines.append("self.groups, self.top_groups = e.groups, e.top_groups")
    if experts.scale != 1:
        lines.append("self.scale = e.scale")
    if losses := [name for name in ("aux_loss", "z_loss") if getattr(experts, name)]:
        fields = ", ".join(at(f"model.experts.{name}") for name in losses)
        says = f"{fields}: means over the step's microbatches."
        lines.append(comment(BODY, says))
        lines.append("share = plan.batch.micro_batch / plan.batch.global_batch")
        words = {"aux_loss": "load", "z_loss": "size"}
        given = [f"{words[name]}=share * e.{name}" for name in losses]
        given += [] if experts.aux_loss else ["load=0.0"]
        cuts = [f"mesh.{axis}" for axis in structure.sequence_axes]
        given += [f"axes={tuple_of(cuts)}"] if cuts else []
        lines += call("self.balance = router.Balance(", given, indent=BODY)
    router = bias_argument(structure, "router")
    lines.append(f"self.router = nn.Linear(m.hidden, e.count{router})")
    if experts.router_bias:
        lines.append("self.router.correction = nn.Parameter(torch.empty(e.count))")
    held = "plan, mesh" if structure.routes else "plan"
    lines.append(f"self.experts = Experts({held})")
    if experts.shared:
        mlp = "plan, mesh" if structure.tp else "plan"
        lines.append(f"self.shared_experts = Mlp({mlp}, ffn=e.shared_ffn)")
    if experts.shared_gate:
        lines.append("self.shared_experts.router = nn.Linear(m.hidden, 1, bias=False)")
    return lines


def _forward(structure: Structure, experts: Experts) -> list[str]:
    lines = []
    if experts.shared:
        shared = "self.shared_experts(x)"
        if experts.shared_gate:
            shared = f"self.shared_experts.router(x).sigmoid() * {shared}"
        lines.append(f"shared = {shared}")
    asked = ["top_k=self.top_k"]
    asked += [] if experts.normalize else ["normalize=False"]
    asked += ["scale=self.scale"] if experts.scale != 1 else []
    if experts.groups > experts.top_groups:
        asked += ["groups=self.groups", "top_groups=self.top_groups"]
    asked += ["correction=self.router.correction"] if experts.router_bias else []
    asked += ["balance=self.balance"] if experts.aux_loss or experts.z_loss else []
    biased = ["self.router.bias"] if "router" in structure.model.bias else []
    lines.append("tokens = x.flatten(0, 1)")
    lines += call(
        f"chosen = router.{experts.router}(",
        ["tokens", "self.router.weight", *biased, *asked],
        indent=BODY,
    )
    axes = [f"{axis}=self.{axis}" for axis in structure.dealt]
    lines += call("y = visit(", ["tokens", "chosen", "self.experts", *axes], indent=BODY)
    return [*lines, f"return {'shared + ' if experts.shared else ''}y.view_as(x)"]
