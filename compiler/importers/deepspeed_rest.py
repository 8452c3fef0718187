"""Keys of ds_config.json that no field takes: options of the target, or comments."""

from __future__ import annotations

import re
from typing import Any, Final

from parlay.compiler.backends.deepspeed.config import FP16, RECOMPUTE, STAGE_3
from parlay.compiler.backends.deepspeed.options import NEWEST, place_of, sections
from parlay.compiler.backends.deepspeed.passed import GOVERNED
from parlay.compiler.importers.deepspeed_config import Config
from parlay.compiler.importers.written import Draft, switch, value
from parlay.compiler.ledger.recipe import GRADIENT_BUCKET

TARGET: Final = "target deepspeed"


def rest(config: Config, draft: Draft) -> None:
    """Writes everything that no field took: options of the target, and comments for others."""
    for path, given in config.rest():
        section, _, key = path.rpartition(".")
        plain = int(given) if isinstance(given, float) and given.is_integer() else given
        if section in OFF and given in (False, None):
            continue
        text, name = _text(plain), _option(section, key, draft)
        # model.py computes again what it does, and the norm is always there.
        decided = (section in OFF and key in RECOMPUTE) or key == "compute_grad_norm"
        if (name is not None or decided) and _chosen(section, key, plain, draft):
            continue
        if name is None or text is None or decided:
            draft.lost.append(f"{path} = {str(given)[:200]}")
        else:
            draft.set(f"{TARGET}.options.{name}", text)


OFF: Final = ("activation_checkpointing",)
"""Sections whose keys are written as off by the back end, where they are off."""

ALWAYS: Final[dict[str, Any]] = {
    **FP16,
    "prescale_gradients": False,
    "gradient_predivide_factor": 1,
    "zero_allow_untested_optimizer": False,
    "wall_clock_breakdown": False,
    "check_grad_overflow": True,
    "pin_memory": True,
    "torch_adam": False,
}
BY_ZERO: Final[dict[str, tuple[Any, tuple[int, ...]]]] = {
    **{name: (given, (3,)) for name, given in STAGE_3.items()},
    "stage3_param_persistence_threshold": (0, (3,)),
    "allgather_partitions": (True, (1, 2)),
    "allgather_bucket_size": (GRADIENT_BUCKET, (1, 2)),
    "round_robin_gradients": (False, (1, 2)),
    "compute_grad_norm": (True, (1, 2)),
    "reduce_bucket_size": (GRADIENT_BUCKET, (1, 2, 3)),
    "reduce_scatter": (True, (1, 2, 3)),
    "contiguous_gradients": (True, (1, 2, 3)),
}
"""What the back end writes out by itself, always and by the stage of ZeRO."""


def _chosen(section: str, key: str, given: Any, draft: Draft) -> bool:
    """Whether the back end writes a key with that value by itself: it need not be in the file."""
    if section == "zero_optimization":
        zero = int(draft.blocks["parallel"].get("zero", "0"))
        ours, stages = BY_ZERO.get(key, (None, ()))
        known = zero in stages
    else:
        ours, known = ALWAYS.get(key), key in ALWAYS
    return known and ours == given and isinstance(ours, bool) == isinstance(given, bool)


def _option(section: str, key: str, draft: Draft) -> str | None:
    """The name by which `target "deepspeed"` takes a key; None for one that it does not."""
    known = sections(NEWEST).get(section, ())
    if key not in known and f"stage3_{key}" in known:
        key = f"stage3_{key}"  # the engine takes either name
    if key not in known or not re.fullmatch(r"[A-Za-z]\w*", key, re.A):
        return None
    if (section or key) in GOVERNED and not _free(section, key, draft):
        return None
    for name in (key, f"{section.rpartition('.')[2]}_{key}"):
        if place_of(name, NEWEST) == (section, key):
            return name
    return None


def _free(section: str, key: str, draft: Draft) -> bool:
    """Whether a key of a section that fields decide is the back end's to choose all the same."""
    train, parallel = draft.blocks["train"], draft.blocks["parallel"]
    offload = parallel.get("offload", "none")
    match section, key:
        case "fp16", _:
            return train.get("precision") == "fp16" and key in FP16
        case "bf16", "check_grad_overflow":
            return train.get("precision") == "bf16"
        case "tensorboard", _:
            return draft.blocks["log"].get("tensorboard") == "on"
        case "optimizer.params", "torch_adam":
            return True
        case "zero_optimization.offload_optimizer", _:
            return "optimizer" in offload
        case "zero_optimization.offload_param", _:
            return "params" in offload
        case "pipeline", "seed_layers" | "pipe_partitioned" | "grad_partitioned":
            return int(parallel.get("pp", "1")) > 1
    return False


def _text(given: Any) -> str | None:
    """A value of an option as the language writes it; None for what it has no form for."""
    if isinstance(given, bool):
        return switch(given)
    if isinstance(given, str):
        return value(given) if given != "auto" and given.isprintable() else None
    if isinstance(given, int | float) and 0 <= given < 1e15:
        return value(str(given))
    return None


def without_options(draft: Draft) -> Draft:
    """A draft without the block of the target where no option is in it."""
    if not draft.blocks.get(TARGET):
        draft.blocks.pop(TARGET, None)
        draft.heads.pop(TARGET, None)
    return draft
