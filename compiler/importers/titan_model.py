"""The model of a torchtitan configuration: a flavour of its registry, or parts built by hand."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.python_calls import Called, Module, shown
from parlay.compiler.importers.titan_config import Given, flavour_of
from parlay.compiler.importers.written import Draft, number, string, switch, variant

FLAVOURS: Final[dict[str, dict[str, str]]] = {
    "llama3": {
        "1B": "llama3.2-1b",
        "3B": "llama3.2-3b",
        "8B": "llama3-8b",
        "70B": "llama3-70b",
        "405B": "llama3.1-405b",
    },
    "qwen3": {
        "0.6B": "qwen3-0.6b",
        "8B": "qwen3-8b",
        "32B": "qwen3-32b",
        "30B-A3B": "qwen3-30b-a3b",
        "235B-A22B": "qwen3-235b-a22b",
    },
    "deepseek_v3": {"16B": "deepseek-v2-lite", "236B": "deepseek-v2", "671B": "deepseek-v3"},
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
    "llama4": {"17bx16e": "llama4-scout", "17bx128e": "llama4-maverick"},
}
"""Family -> flavour of its model registry -> preset of the catalog."""

OF_CODE: Final = ("attn_backend", "moe_comm_backend")
"""Arguments of a registry that choose kernels, and say nothing of the model."""


def model(given: Given, draft: Draft) -> None:
    """Writes the model; raises `Unreadable` where neither way gives one."""
    calls = {call.name: call for call in given.module.calls()}
    if "make_gqa_config" in calls:
        _built(given.module, calls, draft)
        return
    flavour = flavour_of(given)
    family = _family(given, flavour)
    if family is None:
        known = "; ".join(f"{name}: {', '.join(each)}" for name, each in FLAVOURS.items())
        raise Unreadable(f"its model is none that is known: {flavour!r}; known are {known}")
    preset = FLAVOURS[family][flavour]
    if not any(_plain(family) in _plain(hint) for hint in given.hints):
        draft.assumed.append(f'model from "{preset}", by its flavour {flavour} alone')
    draft.heads["model"] = f"model from {string(preset)}"
    for name, value in given.registry.keywords.items() if given.registry else ():
        if name not in ("flavor", *OF_CODE):
            draft.lost.append(f"{name} of the model = {shown(value)}")


def _family(given: Given, flavour: Any) -> str | None:
    """The family whose registry has the flavour: the one that is named, else the only one."""
    for hint in given.hints:
        named = [family for family in FLAVOURS if hint.rpartition(".")[2] == family]
        if named:
            return named[0] if flavour in FLAVOURS[named[0]] else None
    having = [family for family, flavours in FLAVOURS.items() if flavour in flavours]
    for hint in given.hints:
        named = [family for family in having if _plain(family) in _plain(hint)]
        if named:
            return named[0]
    return having[0] if having else None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


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
    _stretched(turned, draft)
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


BANDS: Final = {
    "factor": ("scaling_factor", 8.0),
    "low_freq": ("low_freq_factor", 1.0),
    "high_freq": ("high_freq_factor", 4.0),
    "original": ("original_max_position_embeddings", 8192),
}
"""Options of `llama3`, and what torchtitan calls them and takes where they are absent."""


def _stretched(turned: dict[str, Any], draft: Draft) -> None:
    scaling = turned.get("scaling", "none")
    if scaling == "llama":
        sizes = {name: turned.get(theirs, usual) for name, (theirs, usual) in BANDS.items()}
        if all(isinstance(size, int | float) for size in sizes.values()):
            written = {name: number(float(size)) for name, size in sizes.items()}
            draft.set("model.rope_scaling", variant("llama3", **written))
            return
    if scaling != "none":
        draft.lost.append(f"rope: scaling = {scaling!r}, which stretches rotary positions")


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
    if router.get("route_norm") is False:
        found["normalize"] = "off"
    if router.get("route_scale", 1.0) != 1:
        found["scale"] = str(router["route_scale"])
    if _whole(router.get("num_expert_groups")):
        found["groups"] = str(router["num_expert_groups"])
        found["top_groups"] = str(router.get("num_limited_groups"))
    if calls["make_moe_config"].keywords.get("load_balance_coeff", 1e-3) is not None:
        found["router_bias"] = "on"
    for name, text in found.items():
        draft.set(f"model.experts.{name}", text)
