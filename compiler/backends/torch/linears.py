"""The linears and norms that sublayers of model.py are made of, and how they are called."""

from __future__ import annotations

from typing import Final

from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, tuple_of

BODY: Final = 8
"""Where the body of a method stands."""


def norm(structure: Structure, width: str = "m.hidden") -> str:
    """A norm of `width` features."""
    model = structure.model
    if model.norm == "rmsnorm":
        return f"nn.RMSNorm({width}, eps=m.norm_eps)"
    bias = "" if model.norm_bias else ", bias=False"
    return f"nn.LayerNorm({width}, eps=m.norm_eps{bias})"


def column(structure: Structure, names: tuple[str, ...], x: str, *, biased: bool) -> list[str]:
    """The arguments of a linear of these modules that is cut by outputs."""
    weights = names if structure.adapted else tuple(f"{name}.weight" for name in names)
    arguments = [x, *weights]
    if biased:
        arguments.append(f"biases={tuple_of([f'{name}.bias' for name in names])}")
    return [*arguments, "axis=self.tp"]


def recomputed(function: str, arguments: str) -> str:
    """A call of which nothing is kept but its arguments: it runs again in the backward."""
    return f"recompute({function}, {arguments})"


def bias_argument(structure: Structure, kind: str) -> str:
    """What a linear of this kind is told where it has no bias."""
    return "" if kind in structure.model.bias else ", bias=False"


def linear(structure: Structure, name: str, inputs: str, outputs: str, kind: str) -> list[str]:
    """One projection of a layer, with its adapter where one is trained."""
    arguments = [inputs, outputs, *(["bias=False"] if kind not in structure.model.bias else [])]
    made = "Adapted" if structure.adapted else "nn.Linear"
    arguments += ["lora=plan.lora"] if structure.adapted else []
    return call(f"self.{name} = {made}(", arguments, indent=BODY)


def row(structure: Structure, x: str, name: str, *, biased: bool) -> list[str]:
    """The end of a sublayer that is cut by inputs; the bias is added once, to the sum."""
    weight = f"self.{name}" if structure.adapted else f"self.{name}.weight"
    arguments = [x, weight, "axis=self.tp"]
    function = f"{structure.linears}.{'row_scatter' if structure.sp else 'row'}"
    if not biased:
        return call(f"return {function}(", arguments, indent=BODY)
    return [
        *call(f"y = {function}(", arguments, indent=BODY),
        f"return y + self.{name}.bias",
    ]
