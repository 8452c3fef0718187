"""Which software a source ran, and what it usually left unsaid. The one place that reads names.

A row may name its stack itself in a column `stack`. An unknown source gets the default of the
framework that its notes or address name, with the year that its GPU came into use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Usual:
    """What a stack's users set where a row does not say."""

    recompute: str = "none"
    attention: str = "flash"
    zero: int = 1
    gradients: str = "fp32"
    sequence: bool = True
    expert_tp: bool = False  # experts are cut over tp, as before parallel folding
    nic: tuple[int, float] | None = None  # cards of a node, Gb/s each


SOURCES = {
    "bigscience_1b3": "megatron_deepspeed-v100",
    "bigscience_bloom": "megatron_deepspeed-2022",
    "bigscience_gpt2_v100": "megatron_deepspeed-v100",
    "colossalai": "colossalai",
    "dgxc": "nemo-24",
    "fms_fsdp": "fms",
    "internevo": "internevo",
    "korthikanti2022": "megatron-2022",
    "llama3paper": "megatron-2024",
    "llmfoundry": "llmfoundry",
    "mbridge_skill": "bridge",
    "megatron_bridge": "bridge",
    "megatron_ci": "megatron-2025",
    "megatron_llama_fp8": "megatron-2025",
    "megatron_ds_longseq": "megatron_deepspeed-2022",
    "moe_folding": "megatron-2025",
    "mtnlg": "megatron_deepspeed-2021",
    "narayanan2021": "megatron-2021",
    "nemo_automodel": "automodel",
    "nemo_docs": "nemo-24",
    "nemo_longseq": "nemo-24",
    "torchtitan": "torchtitan",
    "zerobubble": "megatron-2023",
}
FRAMEWORKS = (
    ("megatron-bridge", "bridge"),
    ("automodel", "automodel"),
    ("torchtitan", "torchtitan"),
    ("llm-foundry", "llmfoundry"),
    ("megatron-deepspeed", "megatron_deepspeed-2022"),
    ("deepspeed", "deepspeed"),
    ("nemo", "nemo-24"),
    ("megatron", "megatron-2025"),
    ("maxtext", "maxtext"),
    ("paxml", "paxml"),
    ("fsdp", "pytorch"),
)
YEARS = {"V100": "megatron_deepspeed-v100", "A100": "megatron-2022", "H100": "nemo-24"}


def stack_of(row: Row) -> str:
    """The stack of a row."""
    if row.get("stack"):
        return row["stack"]
    words = row.get("notes", "")
    base = SOURCES.get(row.get("source_group", ""))
    if base is None:
        text = f"{row.get('source_url', '')} {words}".lower()
        base = next((stack for word, stack in FRAMEWORKS if word in text), None)
        base = base or YEARS.get(row["gpu"].split("-")[0], "megatron-2025")
    lower = words.lower()
    if "maxtext" in lower:
        return "maxtext"
    if "paxml" in lower:
        return "paxml"
    if base == "torchtitan":
        return f"{base}{_compiled(lower, row.get('source_url', ''))}"
    if base == "bridge" and (found := re.search(r"\b(2\d\.\d\d)", words)):
        return f"bridge-{found[1]}"
    if base == "nemo-24":
        return f"{base}{_task(lower)}"
    return base


def _compiled(lower: str, address: str) -> str:
    """What torchtitan compiles; since 2025 the loss is a part of it."""
    year = re.search(r"_(20\d\d)\d\d_", address)
    loss = "-fused_loss" if year is not None and int(year[1]) >= 2025 else ""
    if "async" in lower:
        return f"-compile-async{loss}"
    return f"-compile{loss}" if "torch.compile" in lower else ""


def _task(lower: str) -> str:
    """Fine-tuning runs a data path of its own."""
    if "lora" in lower:
        return "-lora"
    return "-sft" if "sft" in lower else ""


OLD = Usual(attention="math", zero=0, recompute="full", sequence=False)
USUAL = {
    "megatron_deepspeed": OLD,
    "megatron-2021": OLD,
    "megatron-2022": Usual(attention="math", zero=0, recompute="selective (core attention)"),
    "megatron-2023": Usual(attention="math", zero=0, sequence=False),
    "deepspeed": Usual(zero=3, gradients="bf16", sequence=False),
    "llmfoundry": Usual(zero=3),
    "torchtitan": Usual(zero=3),
    "fms": Usual(zero=3, gradients="bf16"),
    "pytorch": Usual(zero=3),
    "internevo": Usual(gradients="bf16", nic=(4, 100.0)),
    "bridge": Usual(),
    "nemo-24": Usual(expert_tp=True),
    "megatron-2024": Usual(expert_tp=True),
}


def usual_of(stack: str) -> Usual:
    """The usual settings of a stack, by its longest known prefix."""
    name = stack
    while name:
        if name in USUAL:
            return USUAL[name]
        name = name.rpartition("-")[0]
    return Usual()
