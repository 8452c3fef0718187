"""Which software a source ran, and what it usually left unsaid. The one place that reads names.

A row may name its stack itself in a column `stack`. An unknown source gets the framework that its
address, notes or sharding name, in the generation of the year that they state; without either, what
was usual when its GPU came into use.
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
    balanced: bool = False  # experts get equal shares, as benchmarks on made-up tokens force
    interleaved: bool = False  # a pipeline whose chunks are not stated has one of each layer
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
    ("mosaicml/examples", "llmfoundry-1.12"),
    ("mosaicgpt", "llmfoundry-1.12"),
    ("mosaicml", "llmfoundry"),
    ("foundation-model-stack", "fms"),
    ("internevo", "internevo"),
    ("colossalai", "colossalai"),
    ("nanotron", "torchtitan-eager"),
    ("maxtext", "maxtext"),
    ("paxml", "paxml"),
    ("megatron-deepspeed", "megatron_deepspeed"),
    ("gpt-neox", "megatron_deepspeed"),
    ("bigscience", "megatron_deepspeed"),
    ("dgxc-benchmarking", "nemo-24"),
    ("nemo", "nemo-24"),
    ("megatron-fsdp", "megatron"),
    ("deepspeed", "deepspeed"),
    ("megatron", "megatron"),
    ("mcore", "megatron"),
    ("flagscale", "megatron"),
    ("mlperf", "nemo-24"),
    ("primus", "megatron"),
    ("fsdp", "pytorch"),
    ("hsdp", "pytorch"),
    ("olmo", "pytorch"),
    ("litgpt", "pytorch"),
    ("huggingface/accelerate", "pytorch"),
)
"""The first word that stands in a row's address, source, notes or sharding names its framework.
nanotron is eager PyTorch with layouts of its own; MosaicGPT is llm-foundry's code on torch 1.12."""
GENERATIONS = {"megatron": (2021, 2025), "megatron_deepspeed": (2021, 2023)}
"""Stacks that are known by year, the first and the last of them."""
USED = {"V100": 2021, "A100": 2023, "A800": 2023}
"""The last year that Megatron is taken to have run on a GPU where a row states none."""
YEARS = {"V100": "megatron_deepspeed-v100", "A100": "megatron-2022", "H100": "nemo-24"}
ARXIV = re.compile(r"arxiv\.org/\w+/(\d\d)\d\d\.\d")
YEAR = re.compile(r"(?<!\d)(20(?:19|2\d))(?=\D|[01]\d\D|$)")


def year_of(text: str) -> int | None:
    """The year of an arXiv number, or the first that is stated: `llama3_h100_202412` --> 2024."""
    if found := ARXIV.search(text):
        return 2000 + int(found[1])
    return int(found[1]) if (found := YEAR.search(text)) else None


def _unknown(row: Row) -> str:
    """The stack of a source that is not in the table."""
    columns = ("source_url", "source_group", "notes", "zero_stage_or_sharding")
    text = " ".join(row.get(name, "") for name in columns).lower()
    base = next((stack for word, stack in FRAMEWORKS if word in text), None)
    if base == "deepspeed" and {row.get("tp", ""), row.get("pp", "")} - {"", "1"}:
        base = "megatron_deepspeed"  # DeepSpeed cuts no layer by itself
    year, gpu = year_of(text), row["gpu"].split("-")[0]
    if base is None and year is None:
        return YEARS.get(gpu, "megatron-2025")
    base = base or "megatron"
    if base not in GENERATIONS:
        return base
    if year is None and base == "megatron_deepspeed":
        return "megatron_deepspeed-v100" if gpu == "V100" else "megatron_deepspeed-2022"
    first, last = GENERATIONS[base]
    return f"{base}-{min(max(year or USED.get(gpu, last), first), last)}"


def stack_of(row: Row) -> str:
    """The stack of a row."""
    if row.get("stack"):
        return row["stack"]
    words = row.get("notes", "")
    base = SOURCES.get(row.get("source_group", "")) or _unknown(row)
    lower = words.lower()
    if "maxtext" in lower:
        return "maxtext"
    if "paxml" in lower:
        return "paxml"
    if base == "torchtitan":
        base = f"{base}{_compiled(lower, row.get('source_url', ''))}"
    if base == "bridge" and (found := re.search(r"\b(2\d\.\d\d)", words)):
        return f"bridge-{found[1]}{_graphs(lower, row)}"
    if base == "nemo-24":
        return f"{base}{_task(lower, row)}"
    if base == "automodel" and "lora" in lower:
        cut = {row.get("tp", ""), row.get("pp", "")} - {"", "1"}
        return f"{base}-lora{'-cut' if cut else ''}"
    return f"{base}{_switches(lower)}" if base.startswith(("megatron-", "torchtitan")) else base


def _switches(lower: str) -> str:
    """What a row says of dispatch and of graphs."""
    once = "-deepep" if "deepep" in lower or "hybridep" in lower else ""
    graphs = "cuda graphs" in lower and "no cuda graphs" not in lower
    return f"{once}-graphs" if graphs else once


def _graphs(lower: str, row: Row) -> str:
    """Where Megatron-Bridge's recipes replay graphs: on racks, and on any Blackwell while tokens
    were dropped, when every size was known ahead."""
    blackwell = row["gpu"].startswith(("B", "GB"))
    rack = row["gpu"].startswith("GB")
    return "-graphs" if rack or (blackwell and "tokendrop" in lower) else ""


def _compiled(lower: str, address: str) -> str:
    """What torchtitan compiles; since 2025 the loss is a part of it."""
    dated = re.search(r"_(20\d\d)\d\d_", address)
    year = int(dated[1]) if dated else year_of(lower)
    loss = "-fused_loss" if year is not None and year >= 2025 else ""
    if "async" in lower:
        return f"-compile-async{loss}"
    return f"-compile{loss}" if "torch.compile" in lower else ""


def _task(lower: str, row: Row) -> str:
    """Fine-tuning runs a data path of its own, that of NeMo 1's scripts or of NeMo 2's recipes,
    which the benchmarks of DGX Cloud take."""
    told = (row.get("source_group", ""), row.get("source_url", ""))
    recipes = "-recipes" if any("dgxc" in words for words in told) else ""
    if "lora" in lower:
        return f"{recipes}-lora"
    return f"{recipes}-sft" if "sft" in lower else ""


OLD = Usual(attention="math", zero=0, recompute="full", sequence=False)
USUAL = {
    "megatron_deepspeed": OLD,
    "megatron_deepspeed-2023": Usual(sequence=False),
    "megatron-2021": OLD,
    "megatron-2022": Usual(attention="math", zero=0, recompute="selective (core attention)"),
    "megatron-2023": Usual(attention="math", zero=0, sequence=False),
    "deepspeed": Usual(zero=3, gradients="bf16", sequence=False),
    "llmfoundry": Usual(zero=3),
    "torchtitan": Usual(zero=3),
    "torchtitan-eager": Usual(),
    "fms": Usual(zero=3, gradients="bf16"),
    "pytorch": Usual(zero=3),
    "internevo": Usual(gradients="bf16", nic=(4, 100.0)),
    "bridge": Usual(),
    # Its recipes for models that one GPU does not hold compute whole layers again.
    "automodel-lora-cut": Usual(zero=3, recompute="full"),
    "nemo-24": Usual(expert_tp=True, balanced=True, interleaved=True),
    "nemo-24-lora": Usual(expert_tp=True, balanced=True, sequence=False),
    "nemo-24-recipes-lora": Usual(expert_tp=True, balanced=True),
    "megatron-2024": Usual(expert_tp=True),
}


UNFUSED_LATENTS = ("nemo-24",)
"""Stacks whose cuDNN is older than 9.11 (July 2025): it has no backward of queries of 192 and
values of 128 on Blackwell (Transformer Engine's list of fused kernels), so latent attention runs as
plain products there, and is run again for memory, as the recipes of those containers have it."""


def usual_of(stack: str) -> Usual:
    """The usual settings of a stack, by its longest known prefix."""
    name = stack
    while name:
        if name in USUAL:
            return USUAL[name]
        name = name.rpartition("-")[0]
    return Usual()
