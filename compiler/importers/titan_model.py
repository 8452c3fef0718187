"""The model of a torchtitan configuration: a flavour of its registry, or parts built by hand."""

from __future__ import annotations

import ast
from typing import Any, Final

from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.python_calls import Called, Module
from parlay.compiler.importers.written import Draft, number, string, switch, variant

FLAVOURS: Final = {
    "1B": "llama3.2-1b",
    "3B": "llama3.2-3b",
    "8B": "llama3-8b",
    "70B": "llama3-70b",
    "405B": "llama3.1-405b",
    "0.6B": "qwen3-0.6b",
    "32B": "qwen3-32b",
    "30B-A3B": "qwen3-30b-a3b",
    "235B-A22B": "qwen3-235b-a22b",
    "671B": "deepseek-v3",
    "16B": "deepseek-v2-lite",
}
"""Flavours of its model registries -> presets of the catalog."""


def known(module: Module, function: ast.FunctionDef) -> bool:
    """Whether a function names a flavour of the registry that the catalog has."""
    return _flavour(module, function) in FLAVOURS


def _flavour(module: Module, function: ast.FunctionDef) -> Any:
    found = [call for call in module.calls(function) if call.name == "model_registry"]
    return found[0].arguments[0] if found and found[0].arguments else None


def model(module: Module, function: ast.FunctionDef, draft: Draft) -> None:
    """Writes the model; raises `Unreadable` where neither way gives one."""
    calls = {call.name: call for call in module.calls()}
    if "make_gqa_config" in calls:
        _built(module, calls, draft)
        return
    flavour = _flavour(module, function)
    if flavour not in FLAVOURS:
        known = ", ".join(FLAVOURS)
        raise Unreadable(f"its model is none that is known: {flavour!r}; known are {known}")
    draft.heads["model"] = f"model from {string(FLAVOURS[flavour])}"


def _built(module: Module, calls: dict[str, Called], draft: Draft) -> None:
    attention = calls["make_gqa_config"].keywords
    table = calls["Embedding.Config"].keywords if "Embedding.Config" in calls else {}
    layers, mixture = _layers(module)
    hidden, heads = _whole(attention.get("dim")), _whole(attention.get("n_heads"))
    vocab = _whole(table.get("num_embeddings"))
    if None in (hidden, heads, layers, vocab):
        raise Unreadable("the sizes of its model are no plain numbers")
    fields: dict[str, int | None] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _whole(attention.get("n_kv_heads")) or heads,
        "head_dim": _whole(attention.get("head_dim")),
    }
    widths = [c.keywords.get("hidden_dim") for c in module.calls() if c.name == "make_ffn_config"]
    dense = [width for width in widths if _whole(width)]
    experts = calls.get("make_moe_config")
    all_mixed = experts is not None and mixture is None
    routed = calls["make_routed_experts_config"].keywords if experts else {}
    fields["ffn"] = _whole(routed.get("hidden_dim")) if all_mixed else _whole(dense[0])
    fields["vocab"] = vocab
    rope = attention.get("rope")
    turned = rope.keywords if isinstance(rope, Called) else {}
    fields["context"] = _whole(turned.get("max_seq_len"))
    for name, size in fields.items():
        if size is not None:
            draft.set(f"model.{name}", str(size))
    theta = turned.get("theta", 10000.0)
    draft.set("model.@rope", variant("rope", theta=number(float(theta))))
    if isinstance(attention.get("qk_norm"), Called):
        draft.set("model.qk_norm", "per_head")
    norms = calls.get("RMSNorm.Config")
    if norms is not None and isinstance(norms.keywords.get("eps"), float):
        draft.set("model.norm_eps", number(norms.keywords["eps"]))
    tied = any(call.keywords.get("enable_weight_tying") is True for call in calls.values())
    draft.set("model.tied_embeddings", switch(tied))
    weights = calls.get("partial")
    spread = weights.keywords.get("std") if weights else None
    if isinstance(spread, float):
        draft.set("model.init_std", number(spread))
    if experts is not None:
        _experts(draft, calls, mixture, dense[0 if all_mixed else 1 :])


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _layers(module: Module) -> tuple[int | None, range | None]:
    """The number of layers, and which have experts where some have not."""
    numbers: list[Any] = []
    mixture: range | None = None
    for call in module.calls():
        if call.name != "range" or not all(isinstance(a, int) for a in call.arguments):
            continue
        if len(call.arguments) == 1:
            numbers.append(call.arguments[0])
        else:
            mixture = range(*call.arguments)
    return (max(numbers), mixture) if numbers else (None, mixture)


def _experts(
    draft: Draft, calls: dict[str, Called], mixture: range | None, shared: list[Any]
) -> None:
    router = calls["make_router_config"].keywords
    routed = calls["make_routed_experts_config"].keywords
    found = {
        "count": str(routed.get("num_experts")),
        "top_k": str(routed.get("top_k")),
        "ffn": str(routed.get("hidden_dim")),
        "router": "softmax" if router.get("score_func") == "softmax" else "sigmoid",
    }
    if shared and _whole(shared[0]):
        found |= {"shared": "1", "shared_ffn": str(shared[0])}
    if mixture is not None:
        first = mixture.start - mixture.step + 1
        found |= {"dense_layers": str(first)} if first > 0 else {}
        found |= {"every": str(mixture.step)} if mixture.step > 1 else {}
    if _whole(router.get("num_expert_groups")):
        found["groups"] = str(router["num_expert_groups"])
        found["top_groups"] = str(router.get("num_limited_groups"))
    if calls["make_moe_config"].keywords.get("load_balance_coeff", 1e-3) is not None:
        found["router_bias"] = "on"
    for name, text in found.items():
        draft.set(f"model.experts.{name}", text)
