"""The keys of a DeepSpeed configuration by section, as its own code reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

VERSIONS: Final = ("0.19",)
NEWEST: Final = "0.19"
TOP: Final = ""
"""The section of the keys that stand in none."""
PARAMS: Final = "optimizer.params"
OPTIMIZER: Final[Mapping[str, tuple[str, ...]]] = {
    "optimizer": ("type", "params"),
    PARAMS: ("lr", "betas", "eps", "weight_decay", "adam_w_mode", "torch_adam", "bias_correction"),
}
"""What DeepSpeed hands to the optimizer's class, which has no table of its own."""
OBJECTS: Final = frozenset(
    (
        *("autotuning", "bfloat16", "comet", "data_efficiency", "datastates_ckpt"),
        *("expert_parallel", "hybrid_engine", "scheduler", "timers", "torch_autocast"),
        *("weight_quantization", "leaf_module", "zenflow", "parallel_write", "writer", "params"),
        *("tp", "partition_config", "injection_policy_tuple"),
    )
)
"""Keys whose value is an object, which an option of the file cannot be."""


def version_of(written: str) -> str | None:
    """The version that a file's words name: `0.19` for `0.19.8`; None for one that is not known."""
    short = ".".join(written.split(".")[:2])
    return short if short in VERSIONS else None


@cache
def sections(version: str) -> Mapping[str, tuple[str, ...]]:
    """Section -> its keys; a section inside of another is `zero_optimization.offload_param`."""
    path = Path(__file__).with_name(f"{version}.json")
    found: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return {section: tuple(names) for section, names in found.items()} | dict(OPTIMIZER)


def place_of(name: str, version: str) -> tuple[str, str] | None:
    """Section and key of an option: its own name where one section has it, or `section_key`.

    `stage3_prefetch_bucket_size` --> `("zero_optimization", "stage3_prefetch_bucket_size")`
    """
    known = sections(version)
    found = [(section, name) for section, names in known.items() if name in names]
    for section, names in known.items():
        before = section.rpartition(".")[2] + "_"
        if section and name.startswith(before) and name.removeprefix(before) in names:
            found.append((section, name.removeprefix(before)))
    # A section itself is no option.
    found = [
        (section, key)
        for section, key in found
        if key not in OBJECTS and f"{section}.{key}".strip(".") not in known
    ]
    return found[0] if len(found) == 1 else None
