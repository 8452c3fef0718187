"""The pieces of a layer in model.py: attention, feed-forward, and how they are joined."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, comment, says, tuple_of
from parlay.compiler.spec.blocks import GATED

BODY: Final = 8
"""Where the body of a method stands."""

ACTIVATIONS: Final = {
    "swiglu": "F.silu({gate}) * {up}",
    "geglu": "F.gelu({gate}) * {up}",
    "geglu_tanh": 'F.gelu({gate}, approximate="tanh") * {up}',
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
        "attention_init": _codes(_attention_init(structure)),
        "grouped": Code(grouped(structure)),
        "attend": _codes(_attend(structure)),
        "attended": Code(", ".join(["q: Tensor, k: Tensor, v: Tensor", *_bias_given(structure)])),
        "attention_forward": _codes(_attention_forward(structure)),
        "mlp_init": _codes(_mlp_init(structure)),
        "mlp_forward": _codes(_mlp_forward(structure)),
        "mlp_out": _codes(_mlp_out(structure)),
        "mlp_inputs": Code(", ".join(f"{part}: Tensor" for part in inputs(structure))),
        "layer_says": Code(_layer_says(structure)),
        "layer_init": _codes(_layer_init(structure)),
        "layer_forward": _codes(_layer_forward(structure)),
    }


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


def _codes(lines: list[str]) -> list[Code]:
    return [Code(line) for line in lines]


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


# ── Attention ─────────────────────────────────────────────────────────────────


def _attention_init(structure: Structure) -> list[str]:
    model, tp = structure.model, structure.tp
    share = " // self.tp.size" if tp else ""
    pairs = "m.head_dim" if structure.kv else f"m.kv_heads * m.head_dim{share}"
    lines = [
        "m, self.tp, self.head_dim = plan.model, mesh.tp, plan.model.head_dim"
        if tp
        else "m, self.head_dim = plan.model, plan.model.head_dim",
        *linear(structure, "q", "m.hidden", f"m.heads * m.head_dim{share}", "qkv"),
        *linear(structure, "k", "m.hidden", pairs, "qkv"),
        *linear(structure, "v", "m.hidden", pairs, "qkv"),
    ]
    if model.qk_norm == "per_head":
        lines += [f"self.{part}_norm = {norm(structure, 'm.head_dim')}" for part in "qk"]
    if model.qk_norm == "full":
        lines.append(f"self.q_norm = {norm(structure, f'm.heads * m.head_dim{share}')}")
        lines.append(f"self.k_norm = {norm(structure, pairs)}")
    lines += linear(structure, "o", f"m.heads * m.head_dim{share}", "m.hidden", "out")
    return [*lines, *core_init(structure, share)]


def calls_attention(structure: Structure) -> bool:
    """Whether model.py itself calls the runtime's attention."""
    through = structure.context in ("", "ulysses")
    return structure.alibi or (through and structure.asks_attention)


def core_init(structure: Structure, share: str) -> list[str]:
    """What scores are bent, hidden and joined by, and over which ranks."""
    at, lines = structure.at, []
    if structure.context == "ulysses_ring":
        lines.append("self.inner, self.outer = mesh.inner, mesh.outer")
    elif structure.context:
        lines.append("self.cp = mesh.cp")
    if structure.model.sinks:
        lines.append(f"self.sinks = nn.Parameter(torch.empty(m.heads{share}))")
    if structure.bent:
        lines.append("self.cap = m.attention_cap")
    if structure.patterned:
        says = f"{at('model.window')}: the last of so many layers sees everything."
        lines.append(comment(BODY, says))
        lines.append("sees_all = (number + 1) % m.window.every == 0")
        lines.append("self.window = None if sees_all else m.window.size")
    elif structure.windowed:
        lines.append("self.window = m.window.size")
    return lines


def _attention_forward(structure: Structure) -> list[str]:
    model = structure.model
    if structure.tp:
        function = "gather_column" if structure.sp else "column"
        arguments = column(
            structure, ("self.q", "self.k", "self.v"), "x", biased="qkv" in model.bias
        )
        lines = call(f"q, k, v = {structure.linears}.{function}(", arguments, indent=BODY)
        if model.qk_norm == "full":
            lines.append("q, k = norm.across((q, k), (self.q_norm, self.k_norm), axis=self.tp)")
        lines.append("q, k, v = self.split(q), self.split(k), self.split(v)")
    elif model.qk_norm == "full":
        lines = [
            "q, k, v = self.q_norm(self.q(x)), self.k_norm(self.k(x)), self.v(x)",
            "q, k, v = self.split(q), self.split(k), self.split(v)",
        ]
    else:
        lines = ["q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))"]
    if model.qk_norm == "per_head":
        lines.append("q, k = self.q_norm(q), self.k_norm(k)")
    if model.position == "rope":
        lines.append("q, k = rotate(q, cos, sin), rotate(k, cos, sin)")
    lines += attended(structure)
    joined = "y.transpose(1, 2).flatten(2)"
    if structure.tp:
        return [*lines, *row(structure, joined, "o", biased="out" in model.bias)]
    return [*lines, f"return self.o({joined})"]


def attended(structure: Structure) -> list[str]:
    """Attention of q, k and v as y; the kernel that `attend` chooses is chosen again with it."""
    if structure.context in ("ring", "allgather"):
        function = {"ring": "ring", "allgather": "gathered"}[structure.context]
        given = ["q", "k", "v", "axis=self.cp", *_asked(structure)]
        return call(f"y = context.{function}(", given, indent=BODY)
    arguments = ", ".join(["q, k, v", *(["slopes"] if structure.alibi else [])])
    if structure.train.attention == "flash":
        made = _core(structure, "attention.fused")
    elif "core_attention" in structure.recomputed:
        made = recomputed("self.attend", arguments)
    else:
        made = f"self.attend({arguments})"
    if not structure.context:
        return [f"y = {made}"]
    asked, axis = structure.at("parallel.cp_method"), "self.cp"
    says = f"{asked}: all tokens of a part of the heads."
    if structure.context == "ulysses_ring":
        axis, says = "self.inner, folded=True", f"{asked}: more tokens, of a part of the heads."
        given = ["q", "k", "v", "axis=self.outer", *_asked(structure)]
        made = "".join(call("context.ring(", given, indent=BODY))
    return [
        comment(BODY, says),
        f"q, k, v = context.to_heads(q, k, v, axis={axis})",
        f"y = {made}",
        f"y = context.to_sequence(y, axis={axis})",
    ]


def _core(structure: Structure, function: str) -> str:
    """Causal attention, by `function` of the runtime where more is asked of it."""
    if not structure.asks_attention:
        return f"F.scaled_dot_product_attention(q, k, v, is_causal=True{grouped(structure)})"
    return f"{function}(q, k, v, {', '.join(_asked(structure))})"


def _asked(structure: Structure) -> list[str]:
    """What attention is told beside q, k and v."""
    asked = ["window=self.window"] if structure.windowed else []
    asked += ["cap=self.cap"] if structure.bent else []
    asked += ["slopes=slopes"] if structure.alibi else []
    if structure.model.sinks:
        dealt = {"ulysses": "self.cp", "ulysses_ring": "self.inner"}.get(structure.context)
        own = f".chunk({dealt}.size)[{dealt}.rank]" if dealt else ""
        asked.append(f"sinks=self.sinks{own}")
    return asked


def _attend(structure: Structure) -> list[str]:
    """The body of `attend`, which writes attention out; none under a fused kernel."""
    if structure.train.attention == "flash":
        return []
    core = f"return {_core(structure, 'attention.unfused')}"
    if structure.asks_attention:
        return [core]
    return ["with sdpa_kernel(SDPBackend.MATH):", f"    {core}"]


def _bias_given(structure: Structure) -> list[str]:
    return ["slopes: Tensor"] if structure.alibi else []


def grouped(structure: Structure) -> str:
    """What attention is told where a key/value head serves several queries."""
    model = structure.model
    return ", enable_gqa=True" if model.kv_heads != model.heads else ""


# ── Feed-forward ──────────────────────────────────────────────────────────────


def _mlp_init(structure: Structure) -> list[str]:
    tp = structure.tp
    ffn = "m.ffn" if structure.experts is None else "ffn"
    width = f"{ffn} // self.tp.size" if tp else ffn
    return [
        "m, self.tp = plan.model, mesh.tp" if tp else "m = plan.model",
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
    bent = ACTIVATIONS[model.activation]
    again = "activation" in structure.recomputed
    if not structure.tp:
        if again:
            made = ", ".join(f"self.{part}(x)" for part in parts)
            return [f"return {recomputed('self.out', made)}"]
        return [f"return self.down({bent.format(gate='self.gate(x)', up='self.up(x)')})"]
    function = "gather_column" if structure.sp else "column"
    biased = "mlp" in model.bias
    arguments = column(structure, tuple(f"self.{part}" for part in parts), "x", biased=biased)
    lines = call(f"{', '.join(parts)} = {structure.linears}.{function}(", arguments, indent=BODY)
    if again:
        return [*lines, f"return {recomputed('self.out', ', '.join(parts))}"]
    return [*lines, *row(structure, bent.format(gate="gate", up="up"), "down", biased=biased)]


def _mlp_out(structure: Structure) -> list[str]:
    """The body of `out`, which is computed again on its own; none where it is not."""
    if "activation" not in structure.recomputed:
        return []
    bent = ACTIVATIONS[structure.model.activation].format(gate="gate", up="up")
    if structure.tp:
        return row(structure, bent, "down", biased="mlp" in structure.model.bias)
    return [f"return self.down({bent})"]


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
