"""The folder that a proof runs in: the emitted code as it stands, a small plan, the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from parlay.compiler.backends.torch import dump
from parlay.compiler.backends.torch.plan import (
    LOSS_SCALE,
    expert_axes,
    mesh_axes,
    plan_of,
    replicates,
    rings_outside,
)
from parlay.compiler.backends.torch.shrink import folded, shrink
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.adapters import adapters, rank_of
from parlay.compiler.ledger.communication_context import dealt
from parlay.compiler.ledger.held import held_by, padded_vocab, table_of
from parlay.compiler.spec.blocks import Model, Spec, Train
from parlay.compiler.spec.resolve import Phase

VOCABULARY: Final = ("embedding.weight", "head.weight", "head.bias")
"""Weights with a row for each token, and rows of padding."""


def proofs(phase: Phase, layout: Layout) -> Iterator[dict[str, str]]:
    """For each folded run its files: code/plan.json, weights.json and reference.json."""
    for degrees in folded(phase.spec):
        spec = shrink(phase.spec, layout.stages, degrees)
        small = lay_out(spec)
        plan = plan_of(
            replace(phase, spec=spec),
            small,
            axes=mesh_axes(phase),
            of_experts=expert_axes(phase, layout),
        )
        if replicates(phase.spec):
            plan["shard"] = spec.parallel.shard
        if rings_outside(phase.spec):
            plan["cp_inner"] = dealt(spec.parallel)
        assert phase.spec.train is not None
        if phase.spec.train.precision == "fp16":  # the code scales, in float64 too
            plan["loss_scale"] = LOSS_SCALE
        plan["data"].pop("validation", None)  # the few samples of a proof are all trained on
        plan["data"].pop("tokenizer", None)
        plan["data"] |= {"format": "tokens", "path": "../tokens.bin"}
        yield {
            "code/plan.json": dump(plan),
            "weights.json": json.dumps(list(_weights(spec, small))),
            "reference.json": json.dumps(_reference(spec, plan)),
        }


def _weights(spec: Spec, layout: Layout) -> Iterator[dict[str, Any]]:
    """Every weight on every stage: its whole, unpadded shape and the dim that is cut over tp."""
    assert spec.model is not None
    table, padding = table_of(spec), padded_vocab(spec) - spec.model.vocab
    rank = rank_of(spec)
    for chunk in layout.stages:
        held = list(held_by(spec, table, chunk))
        if rank is not None:
            held += adapters([weight for weight in held if weight.layer is not None], rank)
        for weight in held:
            if weight.expert:
                assert weight.cut is not None
                yield {
                    "name": weight.name,
                    "shape": [weight.count, *weight.shape],
                    "tp_dim": None,
                    "stage": chunk.stage,
                    "padded_rows": 0,
                    "expert_dim": weight.cut + 1,
                }
                continue
            padded = padding if weight.name in VOCABULARY else 0
            shape = [weight.shape[0] - padded, *weight.shape[1:]]
            yield {
                "name": weight.name,
                "shape": shape,
                "tp_dim": weight.cut,
                "stage": chunk.stage,
                "padded_rows": padded,
                "tp_copies": weight.copies(tp=spec.parallel.tp),
            }


def _reference(spec: Spec, plan: dict[str, Any]) -> dict[str, Any]:
    model = spec.model
    assert model is not None and spec.train is not None
    sizes = plan["model"]
    if model.experts is not None:
        routing = ("router", "router_bias", "normalize", "shared_gate")
        said = {name: getattr(model.experts, name) for name in routing}
        sizes = {**sizes, "experts": {**sizes["experts"], **said}}
    return {
        "model": {**sizes, **_structure(model), **_adapters(spec.train)},
        "batch": plan["batch"],
        "optimizer": {"name": spec.train.optimizer.name, **plan["optimizer"]},
        "lr_schedule": {"name": spec.train.lr_schedule.name, **plan["lr_schedule"]},
        "clip": plan["clip"],
        "init": plan["init"],
        "seed": plan["seed"],
        "steps": plan["steps"],
    }


def _adapters(train: Train) -> dict[str, Any]:
    lora = train.lora
    return {} if lora is None else {"lora_rank": lora["rank"], "lora_alpha": lora["alpha"]}


def _bands(model: Model) -> dict[str, Any] | None:
    """How wave lengths are stretched apart, as the file says it."""
    asked = model.rope_scaling
    if asked is None or model.position != "rope":
        return None
    return {"name": asked.name, **asked.options}


def _structure(model: Model) -> dict[str, Any]:
    """What the plain model is built by; sizes stand in the plan."""
    rope, window, softcap = model.rope, model.window, model.softcap
    return {
        "norm": model.norm,
        "norm_bias": model.norm_bias,
        "activation": model.activation,
        "glu_clamp": model.glu_clamp,
        "glu_offset": model.glu_offset,
        "norm_placement": model.norm_placement,
        "embedding_norm": model.embedding_norm,
        "final_norm": model.final_norm,
        "parallel_blocks": model.parallel_blocks,
        "shared_norm": model.shared_norm,
        "qk_norm": model.qk_norm,
        "mla": None if model.mla is None else asdict(model.mla),
        "position": model.position,
        "rope_partial": rope["partial"] if rope else 1.0,
        "rope_scaling": rope["scaling"] if rope else 1.0,
        "rope_theta": rope["theta"] if rope else 10000.0,
        "rope_bands": _bands(model),
        "sinks": model.sinks,
        "softcap_attention": softcap["attention"] if softcap else 0.0,
        "softcap_logits": softcap["logits"] if softcap else 0.0,
        "window_size": window["size"] if window else 0,
        "window_every": window["every"] if window else 1,
        "window_theta": model.window_theta,
        "bias": list(model.bias),
        "tied_embeddings": model.tied_embeddings,
        "context": model.context,
        "parameters": parameters.total(model),
    }
