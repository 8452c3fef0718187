"""The pieces of model.py: what is cut and what is held alike, under this structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch import (
    attention_code,
    copied,
    latent,
    mixture,
    model_layer,
    model_stage,
)
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.spec.blocks import GATED


def context(structure: Structure) -> dict[str, Any]:
    """What model.py.j2 prints."""
    tp, pp, sp = structure.tp, structure.pp, structure.sp
    cuts = ["tp"] * tp + ["cp"] * bool(structure.context)
    imports = []
    pieces = ["activation"] if structure.model.activation == "quick_geglu" else []
    pieces += ["attention"] if attention_code.calls_attention(structure) else []
    pieces += ["context"] if structure.context else []
    if tp and structure.model.mla is not None:
        pieces += ["latent", "tensor"]
    elif tp:
        pieces += ["norm", "tensor"] if structure.model.qk_norm == "full" else ["tensor"]
    experts = structure.experts
    pieces = sorted([*pieces, "router"]) if experts is not None else pieces
    if tp and structure.adapted:
        pieces.append("adapters")
    if pieces:
        pieces.sort()
        imports.append(f"from parlay.runtime import {', '.join(pieces)}")
    if structure.adapted:
        imports.append("from parlay.runtime.adapters import Adapted")
    if late := _put_off(structure):
        imports.append(f"from parlay.runtime.deferred import {', '.join(late)}")
    if experts is not None:
        names = "Grouped, holds, visit" if structure.both_kinds else "Grouped, visit"
        imports.append(f"from parlay.runtime.experts import {names}")
    if structure.model_meets:
        imports.append("from parlay.runtime.mesh import Mesh")
    imports.append("from parlay.runtime.plan import Plan" + (", Section" if pp else ""))
    if not tp:
        imports.append("from parlay.runtime.precision import wide")
    stretch = [f"from parlay.runtime.stretch import {structure.banded}"] * bool(structure.banded)
    again = ["recompute"] if structure.recomputes or structure.recomputed - {"norm"} else []
    if "norm" in structure.recomputed:
        # An MLP that is computed again takes its norm along.
        again += ["renormed"]
    if again:
        imports.append(f"from parlay.runtime.recompute import {', '.join(again)}")
    imports += stretch
    found = {
        "model_is": Code("One stage of the model" if pp else "The model"),
        "cut_words": Code(f", cut over {' and '.join(cuts)}" if cuts else ""),
        "sequence_words": Code(
            "; between them a rank holds its piece of the sequence" if sp else ""
        ),
        # Angles, caps and weights without a module are made by `torch` itself.
        "uses_torch": structure.model.position == "rope"
        or structure.capped
        or structure.bias_alone
        or structure.steers
        or structure.model.sinks,
        "kernels": structure.train.attention == "math" and not structure.asks_attention,
        "model_imports": [Code(line) for line in imports],
        "cut": [(Code(f'"{name}"'), dim) for name, dim in cut(structure)],
        "named": [
            (*(Code(f"# {line}") for line in one.says), Code(f"{one.name} = {one.names}"))
            for one in copied.shares(structure)
        ],
        "cut_tokens": bool(structure.context),
        "stage_cp": model_stage.knows_cp(structure),
        "stage_inner": structure.alibi and structure.context == "ulysses_ring",
        "tokens": Code("[b, s/cp]" if structure.context else "[b, s]"),
        "labels": Code("" if structure.context else " [b, s]"),
        "shape": Code(f"[b, {_piece(structure)}, h]"),
        **model_layer.context(structure),
        **latent.context(structure),
        **model_stage.context(structure),
        **mixture.context(structure),
    }
    return _with_late_weights(found) if "Linear" in late else found


def _put_off(structure: Structure) -> list[str]:
    """What model.py takes from the runtime for linears whose weight gradients are put off.

    Over tp linears are functions of the runtime, which put them off by themselves; what is not cut
    is a module all the same.
    """
    if not structure.splits or (structure.tp and structure.model.mla is None):
        return []
    tied = structure.model.tied_embeddings and not structure.tp
    return ["Linear", "linear"] if tied else ["Linear"]


def _with_late_weights(printed: dict[str, Any]) -> dict[str, Any]:
    """The same lines, of the runtime's `Linear` in place of torch's."""
    return {
        name: [Code(line.replace("nn.Linear(", "Linear(")) for line in lines]
        if name.endswith("_init")
        else lines
        for name, lines in printed.items()
    }


def _piece(structure: Structure) -> str:
    """How much of a sequence a rank has between the linears."""
    cuts = structure.sequence_axes
    by = "·".join(cuts)
    return f"s/({by})" if len(cuts) > 1 else f"s/{by}" if cuts else "s"


def cut(structure: Structure) -> Iterator[tuple[str, int]]:
    """The ends of the names of all weights that tp cuts, and the dim that it cuts."""
    model = structure.model
    columns: dict[str, tuple[str, ...]] = {
        "qkv": ("q", "k", "v"),
        "mlp": ("gate", "up") if model.activation in GATED else ("up",),
    }
    yield "embedding.weight", 0
    for kind, row in (("qkv", "o"), ("mlp", "down")):
        if kind == "mlp" and not structure.plain_mlp:
            continue
        if kind == "qkv" and model.mla is not None:
            yield from latent.cut(structure, model.mla)
            columns[kind] = ()
        for name in columns[kind]:
            yield f"{name}.weight", 0
            if kind in model.bias:
                yield f"{name}.bias", 0
            if structure.adapted:
                yield f"{name}.lora_b", 0
        if kind == "qkv" and model.qk_norm == "full":
            yield "q_norm.weight", 0
            yield "k_norm.weight", 0
        yield f"{row}.weight", 1
        if structure.adapted:
            yield f"{row}.lora_a", 1
        if kind == "qkv" and model.sinks:
            yield "attention.sinks", 0
    if not model.tied_embeddings:
        yield "head.weight", 0
    if "head" in model.bias:
        yield "head.bias", 0
