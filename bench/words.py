"""What the words of a row's cells stand for in the language."""

from __future__ import annotations

import re

from parlay.compiler.spec.schema import Setting
from stacks import Usual


def sharding(words: str, usual: Usual, ranks: int) -> tuple[int, int]:
    """ZeRO stage, and how many ranks share one copy."""
    lower = words.lower()
    zero = usual.zero
    if found := re.search(r"zero-(\d)", lower):
        zero = int(found[1])
    elif "fsdp" in lower or "hsdp" in lower:
        zero = 3
    elif lower in ("none", "ddp (no zero)"):
        zero = 0
    shard = ranks
    if found := re.search(r"(?:group|shard|fsdp)=(\d+)", lower):
        shard = min(ranks, int(found[1]))
    elif "hsdp" in lower:
        shard = min(ranks, 8)
    return zero, shard if ranks % shard == 0 else ranks


def precision(words: str) -> str:
    """`FP8-MX` --> `mxfp8`."""
    lower = words.lower()
    if "fp4" in lower:
        return "nvfp4"
    if "mxfp8" in lower or "fp8-mx" in lower:
        return "mxfp8"
    if "fp8" in lower:
        return "fp8"
    return "fp16" if "fp16" in lower else "bf16"


def modelled(words: str) -> bool:
    """Whether products of the precision are priced: `fp32` and `tf32` are not."""
    lower = words.lower()
    low = any(word in lower for word in ("16", "amp", "mixed", "fp8", "fp4"))
    return low or not any(word in lower for word in ("32", "64"))


def recompute(words: str) -> Setting:
    """`selective (core attention)` --> `selective(core_attention)`."""
    lower = words.lower()
    if lower.startswith("none"):
        return Setting("none")
    if lower.startswith("full"):
        return Setting("full", {"first": None, "every": None})
    if "layer" in lower and "norm" not in lower:
        return Setting("full", {"first": None, "every": 2})
    flags = tuple(
        flag
        for word, flag in (
            ("core", "core_attention"),
            ("mlp", "mlp"),
            ("norm", "norm"),
            ("moe_act", "activation"),
            ("moe", "experts"),
        )
        if word in lower and not (flag == "experts" and "moe_act" in lower)
    )
    if "op" in lower.split() or "(op" in lower:
        return Setting("full", {"first": None, "every": 3})
    return Setting("selective", {}, flags or ("core_attention",))


def attention(words: str) -> str:
    """`math` where the kernel is not fused into one, else `flash`."""
    lower = words.lower()
    return "math" if "non-flash" in lower or "math" in lower else "flash"
