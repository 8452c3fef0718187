"""Attention in model.py: queries, keys and values of the stream, and what scores are told."""

from __future__ import annotations

from parlay.compiler.backends.torch.linears import BODY, column, linear, norm, recomputed, row
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, comment


def init(structure: Structure) -> list[str]:
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
        if structure.windowed:
            lines.append("self.window = None if sees_all else m.window.size")
        if structure.two_bases:
            lines.append("self.turns = 0 if sees_all else 1")
    elif structure.windowed:
        lines.append("self.window = m.window.size")
    return lines


def forward(structure: Structure) -> list[str]:
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
    if structure.two_bases:
        lines.append("cos, sin = cos[self.turns], sin[self.turns]")
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


def written_out(structure: Structure) -> list[str]:
    """The body of `attend`, which writes attention out; none under a fused kernel."""
    if structure.train.attention == "flash":
        return []
    core = f"return {_core(structure, 'attention.unfused')}"
    if structure.asks_attention:
        return [core]
    return ["with sdpa_kernel(SDPBackend.MATH):", f"    {core}"]


def bias_given(structure: Structure) -> list[str]:
    return ["slopes: Tensor"] if structure.alibi else []


def grouped(structure: Structure) -> str:
    """What attention is told where a key/value head serves several queries."""
    model = structure.model
    return ", enable_gqa=True" if model.kv_heads != model.heads else ""
