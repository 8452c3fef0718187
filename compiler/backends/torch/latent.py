"""Multi-head latent attention in model.py: heads made of latents that every rank has whole."""

from __future__ import annotations

from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.attention_code import attended, core_init
from parlay.compiler.backends.torch.linears import BODY, column, linear, norm, row
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, comment, tuple_of
from parlay.compiler.spec.blocks import Mla


def context(structure: Structure) -> dict[str, Any]:
    """What differs from attention of the stream; nothing where keys and values are made of it."""
    mla = structure.model.mla
    if mla is None:
        return {}
    heads, rank = structure.at("model.heads"), structure.at("model.mla.kv_rank")
    return {
        "attention_says": Code(f"{heads}, of latents: {rank}."),
        "head_of": Code("(self.heads, -1)"),
        "joins": True,
        "attention_init": [Code(line) for line in _init(structure, mla)],
        "attention_forward": [Code(line) for line in _forward(structure, mla)],
    }


def cut(structure: Structure, mla: Mla) -> list[tuple[str, int]]:
    """The ends of the names of its weights that tp cuts, without those of `o`."""
    if mla.q_rank is not None:
        return [("q_up.weight", 0), ("kv_up.weight", 0)]
    biased = [("q.bias", 0)] if "qkv" in structure.model.bias else []
    return [("q.weight", 0), *biased, ("kv_up.weight", 0)]


def _init(structure: Structure, mla: Mla) -> list[str]:
    tp, share = structure.tp, " // self.tp.size" * structure.tp
    query = "self.heads * (mla.nope_dim + mla.rope_dim)"
    lines = [
        f"m, mla{', self.tp' * tp} = plan.model, plan.model.mla{', mesh.tp' * tp}",
        f"self.mla, self.heads = mla, m.heads{share}",
        *["self.score_factor = m.score_factor"] * structure.steepened,
    ]
    if mla.q_rank is None:
        lines += linear(structure, "q", "m.hidden", query, "qkv")
    else:
        lines += linear(structure, "q_down", "m.hidden", "mla.q_rank", "qkv")
        lines.append(f"self.q_norm = {norm(structure, 'mla.q_rank')}")
        lines += linear(structure, "q_up", "mla.q_rank", query, "")
    pair = "self.heads * (mla.nope_dim + mla.v_dim)"
    return [
        *lines,
        *linear(structure, "kv_down", "m.hidden", "mla.kv_rank + mla.rope_dim", "qkv"),
        f"self.kv_norm = {norm(structure, 'mla.kv_rank')}",
        *linear(structure, "kv_up", "mla.kv_rank", pair, ""),
        *linear(structure, "o", "self.heads * mla.v_dim", "m.hidden", "out"),
        *core_init(structure, share),
    ]


def _forward(structure: Structure, mla: Mla) -> list[str]:
    lines = [
        "mla = self.mla",
        "kv, turned = self.kv_down(x).split([mla.kv_rank, mla.rope_dim], dim=-1)",
        *(_over_tp(structure, mla) if structure.tp else _alone(mla)),
        "q, turning = self.split(q).split([mla.nope_dim, mla.rope_dim], dim=-1)",
        "k, v = self.split(kv).split([mla.nope_dim, mla.v_dim], dim=-1)",
        comment(BODY, "One rotated part serves the keys of all heads."),
        "turned = rotate(turned.unsqueeze(1), cos, sin).expand(-1, self.heads, -1, -1)",
        "q, k, v = self.join(q, rotate(turning, cos, sin)), self.join(k, turned), self.join(v)",
        *_steeper(structure),
        *attended(structure),
    ]
    joined = "y.transpose(1, 2).flatten(2)"
    if structure.tp:
        return [*lines, *row(structure, joined, "o", biased="out" in structure.model.bias)]
    return [*lines, f"return self.o({joined})"]


def _steeper(structure: Structure) -> list[str]:
    """Queries in the place of scores, which are sums over products of theirs."""
    if not structure.steepened:
        return []
    says = f"{structure.at('model.rope_scaling')}: scores grow with the factor."
    return [comment(BODY, says), "q = self.score_factor * q"]


def _alone(mla: Mla) -> list[str]:
    """Heads on the one rank that makes the latents."""
    query = "self.q(x)" if mla.q_rank is None else "self.q_up(self.q_norm(self.q_down(x)))"
    return [f"q, kv = {query}, self.kv_up(self.kv_norm(kv))"]


def _over_tp(structure: Structure, mla: Mla) -> list[str]:
    """Heads of one tp rank: latents travel together, and the stream where queries are of it."""
    lines, made, ups, names = [], ["self.kv_norm(kv)"], ["self.kv_up.weight"], "turned, kv"
    if mla.q_rank is None:
        function = "gather_column" if structure.sp else "column"
        biased = "qkv" in structure.model.bias
        arguments = column(structure, ("self.q",), "x", biased=biased)
        lines = call(f"q = tensor.{function}(", arguments, indent=BODY)
    else:
        made, ups = ["self.q_norm(self.q_down(x))", *made], ["self.q_up.weight", *ups]
        names = "turned, q, kv"
    function = "gather_expand" if structure.sp else "expand"
    arguments = [tuple_of(made), tuple_of(ups), "turned", "axis=self.tp"]
    return [*lines, *call(f"{names} = latent.{function}(", arguments, indent=BODY)]
