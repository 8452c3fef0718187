"""parlay_config.py: the model's parts and the sections, each choice made here."""

from __future__ import annotations

from importlib.metadata import version as version_of_package
from typing import Any

from parlay.compiler.backends.complete import steps_of
from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.render import Code, render
from parlay.compiler.backends.torchtitan.options import NEWEST
from parlay.compiler.backends.torchtitan.refusals import family_of
from parlay.compiler.backends.torchtitan.settings import lr_schedule, sections, stages
from parlay.compiler.layout import Layout
from parlay.compiler.ledger import held
from parlay.compiler.spec.blocks import Experts, Model
from parlay.compiler.spec.resolve import Phase

CLASSES = {
    "training": "TrainingConfig",
    "parallelism": "ParallelismConfig",
    "checkpoint": "CheckpointManager.Config",
    "metrics": "MetricsProcessor.Config",
    "compile": "CompileConfig",
    "debug": "DebugConfig",
    "comm": "CommConfig",
}


def config(phase: Phase, layout: Layout) -> str:
    """The text of parlay_config.py."""
    spec = phase.spec
    model, train, cluster = spec.model, spec.train, spec.cluster
    assert model is not None and train is not None and cluster is not None
    steps = steps_of(phase)
    assert steps is not None, "refused without an end"
    found = sections(phase)
    family = family_of(model)
    betas = train.optimizer["betas"]
    adam = {
        "lr": train.optimizer["lr"],
        "betas": (betas[0], betas[1]),
        "eps": train.optimizer["eps"],
    }
    context: dict[str, Any] = {
        "name": Code(file_name(phase.origins)),
        "parlay": Code(version_of_package("parlay")),
        "version": Code(NEWEST),
        "ranks": Code(f"{layout.world} rank{'s' * (layout.world > 1)}"),
        "machines": Code(f"{cluster.nodes} node{'s' * (cluster.nodes > 1)}"),
        "nodes": cluster.nodes,
        "gpus": cluster.node.gpus,
        "family": Code(family),
        "parallelize": Code({"llama3": "parallelize_llama", "qwen3": "parallelize_qwen3"}[family]),
        "title": Code({"llama3": "Llama3", "qwen3": "Qwen3"}[family]),
        "rope": Code({"llama3": "ComplexRoPE", "qwen3": "CosSinRoPE"}[family]),
        "model": model,
        "theta": float(model.rope["theta"]) if model.rope else 10000.0,
        "bands": model.rope_scaling,
        "context": model.context or train.seq,
        "rows": held.padded_vocab(spec),
        "qk_norm": Code(f"norm({model.head_dim})" if model.qk_norm == "per_head" else "None"),
        "imports": _imports(model, found, recompute=train.recompute.name == "full"),
        "layers": Code(_layers(model)),
        "experts": model.experts,
        "dense": not _every_layer(model),
        "mixtures": None if _every_layer(model) else _mixtures(model),
        "sections": [
            (Code(name), Code(CLASSES[name]), [(Code(k), literal(v)) for k, v in section.items()])
            for name, section in found.items()
        ],
        "stages": stages(layout) if spec.parallel.pp > 1 else [],
        "adam": [(Code(name), value) for name, value in adam.items()],
        "decay": train.optimizer["weight_decay"],
        "schedule": [
            (Code(name), literal(value)) for name, value in lr_schedule(train, steps).items()
        ],
        "recompute": Code("FullAC.Config()" if train.recompute.name == "full" else "None"),
        "path": literal(spec.data.path),
        "tokenizer": literal(spec.data.tokenizer),
        "hook": Code("None"),
        **(_experts(model.experts) if model.experts else {}),
    }
    return render("torchtitan/parlay_config.py.j2", context)


def _experts(experts: Experts) -> dict[str, Any]:
    """The router and the widths of the experts."""
    groups = experts.groups if experts.groups > 1 else None
    return {
        "shared_width": experts.shared * experts.shared_ffn,
        "router": literal(experts.router),
        "groups": groups,
        "top_groups": experts.top_groups if groups else None,
        "balance": 1e-3 if experts.router_bias else None,
        "hook": Code("register_moe_load_balancing_hook" if experts.router_bias else "None"),
    }


def _mixtures(model: Model) -> Code | None:
    """The layers that have experts, as a range; None for a dense model."""
    if model.experts is None:
        return None
    first, every = model.experts.dense_layers, model.experts.every
    step = f", {every}" if every > 1 else ""
    return Code(f"range({first + every - 1}, {model.layers}{step})")


def literal(value: Any) -> Any:
    """A string as a formatter prints it, in double quotes; anything else as it is."""
    if not isinstance(value, str) or isinstance(value, Code):
        return value
    text = repr(value)
    if text[0] == '"' or '"' in value:
        return Code(text)
    return Code('"' + text[1:-1].replace("\\'", "'") + '"')


def _every_layer(model: Model) -> bool:
    """Whether every layer has experts."""
    return model.experts is not None and model.experts.layers_before(model.layers) == model.layers


def _layers(model: Model) -> str:
    if model.experts is None:
        return f"[dense() for _ in range({model.layers})]"
    if _every_layer(model):
        return f"[mixture() for _ in range({model.layers})]"
    return f"[mixture() if layer in MIXTURES else dense() for layer in range({model.layers})]"


def _imports(model: Model, found: dict[str, Any], *, recompute: bool) -> list[Code]:
    """The imports that differ, in their order."""
    optimizer = ["LRSchedulersContainer", "OptimizersContainer", "ParamGroupConfig"]
    if model.experts is not None and model.experts.router_bias:
        optimizer.append("register_moe_load_balancing_hook")
    classes = [name for name in CLASSES.values() if name.endswith("Config") and "." not in name]
    used = sorted({CLASSES[section] for section in found} & set(classes))
    makers = ["get_attention_config", "make_ffn_config", "make_gqa_config"]
    if model.experts is not None:
        makers += ["make_moe_config", "make_routed_experts_config", "make_router_config"]
        if _every_layer(model) and not model.experts.shared:
            makers.remove("make_ffn_config")
    lines = [
        *_line("torchtitan.components.optimizer", optimizer),
        *_line("torchtitan.config.configs", used),
    ]
    if recompute:
        lines += _line("torchtitan.distributed.activation_checkpoint", ["FullAC"])
    lines += _line("torchtitan.distributed.pipeline_parallel", ["pipeline_llm"])
    lines += _line("torchtitan.hf_datasets.text_datasets", ["HuggingFaceTextDataLoader"])
    rope = "ComplexRoPE" if family_of(model) == "llama3" else "CosSinRoPE"
    lines += _line("torchtitan.models.common", [rope, "Embedding", "Linear", "RMSNorm"])
    lines += _line("torchtitan.models.common.config_utils", makers)
    return [Code(line) for line in lines]


def _line(module: str, names: list[str]) -> list[str]:
    """One import as a formatter lays it out."""
    flat = f"from {module} import {', '.join(names)}"
    if len(flat) <= 100:
        return [flat]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]
