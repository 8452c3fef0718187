"""The sections of a torchtitan configuration to the blocks around model and layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from parlay.compiler.importers.python_calls import Called, Module, Unread, shown
from parlay.compiler.importers.written import Draft, in_range, listing, number, string, variant

Sections = dict[str, dict[str, Any]]


def whole(found: dict[str, Any], name: str, default: int) -> int:
    """A positive whole number of a section, taken; `default` where there is none."""
    given = found.pop(name, default)
    return given if isinstance(given, int) and not isinstance(given, bool) else default


def recipe(
    module: Module, config: Called, draft: Draft, found: Sections, degrees: Mapping[str, int]
) -> None:
    training = found["training"]
    local = whole(training, "local_batch_size", 8)
    piece = whole(found["parallelism"], "pipeline_parallel_microbatch_size", 1)
    micro = piece if degrees["pp"] > 1 else local
    batch = whole(training, "global_batch_size", -1)
    draft.set("train.seq", str(whole(training, "seq_len", 2048)))
    draft.set("train.micro_batch", str(micro))
    draft.set("train.global_batch", str(batch if batch > 0 else local * degrees["dp"]))
    steps = whole(training, "steps", 10000)
    draft.set("train.steps", str(steps))
    half = training.pop("mixed_precision_param", "bfloat16") == "bfloat16"
    dtype = training.pop("dtype", "float32")
    draft.set("train.precision", "bf16" if half or dtype == "bfloat16" else "fp32")
    reduced = training.pop("mixed_precision_reduce", "float32")
    if dtype == "bfloat16":
        # Weights, what is kept of their gradients and their moments have one dtype.
        draft.set("train.master", "none")
        draft.set("train.gradients", "bf16")
        if reduced != "bfloat16":
            draft.assumed.append(f"gradients = bf16: sent as {reduced}, kept as the weights are")
    elif reduced != "float32":
        draft.lost.append(f"training.mixed_precision_reduce = {reduced}: fp32 is written")
    training.pop("disable_cuda_graphs", None)
    norm = training.pop("max_norm", 1.0)
    off = isinstance(norm, Called) and norm.arguments == ["inf"]
    draft.set("train.clip", "0" if off else number(norm) if is_number(norm) else "1")
    if training.pop("enable_cpu_offload", False) is True:
        draft.set("parallel.offload", "cpu(optimizer, params)")
    again = config.keywords.get("activation_checkpoint", Called("SelectiveAC.Config", {}, 0))
    if isinstance(again, Called):
        mode = again.keywords.get("mode")
        if again.name == "FullAC.Config" or mode == "full":
            draft.set("train.recompute", "full")
        elif mode != "none":
            draft.lost.append(f"{again.name}: no recomputation is written")
    rate = _optimizer(module, config, draft)
    _schedule(config, draft, steps, rate)
    if found["compile"].pop("enable", False) is True:
        draft.set("train.compile", "on")
    seed = found["debug"].pop("seed", None)
    if isinstance(seed, int):
        draft.set("train.seed", str(seed))


def is_number(given: Any) -> TypeGuard[float]:
    plain = isinstance(given, int | float) and not isinstance(given, bool)
    return plain and given >= 0 and in_range(given)


def _optimizer(module: Module, config: Called, draft: Draft) -> float:
    usual: dict[str, Any] = {"lr": 8e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    options = dict(usual)
    given = config.keywords.get("optimizer")
    if isinstance(given, Called) and given.name == "default_adamw":
        options |= {name: v for name, v in given.keywords.items() if name in options}
        further = {n: v for n, v in given.keywords.items() if n not in options}
        draft.lost += [f"optimizer.{name} = {shown(v)}" for name, v in further.items()]
        options |= dict(zip(("lr",), given.arguments, strict=False))
    elif isinstance(given, Called):
        options |= _spelled(given, draft)
    for call in module.calls():
        kwargs = call.keywords.get("optimizer_kwargs")
        if call.name == "ParamGroupConfig" and isinstance(kwargs, dict):
            options |= {name: v for name, v in kwargs.items() if not isinstance(v, Unread)}
        if call.name == "adamw" and call.arguments[:1] == [".*"]:
            options["weight_decay"] = call.arguments[1]
    for name, value in options.items():
        pair = isinstance(value, list) and len(value) == 2 and all(map(is_number, value))
        if name not in usual or not (pair if name == "betas" else is_number(value)):
            draft.lost.append(f"optimizer.{name} = {shown(value)}")
            options[name] = usual.get(name)
    texts = {
        name: listing(map(number, v)) if isinstance(v, list) else number(v)
        for name, v in options.items()
        if v is not None
    }
    if draft.blocks["train"].get("master") == "none":
        texts["states"] = "bf16"
    draft.set("train.optimizer", variant("adamw", **texts))
    return float(options["lr"])


def _spelled(given: Called, draft: Draft) -> dict[str, Any]:
    """The options of an optimizer whose numbers stand in its own call."""
    names = {"lr": "lr", "eps": "eps", "weight_decay": "weight_decay"}
    found = {names[n]: value for n, value in given.keywords.items() if n in names}
    betas = [given.keywords.get(name) for name in ("beta1", "beta2")]
    if all(map(is_number, betas)):
        found["betas"] = betas
    kind = given.keywords.get("name", "AdamW")
    if kind != "AdamW":
        draft.lost.append(f"optimizer.name {kind}: adamw is written")
    taken = {*names, "beta1", "beta2", "name", "param_groups"}
    draft.lost += [
        f"optimizer.{name} = {shown(v)}" for name, v in given.keywords.items() if name not in taken
    ]
    return found


def _schedule(config: Called, draft: Draft, steps: int, rate: float) -> None:
    given = config.keywords.get("lr_scheduler")
    found = dict(given.keywords) if isinstance(given, Called) else {}
    warmup, ratio = whole(found, "warmup_steps", 200), found.get("decay_ratio")
    least = found.get("min_lr_factor", 0.0)
    shape = found.get("decay_type", "linear")
    options = {"warmup": str(warmup)}
    end = float(f"{least * rate:.12g}") if is_number(least) else 0.0
    floor = number(end if in_range(end) else 0)
    if ratio == 0:
        draft.set("train.lr_schedule", variant("constant", **options))
    elif is_number(ratio) and warmup + round(steps * ratio) < steps:
        decay = str(round(steps * ratio))
        draft.set("train.lr_schedule", variant("wsd", **options, decay=decay, min_lr=floor))
        if shape != "linear":
            draft.lost.append(f"decay_type {shape}: the shape of the decay at the end")
    else:
        name = shape if shape in ("linear", "cosine") else "linear"
        if shape != name:
            draft.lost.append(f"decay_type {shape}: linear is written")
        draft.set("train.lr_schedule", variant(name, **options, min_lr=floor))


def services(config: Called, draft: Draft, found: Sections) -> None:
    loader = config.keywords.get("dataloader")
    fields = loader.keywords if isinstance(loader, Called) else {}
    data, assets = fields.get("dataset_path"), config.keywords.get("hf_assets_path")
    if isinstance(data, str):
        draft.set("data.path", string(data))
    else:
        draft.assumed.append(f"data.path: the dataset {fields.get('dataset', 'c4_test')}")
        draft.set("data.path", string(str(fields.get("dataset", "c4_test"))))
    if isinstance(assets, str):
        draft.set("data.tokenizer", string(assets))
    saved = found["checkpoint"]
    if saved.pop("enable", False) is True:
        draft.set("checkpoint.path", string(str(saved.pop("folder", "checkpoint"))))
        draft.set("checkpoint.every", str(whole(saved, "interval", 500)))
        keep = whole(saved, "keep_latest_k", 10)
        if keep > 0:
            draft.set("checkpoint.keep", str(keep))
        if saved.pop("async_mode", "disabled") != "disabled":
            draft.set("checkpoint.async", "on")
    if saved.pop("last_save_model_only", False) is True:
        draft.lost.append("checkpoint.last_save_model_only = True: the last save is a whole one")
    draft.set("log.every", str(whole(found["metrics"], "log_freq", 10)))
    if found["metrics"].pop("enable_tensorboard", False) is True:
        draft.set("log.tensorboard", "on")
