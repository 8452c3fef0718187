"""The recipe of training as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.backends.complete import steps_of
from parlay.compiler.backends.megatron.argument import Piece, chosen, field, given, refused
from parlay.compiler.spec.blocks import Spec, Train
from parlay.compiler.spec.resolve import Phase

MODULES: Final = {
    "core_attention": "core_attn",
    "mlp": "mlp",
    "norm": "layernorm",
    "experts": "moe",
    "activation": "moe_act",
}
"""Parts of a layer that are computed again -> their names in Megatron-LM."""


def recipe(phase: Phase, spec: Spec) -> Iterator[Piece]:
    """Batches, numbers, optimizer, learning rate and recomputation."""
    train = spec.train
    assert train is not None
    yield given("--seq-length", train.seq, path="train.seq")
    yield given("--micro-batch-size", train.micro_batch, path="train.micro_batch")
    yield given("--global-batch-size", train.global_batch, path="train.global_batch")
    steps = steps_of(phase)
    if steps is None:
        yield refused(
            phase, "train.steps", "training without an end", words="neither `steps` nor `tokens`"
        )
        return
    yield given("--train-iters", steps, path="train.steps" if train.steps else "train.tokens")
    yield from _numbers(phase, train)
    yield from _optimizer(phase, spec, train)
    yield from _learning_rate(phase, train, steps)
    yield from _recompute(phase, spec, train)
    backend = {"flash": "flash", "math": "unfused"}[train.attention]
    if train.attention == "flash":
        fused = spec.model is not None and (spec.model.mla is not None or spec.model.sinks)
        # Latent attention and sinks have their flash kernels in cuDNN.
        yield chosen("--attention-backend", "fused" if fused else "flash", path="train.attention")
    else:
        yield given("--attention-backend", backend, path="train.attention")
    yield given("--seed", train.seed, path="train.seed")
    if train.compile:
        yield refused(phase, "train.compile", "`torch.compile` of the layers")
    if train.lora is not None:
        yield refused(phase, "train.lora", "low-rank adapters")
    if train.weights is not None:
        help = "`tools/checkpoint` of Megatron-LM converts such a folder for `--load`"
        yield refused(phase, "train.weights", "weights of a Hugging Face folder", help=[help])


# ── Numbers ───────────────────────────────────────────────────────────────────


def _numbers(phase: Phase, train: Train) -> Iterator[Piece]:
    precision, path = train.precision, "train.precision"
    if precision == "fp16":
        yield given("--fp16", path=path)
    elif precision != "fp32":
        yield given("--bf16", path=path)
    match precision:
        case "fp8":
            yield chosen("--fp8-format", "hybrid", path=path)
            yield chosen("--fp8-recipe", "tensorwise", path=path)
        case "mxfp8":
            yield given("--fp8-format", "e4m3", path=path)
            yield given("--fp8-recipe", "mxfp8", path=path)
        case "nvfp4":
            yield given("--fp4-format", "e2m1", path=path)
            yield given("--fp4-recipe", "nvfp4", path=path)
    if train.gradients == "fp32" and precision != "fp32":
        yield given("--accumulate-allreduce-grads-in-fp32", path="train.gradients")
    if train.gradients == "bf16":
        if precision in ("fp32", "fp16"):
            shown = f"bf16 gradients with {precision}"
            yield refused(phase, "train.gradients", shown, words="fp32 with these products")
        else:
            yield given("--grad-reduce-in-bf16", path="train.gradients")
    if (train.master == "fp32") == (precision == "fp32"):
        has = "no second copy" if precision == "fp32" else "a master copy in fp32"
        shown = f"{field(phase, 'train.master')} with {precision}"
        yield refused(phase, "train.master", shown, words=f"weights have {has}")


def _optimizer(phase: Phase, spec: Spec, train: Train) -> Iterator[Piece]:
    optimizer, path = train.optimizer, "train.optimizer"
    if optimizer.name == "sgd":
        yield given("--optimizer", "sgd", path=path)
        yield given("--lr", optimizer["lr"], path=f"{path}.lr")
        yield given("--sgd-momentum", optimizer["momentum"], path=f"{path}.momentum")
        yield given("--weight-decay", optimizer["weight_decay"], path=f"{path}.weight_decay")
        return
    betas = optimizer["betas"]
    if len(betas) != 2:
        yield refused(phase, f"{path}.betas", f"{len(betas)} betas", words="two moments")
        return
    yield given("--optimizer", "adam", path=path)
    yield given("--lr", optimizer["lr"], path=f"{path}.lr")
    yield given("--adam-beta1", betas[0], path=f"{path}.betas")
    yield given("--adam-beta2", betas[1], path=f"{path}.betas")
    yield given("--adam-eps", optimizer["eps"], path=f"{path}.eps")
    yield given("--weight-decay", optimizer["weight_decay"], path=f"{path}.weight_decay")
    if optimizer["kahan"]:
        yield refused(phase, f"{path}.kahan", "compensated sums of the update")
    if optimizer["states"] == "bf16":
        if spec.parallel.zero != 1:
            shown = f"bf16 moments with zero = {spec.parallel.zero}"
            words = "the distributed optimizer alone has them"
            yield refused(phase, f"{path}.states", shown, words=words, help=["`zero = 1`"])
        if spec.parallel.offload.name == "none":
            yield chosen("--use-precision-aware-optimizer", path=f"{path}.states")
        yield given("--exp-avg-dtype", "bf16", path=f"{path}.states")
        yield given("--exp-avg-sq-dtype", "bf16", path=f"{path}.states")


def _learning_rate(phase: Phase, train: Train, steps: int) -> Iterator[Piece]:
    schedule, path = train.lr_schedule, "train.lr_schedule"
    name = {"wsd": "WSD"}.get(schedule.name, schedule.name)
    yield given("--lr-decay-style", name, path=path)
    yield chosen("--lr-decay-iters", steps, path=path)
    yield given("--lr-warmup-iters", schedule["warmup"], path=f"{path}.warmup")
    target = phase.targets.get("megatron")
    until = ((target.options if target else None) or {}).get("lr_decay_iters", steps)
    if not isinstance(until, int) or schedule["warmup"] >= until:
        shown = f"a warm-up of {schedule['warmup']} in {steps} steps"
        yield refused(phase, f"{path}.warmup", shown, words="shorter than training")
    if schedule.name != "constant":
        yield given("--min-lr", schedule["min_lr"], path=f"{path}.min_lr")
        if schedule["min_lr"] > train.optimizer["lr"]:
            words = "no more than the peak"
            yield refused(phase, f"{path}.min_lr", "a rise to `min_lr`", words=words)
    if schedule.name == "wsd":
        yield given("--lr-wsd-decay-iters", schedule["decay"], path=f"{path}.decay")
        yield chosen("--lr-wsd-decay-style", "linear", path=path)
    yield given("--clip-grad", train.clip, path="train.clip")


# ── Recomputation ─────────────────────────────────────────────────────────────


def _recompute(phase: Phase, spec: Spec, train: Train) -> Iterator[Piece]:
    recompute, path = train.recompute, "train.recompute"
    if recompute.name == "selective":
        asked = recompute.flags or ("core_attention",)
        for name in (name for name in asked if name not in MODULES):
            yield refused(phase, path, f"recomputation of the {name}")
        dense = spec.model is None or spec.model.experts is None
        if dense and (late := [name for name in asked if name in ("experts", "activation")]):
            shown = f"recomputation of {' and '.join(late)} in a dense model"
            yield refused(phase, path, shown, words="parts of layers with experts")
        yield given("--recompute-granularity", "selective", path=path)
        modules = [MODULES[name] for name in asked if name in MODULES]
        yield given("--recompute-modules", *modules, path=path)
    if recompute.name != "full":
        return
    first, every = recompute["first"], recompute["every"]
    yield given("--recompute-granularity", "full", path=path)
    if every is not None and every > 1:
        words = "whole runs of layers are computed again, or the first of a stage"
        help = ["`full`, or `full(first = …)`"]
        yield refused(phase, path, f"one layer in {every}", words=words, help=help)
    elif first is None:
        yield given("--recompute-method", "uniform", path=path)
        yield given("--recompute-num-layers", 1, path=path)
    else:
        yield given("--recompute-method", "block", path=path)
        yield given("--recompute-num-layers", first, path=path)
