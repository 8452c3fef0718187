"""The pieces of a layer in model.py: its feed-forward, and how it is joined with attention."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch import attention_code
from parlay.compiler.backends.torch.linears import BODY, column, linear, norm, recomputed, row
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, says
from parlay.compiler.spec.blocks import GATED

ACTIVATIONS: Final = {
    "swiglu": "F.silu({gate}) * {up}",
    "geglu": "F.gelu({gate}) * {up}",
    "geglu_tanh": 'F.gelu({gate}, approximate="tanh") * {up}',
    "quick_geglu": "activation.quick_geglu({gate}, {up})",
    "gelu": "F.gelu({up})",
    "gelu_tanh": 'F.gelu({up}, approximate="tanh")',
    "relu": "F.relu({up})",
    "relu2": "F.relu({up}).square()",
    "silu": "F.silu({up})",
}


def context(structure: Structure) -> dict[str, Any]:
    """What model.py.j2 prints of a layer."""
    model = structure.model
    rotates = model.position == "rope"
    partial = rotates and model.rope is not None and model.rope["partial"] != 1.0
    return {
        "rotates": rotates,
        "partial": partial,
        "stretched": structure.stretched,
        "banded": Code(structure.banded),
        "amplified": structure.amplified,
        "two_bases": structure.two_bases,
        "positions": Code("".join(f", {name}: Tensor" for name in structure.given)),
        "numbered": Code(", *, number: int" if structure.patterned else ""),
        "layer_numbered": Code(", *, number: int" if structure.numbered else ""),
        "plain_mlp": structure.plain_mlp,
        "mlp_says": Code(_mlp_says(structure)),
        "mlp_width": Code("" if structure.experts is None else ", *, ffn: int"),
        "of_attention": Code("plan: Plan, mesh: Mesh" if structure.meets else "plan: Plan"),
        "attention_says": Code(
            f"{structure.at('model.heads')} over {structure.at('model.kv_heads')}."
        ),
        "head_of": Code("(-1, self.head_dim)"),
        "joins": False,
        "attention_init": _codes(attention_code.init(structure)),
        "grouped": Code(attention_code.grouped(structure)),
        "attend": _codes(attention_code.written_out(structure)),
        "attended": Code(
            ", ".join(["q: Tensor, k: Tensor, v: Tensor", *attention_code.bias_given(structure)])
        ),
        "attention_forward": _codes(attention_code.forward(structure)),
        "mlp_init": _codes(_mlp_init(structure)),
        "mlp_forward": _codes(_mlp_forward(structure)),
        "mlp_out": _codes(_mlp_out(structure)),
        "mlp_inputs": Code(", ".join(f"{part}: Tensor" for part in inputs(structure))),
        "layer_says": Code(_layer_says(structure)),
        "layer_init": _codes(_layer_init(structure)),
        "layer_forward": _codes(_layer_forward(structure)),
    }


def _codes(lines: list[str]) -> list[Code]:
    return [Code(line) for line in lines]


# ── Feed-forward ──────────────────────────────────────────────────────────────


def _mlp_init(structure: Structure) -> list[str]:
    tp = structure.tp
    ffn = "m.ffn" if structure.experts is None else "ffn"
    width = f"{ffn} // self.tp.size" if tp else ffn
    return [
        "m, self.tp = plan.model, mesh.tp" if tp else "m = plan.model",
        *clamps(structure),
        *(
            line
            for part in inputs(structure)
            for line in linear(structure, part, "m.hidden", width, "mlp")
        ),
        *linear(structure, "down", width, "m.hidden", "mlp"),
    ]


def _mlp_says(structure: Structure) -> str:
    at, experts = structure.at, structure.experts
    widths = [at("model.ffn")] if structure.dense_layers else []
    if experts is not None and experts.shared:
        widths.append(at("model.experts.shared_ffn"))
    return says(", ".join([at("model.activation"), *widths]) + ".")


def _mlp_forward(structure: Structure) -> list[str]:
    model, parts = structure.model, inputs(structure)
    again = "activation" in structure.recomputed
    if not structure.tp:
        if again:
            made = ", ".join(f"self.{part}(x)" for part in parts)
            return [f"return {recomputed('self.out', made)}"]
        before, y = bent(structure, gate="self.gate(x)", up="self.up(x)")
        return [*before, f"return self.down({y})"]
    function = "gather_column" if structure.sp else "column"
    biased = "mlp" in model.bias
    arguments = column(structure, tuple(f"self.{part}" for part in parts), "x", biased=biased)
    lines = call(f"{', '.join(parts)} = {structure.linears}.{function}(", arguments, indent=BODY)
    if again:
        return [*lines, f"return {recomputed('self.out', ', '.join(parts))}"]
    before, y = bent(structure, gate="gate", up="up")
    return [*lines, *before, *row(structure, y, "down", biased=biased)]


def _mlp_out(structure: Structure) -> list[str]:
    """The body of `out`, which is computed again on its own; none where it is not."""
    if "activation" not in structure.recomputed:
        return []
    before, y = bent(structure, gate="gate", up="up")
    if structure.tp:
        return [*before, *row(structure, y, "down", biased="mlp" in structure.model.bias)]
    return [*before, f"return self.down({y})"]


def clamps(structure: Structure) -> list[str]:
    """What an activation is told."""
    told = {"clamp": structure.model.glu_clamp, "offset": structure.model.glu_offset}
    given = [name for name, value in told.items() if value]
    if not given:
        return []
    names, sizes = (", ".join(f"{at}{name}" for name in given) for at in ("self.", "m.glu_"))
    return [f"{names} = {sizes}"]


def bent(structure: Structure, *, gate: str, up: str) -> tuple[list[str], str]:
    """The activation of what linears make: lines before it, and an expression."""
    model = structure.model
    told = [name for name in ("clamp", "offset") if getattr(model, f"glu_{name}")]
    if not told:
        return [], ACTIVATIONS[model.activation].format(gate=gate, up=up)
    given = [gate, up, *(f"{name}=self.{name}" for name in told)]
    return call(f"y = activation.{model.activation}(", given, indent=BODY), "y"


def inputs(structure: Structure) -> tuple[str, ...]:
    """The linears that an MLP starts with."""
    return ("gate", "up") if structure.model.activation in GATED else ("up",)


# ── Layer ─────────────────────────────────────────────────────────────────────


def _layer_says(structure: Structure) -> str:
    model, at = structure.model, structure.at
    where = {"before": "before", "after": "after", "both": "before and after"}
    halves = "both halves at once" if model.parallel_blocks and model.shared_norm else "each half"
    return f"{at('model.norm')} {where[model.norm_placement]} {halves}."


def _layer_init(structure: Structure) -> list[str]:
    model = structure.model
    one = model.parallel_blocks and model.shared_norm
    made = norm(structure)
    lines = ["m = plan.model"]
    arguments = "plan, mesh" if structure.tp else "plan"
    numbered = ", number=number" if structure.patterned else ""
    for part in ("attention", "mlp"):
        if _before(structure) and not (one and part == "mlp"):
            lines.append(f"self.{part}_norm = {made}")
        if part == "mlp" and structure.experts is not None:
            lines += _mixture(structure, arguments)
        elif part == "mlp":
            lines.append(f"self.mlp = Mlp({arguments})")
        else:
            told = "plan, mesh" if structure.meets else "plan"
            lines.append(f"self.attention = Attention({told}{numbered})")
        if _after(structure):
            lines.append(f"self.{part}_post_norm = {made}")
    return lines


def _mixture(structure: Structure, arguments: str) -> list[str]:
    """Experts, where a layer has some, or the plain MLP."""
    mixture = f"Mixture({'plan, mesh' if structure.model_meets else 'plan'})"
    if not structure.both_kinds:
        return [f"self.mlp = {mixture}"]
    fields = [
        f"model.experts.{name}"
        for name, plain in (("dense_layers", 0), ("every", 1))
        if getattr(structure.experts, name) != plain
    ]
    return [
        f"# {', '.join(structure.at(field) for field in fields)}",
        "if holds(number, m.experts):",
        f"    self.mlp = {mixture}",
        "else:",
        f"    self.mlp = Mlp({arguments}, ffn=m.ffn)",
    ]


def _layer_forward(structure: Structure) -> list[str]:
    model = structure.model
    positions = "".join(f", {name}" for name in structure.given)

    def half(part: str, more: str = "") -> str:
        inner = f"self.{part}_norm(x)" if _before(structure) else "x"
        made = f"self.{part}({inner}{more})"
        if part in structure.recomputed and "norm" in structure.recomputed:
            made = recomputed(f"lambda x: self.{part}({inner})", "x")
        elif part in structure.recomputed:
            made = recomputed(f"self.{part}", inner)
        elif "norm" in structure.recomputed:
            made = f"renormed(self.{part}_norm, self.{part}, x{more})"
        return f"self.{part}_post_norm({made})" if _after(structure) else made

    if not model.parallel_blocks:
        return [f"x = x + {half('attention', positions)}", f"return x + {half('mlp')}"]
    if model.shared_norm:
        mlp = recomputed("self.mlp", "y") if "mlp" in structure.recomputed else "self.mlp(y)"
        return [
            "y = self.attention_norm(x)",
            f"return x + self.attention(y{positions}) + {mlp}",
        ]
    return [f"y = {half('attention', positions)}", f"return x + y + {half('mlp')}"]


def _before(structure: Structure) -> bool:
    return structure.model.norm_placement in ("before", "both")


def _after(structure: Structure) -> bool:
    return structure.model.norm_placement in ("after", "both")
