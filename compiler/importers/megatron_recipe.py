"""Arguments of Megatron-LM to the blocks `train`, `data`, `checkpoint` and `log`."""

from __future__ import annotations

from typing import Final

from parlay.compiler.importers.arguments import Arguments
from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.written import (
    Draft,
    in_range,
    listing,
    number,
    string,
    switch,
    value,
    variant,
)

MODULES: Final = {
    "core_attn": "core_attention",
    "mlp": "mlp",
    "layernorm": "norm",
    "moe": "experts",
    "moe_act": "activation",
}


def recipe(given: Arguments, draft: Draft, *, seq: int, replicas: int) -> None:
    """Writes the recipe, with the framework's defaults where an option is absent."""
    micro = given.whole("--micro-batch-size")
    if micro is None:
        raise Unreadable("--micro-batch-size is not given as a number")
    batch = given.whole("--global-batch-size") or micro * replicas
    draft.set("train.seq", str(seq))
    draft.set("train.micro_batch", str(micro))
    draft.set("train.global_batch", str(batch))
    steps = _steps(given, draft, batch)
    _numbers(given, draft)
    _optimizer(given, draft)
    _learning_rate(given, draft, steps, batch)
    draft.set("train.clip", number(given.real("--clip-grad", 1.0)))
    _recompute(given, draft)
    draft.set("train.seed", str(given.whole("--seed", 1234)))
    backend = given.text("--attention-backend")
    if given.has("--use-flash-attn") and backend is None:
        backend = "flash"
    if backend == "unfused":
        draft.set("train.attention", "math")
    elif backend != "flash":
        _option(draft, "attention_backend", value(backend or "auto"))


def _option(draft: Draft, name: str, text: str) -> None:
    draft.set(f"target megatron.options.{name}", text)


def _steps(given: Arguments, draft: Draft, batch: int) -> int:
    steps, samples = given.whole("--train-iters"), given.whole("--train-samples")
    if steps is None and samples is not None:
        steps = -(-samples // batch)
        draft.assumed.append(f"steps = {steps}: {samples} samples in batches of {batch}")
    if steps is None:
        steps = 1000
        draft.assumed.append("steps = 1000: neither iterations nor samples are given")
    draft.set("train.steps", str(steps))
    return steps


def _numbers(given: Arguments, draft: Draft) -> None:
    half, brain = given.has("--fp16"), given.has("--bf16")
    precision = "fp16" if half else "bf16" if brain else "fp32"
    eight, four = given.text("--fp8-format"), given.text("--fp4-format")
    name = given.text("--fp8-recipe")
    given.text("--fp4-recipe")
    if eight is not None or "--fp8-format" in given.values:
        precision = "mxfp8" if name == "mxfp8" else "fp8"
        if precision == "fp8":
            if eight not in (None, "hybrid"):
                _option(draft, "fp8_format", value(eight or "hybrid"))
            if name != "tensorwise":
                _option(draft, "fp8_recipe", value(name or "delayed"))
    elif four is not None:
        precision = "nvfp4"
    draft.set("train.precision", precision)
    given.has("--accumulate-allreduce-grads-in-fp32")
    if given.has("--grad-reduce-in-bf16"):
        draft.set("train.gradients", "bf16")


def _optimizer(given: Arguments, draft: Draft) -> None:
    name = given.text("--optimizer", "adam")
    lr, decay = given.text("--lr"), given.real("--weight-decay", 0.01)
    rate = given.real("--lr", 1e-4)
    if lr is None:
        draft.assumed.append("lr = 0.0001: no learning rate is given")
    options = {"lr": number(rate), "weight_decay": number(decay)}
    if name == "sgd":
        options["momentum"] = number(given.real("--sgd-momentum", 0.9))
        draft.set("train.optimizer", variant("sgd", **options))
        return
    if name != "adam":
        draft.lost.append(f"--optimizer {name}: adamw is written")
    betas = (given.real("--adam-beta1", 0.9), given.real("--adam-beta2", 0.999))
    options["betas"] = listing(map(number, betas))
    options["eps"] = number(given.real("--adam-eps", 1e-8))
    kinds = {given.text("--exp-avg-dtype", "fp32"), given.text("--exp-avg-sq-dtype", "fp32")}
    if kinds == {"bf16"}:
        options["states"] = "bf16"
        given.has("--use-precision-aware-optimizer")
    elif kinds != {"fp32"}:
        draft.lost.append(f"moments in {' and '.join(sorted(map(str, kinds)))}: fp32 is written")
    draft.set("train.optimizer", variant("adamw", **options))


def _learning_rate(given: Arguments, draft: Draft, steps: int, batch: int) -> None:
    style = given.text("--lr-decay-style", "linear") or "linear"
    known = {"constant": "constant", "cosine": "cosine", "linear": "linear", "WSD": "wsd"}
    if style not in known:
        draft.lost.append(f"--lr-decay-style {style}: cosine is written")
    name = known.get(style, "cosine")
    decay = given.whole("--lr-decay-iters")
    samples = given.whole("--lr-decay-samples")
    if decay is None and samples is not None:
        decay = -(-samples // batch)
    warmup = given.whole("--lr-warmup-iters", 0)
    if fraction := given.real("--lr-warmup-fraction", 0.0):
        warmup = int(fraction * (decay or steps))
        draft.assumed.append(f"warmup = {warmup}: a share of {fraction}")
    if (first := given.whole("--lr-warmup-samples")) is not None:
        warmup = first // batch
        draft.assumed.append(f"warmup = {warmup}: {first} samples in batches of {batch}")
    if decay is not None and decay != steps:
        _option(draft, "lr_decay_iters", str(decay))
    options = {"warmup": str(warmup)}
    least = number(given.real("--min-lr", 0.0))
    if name != "constant":
        options["min_lr"] = least
    elif least != "0":
        draft.lost.append(f"--min-lr {least}: a constant rate has no end")
    if name == "wsd":
        options["decay"] = str(given.whole("--lr-wsd-decay-iters", 0))
        shape = given.text("--lr-wsd-decay-style", "exponential") or "exponential"
        if shape != "linear":
            _option(draft, "lr_wsd_decay_style", value(shape))
    draft.set("train.lr_schedule", variant(name, **options))


def _recompute(given: Arguments, draft: Draft) -> None:
    kind, method = given.text("--recompute-granularity"), given.text("--recompute-method")
    count = given.whole("--recompute-num-layers", 1)
    modules = given.list("--recompute-modules")
    if given.has("--recompute-activations"):
        kind = "selective"
    if kind == "selective":
        unknown = [name for name in modules if name not in MODULES]
        if unknown:
            draft.lost.append(f"--recompute-modules {' '.join(unknown)}")
        names = [MODULES[name] for name in modules if name in MODULES] or ["core_attention"]
        draft.set("train.recompute", f"selective({', '.join(names)})")
    elif kind == "full":
        if method == "block":
            draft.set("train.recompute", f"full(first = {count})")
        else:
            draft.set("train.recompute", "full")
            if count != 1:
                draft.lost.append(f"--recompute-num-layers {count}: runs of 1 layer are written")


# ── What surrounds training ───────────────────────────────────────────────────


def services(given: Arguments, draft: Draft) -> None:
    """Writes data, saves and the log."""
    _data(given, draft)
    save, load = given.text("--save"), given.text("--load")
    every = given.whole("--save-interval") or given.whole("--persistent-save-interval")
    background = given.has("--async-save")
    if save is not None:
        draft.set("checkpoint.path", string(save))
        draft.set("checkpoint.every", str(every or 1000))
        if every is None:
            draft.assumed.append("checkpoint.every = 1000: no interval between saves is given")
        if background:
            draft.set("checkpoint.async", "on")
            given.has("--use-persistent-ckpt-worker")
    elif every is not None or background:
        draft.lost.append("--save-interval or --async-save: without --save")
    if load is not None and load != save:
        _option(draft, "load", string(load))
    draft.set("log.every", str(given.whole("--log-interval", 100)))
    if (folder := given.text("--tensorboard-dir")) is not None:
        draft.set("log.tensorboard", switch(True))
        if folder != "tensorboard":
            _option(draft, "tensorboard_dir", string(folder))


def _data(given: Arguments, draft: Draft) -> None:
    paths = given.list("--data-path")
    if len(paths) == 1:
        draft.set("data.path", string(paths[0]))
        draft.set("data.format", "megatron")
    elif paths:
        _option(draft, "data_path", listing(map(string, paths)))
    kind, file = given.text("--tokenizer-type"), given.text("--tokenizer-model")
    if file is not None:
        draft.set("data.tokenizer", string(file))
    usual = "SentencePieceTokenizer" if (file or "").endswith(".model") else "HuggingFaceTokenizer"
    if kind is not None and kind != (usual if file is not None else "NullTokenizer"):
        _option(draft, "tokenizer_type", value(kind))
    _split(given, draft, named=bool(paths))
    if not paths and not any(name in given.values for name in _SOURCES):
        draft.assumed.append("invented tokens: no data is given")
        _option(draft, "mock_data", "on")


_SOURCES: Final = (
    "--mock-data",
    "--data-args-path",
    "--train-data-path",
    "--per-split-data-args-path",
)


def _split(given: Arguments, draft: Draft, *, named: bool) -> None:
    split = given.text("--split", "969, 30, 1" if named else None)
    parts = (split or "").replace(" ", "").split(",")
    shares: list[float] = []
    try:
        found = [float(part) for part in parts]
        if not all(share >= 0 and in_range(share) for share in found):
            raise ValueError
        shares = found
    except ValueError:
        if split is not None:
            draft.lost.append(f"--split {split}")
    if len(shares) == 3 and shares[2] == 0 and shares[0] + shares[1] == 100:
        if shares[1]:
            draft.set("data.validation", f"{number(shares[1])}%")
    elif shares:
        _option(draft, "split", string(split or ""))
    rounds = given.text("--eval-iters")
    if rounds is not None and not (rounds == "0" and not (len(shares) == 3 and shares[1])):
        _option(draft, "eval_iters", value(rounds))
