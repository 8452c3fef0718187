"""ds_config.json to the blocks `train` and `log`: precision, optimizer, learning rate."""

from __future__ import annotations

from math import ceil
from typing import Final

from parlay.compiler.importers.deepspeed_config import Config
from parlay.compiler.importers.written import Draft, in_range, listing, number, string, variant

WARMUP: Final = 1000
"""Steps of warm-up where a scheduler of DeepSpeed is told of none."""

PEAK: Final = 0.001
"""The rate of an optimizer that is told of none, and the peak of WarmupDecayLR."""

CURVES: Final = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant",
    "constant_with_warmup": "constant",
}
"""Schedules of Hugging Face's Trainer, which has them where the configuration has none."""


def numbers(config: Config, draft: Draft, *, pp: int) -> None:
    """Precision, and the dtype of gradients, masters and moments.

    A pipeline in bf16 has an optimizer of its own: it sums in fp32, and is cut over dp.
    """
    autos = [config.is_auto(f"{name}.enabled") for name in ("bf16", "bfloat16", "fp16")]
    brain = config.flag("bf16.enabled") or config.flag("bfloat16.enabled")
    half = config.flag("fp16.enabled")
    if any(autos) and not (brain or half):
        brain = any(autos[:2])
        half = not brain
        draft.assumed.append(f"precision = {'bf16' if brain else 'fp16'}: it is auto")
    precision = "bf16" if brain else "fp16" if half else "fp32"
    draft.set("train.precision", precision)
    if config.flag("bf16.bf16_master_weights_and_grads"):
        draft.set("train.master", "none")
    widths = {
        config.text(path) for path in ("data_types.grad_accum_dtype", "communication_data_type")
    } - {""}
    own = pp > 1 and precision == "bf16"
    if own and draft.blocks["parallel"].get("zero") == "0":
        draft.set("parallel.zero", "1")
        draft.assumed.append("zero = 1: the optimizer of a bf16 pipeline is cut over dp")
    if precision == "bf16" and widths <= {"bf16", "bfp16"} and (widths or not own):
        # Unless it is told otherwise, gradients are summed in the dtype of the weights.
        draft.set("train.gradients", "bf16")
    elif precision == "fp16" and widths != {"fp32"}:
        draft.lost.append("gradients in fp16: fp32 is written")
    elif len(widths) > 1 or not widths <= {"fp32"}:
        draft.lost.append(f"gradients in {' and '.join(sorted(widths))}: fp32 is written")
    draft.set("train.clip", number(config.real("gradient_clipping", 0.0)))


def optimizer(config: Config, draft: Draft) -> float:
    """The optimizer; the peak of the learning rate, which a scheduler may set."""
    name, params = config.text("optimizer.type"), "optimizer.params"
    if not config.has("optimizer"):
        options = _of_the_script(config, draft)
        rate = float(options["lr"])
    else:
        if name.lower() not in ("adam", "adamw"):
            draft.lost.append(f"optimizer.type {name}: adamw is written")
        elif name.lower() == "adam" and not config.flag(f"{params}.adam_w_mode", True):
            draft.lost.append("optimizer.params.adam_w_mode false: decay is written apart")
        config.flag(f"{params}.adam_w_mode", True)
        if not config.flag(f"{params}.bias_correction", True):
            draft.lost.append(f"{params}.bias_correction false: it is corrected")
        rate = config.real(f"{params}.lr", PEAK)
        options = {
            "lr": number(rate),
            "betas": listing(map(number, config.reals(f"{params}.betas", (0.9, 0.999)))),
            "eps": number(config.real(f"{params}.eps", 1e-8)),
            "weight_decay": number(config.real(f"{params}.weight_decay", 0.0)),
        }
    if (peak := _peak(config, rate)) != rate:
        draft.assumed.append(f"lr = {number(peak)}: the scheduler's, the optimizer has {rate}")
        rate, options["lr"] = peak, number(peak)
    if config.flag("bf16.bf16_optimizer_states"):
        options["states"] = "bf16"
    draft.set("train.optimizer", variant("adamw", **options))
    return rate


def _peak(config: Config, rate: float) -> float:
    """The rate that the scheduler leads up to."""
    path = "scheduler.params.warmup_max_lr"
    name = config.text("scheduler.type")
    if name not in ("WarmupLR", "WarmupDecayLR"):
        return rate
    if config.is_auto(path):
        config.raw(path, known=True)
        return rate
    return config.real(path, PEAK if name == "WarmupDecayLR" and not config.has(path) else rate)


def _of_the_script(config: Config, draft: Draft) -> dict[str, str]:
    """The optimizer that the script makes itself, as far as its options say."""
    names = {"lr": "learning-rate", "eps": "adam-epsilon", "weight_decay": "weight-decay"}
    usual = {"lr": PEAK, "eps": 1e-8, "weight_decay": 0.0}
    given = {name: config.argument(option) for name, option in names.items()}
    if given["lr"] is None:
        draft.assumed.append(f"adamw(lr = {PEAK}): no optimizer is given, the script has its own")
    found = {n: number(usual[n] if value is None else value) for n, value in given.items()}
    betas = listing(map(number, config.betas() or (0.9, 0.999)))
    return {"lr": found["lr"], "betas": betas, "eps": found["eps"]} | {
        "weight_decay": found["weight_decay"]
    }


def schedule(config: Config, draft: Draft, rate: float, steps: int | None) -> None:
    """The learning rate over the steps, and how many those are."""
    name, params = config.text("scheduler.type"), "scheduler.params"
    total = config.whole(f"{params}.total_num_steps")
    if total is None and steps is None:
        draft.assumed.append("steps = 1000: no number of steps is given")
    steps = total or steps or 1000
    draft.set("train.steps", str(steps))
    if not name:
        _curve_of_the_script(config, draft, steps)
        return
    warmup = config.whole(f"{params}.warmup_num_steps")
    if warmup is None and not config.has(f"{params}.warmup_num_steps"):
        warmup = WARMUP
    for least in ("warmup_min_lr", "warmup_min_ratio"):
        if (given := config.real(f"{params}.{least}", 0.0)) > 0:
            draft.lost.append(f"{params}.{least} = {number(given)}: warm-up from 0 is written")
    if name not in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        draft.lost.append(f"scheduler.type {name}: a constant rate is written")
        return
    if warmup and (kind := config.text(f"{params}.warmup_type", "log")) != "linear":
        draft.lost.append(f"{params}.warmup_type {kind}: a linear one is written")
    options = {"warmup": str(warmup)} if warmup is not None else {}
    if name == "WarmupCosineLR":
        share = config.real(f"{params}.cos_min_ratio", 1e-4)
        end = float(f"{share * rate:.12g}")
        options["min_lr"] = number(end if in_range(end) else 0)
    names = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
    draft.set("train.lr_schedule", variant(names[name], **options))


def _curve_of_the_script(config: Config, draft: Draft, steps: int) -> None:
    """The curve that Hugging Face's Trainer is told to follow."""
    kind = config.word("lr-scheduler-type")
    if kind is None:
        return
    if kind not in CURVES:
        draft.lost.append(f"--lr-scheduler-type {kind}: a constant rate is written")
    warmup, share = config.argument("warmup-steps"), config.argument("warmup-ratio")
    if not warmup and share:
        warmup = ceil(share * steps)
        draft.assumed.append(f"warmup = {number(warmup)}: a share of {share}")
    curve = CURVES.get(kind, "constant")
    draft.set("train.lr_schedule", variant(curve, warmup=number(warmup or 0)))


def log(config: Config, draft: Draft) -> None:
    """What is reported."""
    if every := config.whole("steps_per_print"):
        draft.set("log.every", str(every))
    elif steps := config.argument("logging-steps"):
        draft.set("log.every", number(steps))
    if config.flag("tensorboard.enabled"):
        draft.set("log.tensorboard", "on")


def saves(config: Config, draft: Draft) -> None:
    """What Hugging Face's Trainer saves, where its options ask for a save every so many steps."""
    every, folder = config.argument("save-steps"), config.word("output-dir")
    if config.word("save-strategy") not in (None, "steps") or not every or every != int(every):
        return
    draft.set("checkpoint.path", string(folder or "checkpoints"))
    draft.set("checkpoint.every", number(every))
    if keep := config.argument("save-total-limit"):
        draft.set("checkpoint.keep", number(keep))
