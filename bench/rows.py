"""A row of published runs --> the spec it ran, or why no spec can be made of it.

Of a row's identity nothing enters but its software stack: `stacks.py` names it from the source,
or the row names it itself in a column `stack`. The shape comes from the columns; what they have no
column for (latent attention, shared experts, gated activations) from the catalog's model of the
same shape, whatever the row calls it.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import presets
from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.blocks import Cluster, Model, Nic, Parallel, Spec, Train
from parlay.compiler.spec.schema import Setting
from stacks import Usual, stack_of, usual_of

Row = dict[str, str]

NODES = {
    "A100-SXM-80GB": "dgx-a100",
    "A100-SXM-40GB": "a100-40gb-8",
    "A800-SXM-80GB": "a800-8",
    "H100-SXM-80GB": "dgx-h100",
    "H100-SXM-96GB-HBM2e-500W": "h100-96gb-8",
    "H100-NVL-94GB": "h100-nvl-pairs",
    "H100-PCIe-80GB": "h100-pcie-8",
    "H200-SXM": "dgx-h200",
    "H800-SXM-80GB": "h800-8",
    "H20": "h20-8",
    "B200": "dgx-b200",
    "B300": "dgx-b300",
    "GB200-NVL72": "gb200-nvl72",
    "GB300-NVL72": "gb300-nvl72",
    "V100-SXM2-32GB": "v100-8",
    "V100-SXM2-16GB": "v100-8",
    "MI250X": "mi250x-8",
    "MI300X": "mi300x-8",
    "MI325X": "mi325x-8",
    "MI355X": "mi355x-8",
    "L40S": "l40s-8",
    "RTX-4090": "rtx-4090-8",
}
COLUMNS = (
    *("id", "source_url", "source_group", "model", "params_b", "layers", "hidden", "ffn", "heads"),
    *("kv_heads", "vocab", "seq", "experts", "topk", "gpu", "gpus", "gpus_per_node", "tp", "sp"),
    *("pp", "vpp", "cp", "ep", "dp", "zero_stage_or_sharding", "micro_batch", "grad_accum"),
    *("global_batch_seqs", "recompute", "precision", "attention", "step_time_s"),
    *("tokens_per_s_per_gpu", "mfu_pct", "hfu_pct", "peak_mem_gib", "notes", "check_flags"),
)
IMBALANCE = 1.15
"""Busiest expert over the mean under a trained router; rows that force balance say so."""
CONTRADICTS = ("MISMATCH", "COPY_OF", "PP_TYPO", "SWAPPED", "NOT_STATED")
NEEDED = {
    "shape": ("layers", "hidden", "ffn", "heads", "seq"),
    "degrees": ("gpus", "tp", "pp"),
    "micro-batch": ("micro_batch",),
    "global batch": ("global_batch_seqs",),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A row that is scored: what it ran, how fast it was, and how it is counted.

    `tokens` is tokens/s a GPU as measured; `stated` says whether the row names its recompute and
    its attention kernel; `group` is what a fit must not have seen when the row is tested, `work`
    what rows share whose layouts are ranked.
    """

    row: Row
    spec: Spec
    layout: Layout
    tokens: float
    stated: bool
    kind: str
    accelerator: str
    source: str
    group: str
    work: tuple[str, ...]
    outlier: bool


def read(path: Path) -> list[Row]:
    """The rows of a file in the format of the published runs."""
    with path.open(newline="", encoding="utf-8") as file:
        found = csv.DictReader(file)
        return [
            dict.fromkeys(COLUMNS, "") | {k: (v or "").strip() for k, v in row.items() if k}
            for row in found
        ]


def case_of(row: Row) -> Case | str:
    """The case of a row, or the reason to leave it out."""
    try:
        wrong = reason_to_skip(row)
        if wrong:
            return wrong
        usual = usual_of(stack_of(row))
        spec = spec_of(row, usual)
        layout = lay_out(spec)
    except (AssertionError, ArithmeticError, LookupError, ValueError) as fault:
        return f"degrees that make no layout ({type(fault).__name__})"
    assert spec.train is not None and spec.model is not None
    return Case(
        row=row,
        spec=spec,
        layout=layout,
        tokens=speed(row),
        stated=bool(row["recompute"] and row["attention"]),
        kind=kind_of(spec, row),
        accelerator=family_name(row["gpu"]),
        source=row.get("source_group", ""),
        group=group_of(spec),
        work=work_of(row, spec),
        outlier="OUTLIER" in row.get("check_flags", ""),
    )


def group_of(spec: Spec) -> str:
    """Source and model without their names: the stack's family, and the model's widths.

    Models of equal widths are one group however deep they are, and sources that ran the same
    stack are not told apart.
    """
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    experts = model.experts.count if model.experts is not None else 0
    family = train.stack.partition("-")[0]
    return f"{family}/{model.hidden}x{model.ffn}x{experts}"


def work_of(row: Row, spec: Spec) -> tuple[str, ...]:
    """What rows have in common that did the same work: among them layouts are ranked."""
    assert spec.train is not None
    columns = ("layers", "hidden", "ffn", "heads", "experts", "gpu", "gpus", "seq")
    shape = tuple(row[name] for name in columns)
    return (*shape, row["global_batch_seqs"], spec.train.precision, spec.train.stack, task_of(row))


def reason_to_skip(row: Row) -> str | None:
    """Why a row cannot be scored."""
    if row["gpu"] not in NODES:
        return "accelerator not modelled"
    flags = row.get("check_flags", "")
    for flag in CONTRADICTS:
        if flag in flags:
            repeats = flag == "COPY_OF"
            return "repeats another row" if repeats else "contradicts itself"
    for what, names in NEEDED.items():
        if not all(row[name] for name in names):
            return f"{what} not stated"
    if row["experts"] and not row["ep"]:
        return "degrees not stated"
    if not speed(row):
        return "speed not stated"
    if "ZB-2p" in row.get("notes", ""):
        return "schedule ZB-2p is not in the language"
    return None


def speed(row: Row) -> float:
    """Tokens/s a GPU, from the step time where that is printed; 0 where no speed is."""
    if row["step_time_s"] and row["global_batch_seqs"] and row["seq"] and row["gpus"]:
        tokens = float(row["global_batch_seqs"]) * float(row["seq"])
        return tokens / float(row["step_time_s"]) / float(row["gpus"])
    return float(row["tokens_per_s_per_gpu"] or 0)


def task_of(row: Row) -> str:
    """`lora`, `sft` or `pretrain`."""
    words = row.get("notes", "").lower()
    if "lora" in words:
        return "lora"
    return "sft" if "sft" in words else "pretrain"


def kind_of(spec: Spec, row: Row) -> str:
    """The class that a row is counted in."""
    assert spec.train is not None and spec.model is not None
    if task_of(row) != "pretrain":
        return "finetune"
    if spec.model.experts is not None:
        return "moe"
    low = {"fp8": "dense_fp8", "mxfp8": "dense_fp8", "nvfp4": "dense_fp4"}
    return low.get(spec.train.precision, "dense_bf16")


def family_name(gpu: str) -> str:
    """The accelerator's generation: `GB200-NVL72` --> `Blackwell`."""
    if gpu.startswith(("B", "GB")):
        return "Blackwell"
    return gpu.split("-")[0]


# ── The spec ──────────────────────────────────────────────────────────────────


def spec_of(row: Row, usual: Usual) -> Spec:
    """The spec of a row that states what is needed."""
    model = _model(row)
    base = presets.base()
    cluster = _cluster(row, usual)
    parallel = _parallel(row, base.parallel, usual, model, cluster)
    train = _train(row, base.train, usual, parallel)
    return replace(base, model=model, cluster=cluster, parallel=parallel, train=train)


def _number(row: Row, name: str, default: int = 1) -> int:
    found = int(float(row[name])) if row.get(name) else default
    assert found >= min(default, 1), f"{name} = {found}"
    return found


def _model(row: Row) -> Model:
    heads = _number(row, "heads")
    kv = _number(row, "kv_heads", heads)
    layers, hidden, ffn = (_number(row, name) for name in ("layers", "hidden", "ffn"))
    assert hidden >= heads >= kv, "no head has a width"
    experts, top_k = _number(row, "experts", 0), _number(row, "topk", 0)
    vocab = _number(row, "vocab", 51200)
    known = presets.like(hidden=hidden, heads=heads, kv_heads=kv, experts=experts, ffn=ffn)
    if known is not None:
        mtp = 1 if "w/ MTP" in row.get("notes", "") else 0
        made = replace(known, layers=layers, vocab=vocab, mtp_layers=mtp)
        if experts and made.experts is not None:
            dense = min(made.experts.dense_layers, max(0, layers - 1))
            capacity = 1.0 if "tokendrop" in row.get("notes", "") else None
            mixture = replace(
                made.experts,
                top_k=top_k,
                dense_layers=dense,
                capacity=capacity,
                imbalance=_imbalance(row),
            )
            made = replace(made, experts=mixture)
        return made
    plain = presets.model("llama2-7b")
    gated = ffn < 3.6 * hidden or bool(experts)
    if row.get("params_b") and not experts:
        gated = _gated(layers, hidden, ffn, heads, kv, vocab, float(row["params_b"]) * 1e9)
    old = not gated
    mixture = None
    if experts:
        mixture = replace(
            presets.experts(),
            count=experts,
            top_k=top_k,
            ffn=ffn,
            shared_ffn=ffn,
            imbalance=_imbalance(row),
        )
    return replace(
        plain,
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv,
        vocab=vocab,
        head_dim=hidden // heads,
        activation="gelu" if old else "swiglu",
        norm="layernorm" if old else "rmsnorm",
        norm_bias=old,
        bias=("qkv", "out", "mlp") if old else (),
        position="learned" if old else "rope",
        context=_number(row, "seq"),
        tied_embeddings=old,
        experts=mixture,
    )


def _imbalance(row: Row) -> float:
    words = row.get("notes", "").lower()
    return 1.0 if "balance" in words or "drop" in words.replace("dropless", "") else IMBALANCE


def _gated(
    layers: int, hidden: int, ffn: int, heads: int, kv: int, vocab: int, stated: float
) -> bool:
    """Whether three matrices an MLP come closer to the stated parameters than two."""
    attention = 2 * hidden * hidden + 2 * hidden * hidden * kv // heads
    two, three = (
        layers * (attention + matrices * hidden * ffn) + vocab * hidden for matrices in (2, 3)
    )
    return abs(three - stated) < abs(two - stated)


def _cluster(row: Row, usual: Usual) -> Cluster:
    gpus = _number(row, "gpus")
    preset = presets.cluster(NODES[row["gpu"]])
    node = preset.node
    if row["gpu"] == "V100-SXM2-16GB":
        node = replace(node, gpu=presets.gpu("v100-sxm2-16gb"))
    each = _number(row, "gpus_per_node", node.gpus)
    if gpus % each:
        each = gpus if gpus < each else next(n for n in range(each, 0, -1) if gpus % n == 0)
    link = node.link
    assert link is not None
    # A rack of 72 is used by sixty-four where the world is a power of two.
    rack = 64 if link.domain == 72 and gpus % 64 == 0 else link.domain
    domain = rack if link.domain > node.gpus else min(each, link.domain)
    node = replace(
        node, gpus=each, link=replace(link, domain=domain), nic=_nic(row, node.nic, usual)
    )
    return replace(preset, nodes=gpus // each, node=node)


def _nic(row: Row, nic: Nic | None, usual: Usual) -> Nic | None:
    """The cards that the notes name: `4x100Gb`, `1600 Gbps node-node`."""
    if nic is None:
        return None
    words = row.get("notes", "")
    if found := re.search(r"\b(\d)x(\d+)Gb", words):
        return replace(nic, count=int(found[1]), bandwidth_bytes_per_s=float(found[2]) * 1e9 / 8)
    if found := re.search(r"\b(\d+) ?Gbps", words):
        each = float(found[1]) * 1e9 / 8 / nic.count
        return replace(nic, bandwidth_bytes_per_s=each)
    if usual.nic is not None:
        count, rate = usual.nic
        return replace(nic, count=count, bandwidth_bytes_per_s=rate * 1e9 / 8)
    return nic


def _parallel(row: Row, base: Parallel, usual: Usual, model: Model, cluster: Cluster) -> Parallel:
    tp, pp, cp = (_number(row, name) for name in ("tp", "pp", "cp"))
    ep = _number(row, "ep")
    dp = cluster.gpus // (tp * cp * pp)
    zero, shard = sharding(row["zero_stage_or_sharding"], usual, dp * cp)
    words = row.get("notes", "")
    vpp = row.get("vpp", "")
    chunks = int(vpp) if vpp.isdigit() else max(1, -(-(model.layers + 2) // pp) if vpp else 1)
    chunks = fullest(model.layers, pp, chunks)
    schedule = Setting("one_f_one_b")
    if "ZB-1p" in words:
        schedule = Setting("zero_bubble")
    elif "ZB-V" in words:
        schedule, chunks = Setting("zbv"), 2
    elif pp > 1 and chunks > 1:
        schedule = Setting("interleaved", {"chunks": chunks})
    else:
        chunks = 1
    stages = uneven(model.layers, pp * chunks)
    sequence = tp > 1 and (row.get("sp") == "1" or (row.get("sp", "") == "" and usual.sequence))
    return replace(
        base,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=tp if usual.expert_tp and model.experts is not None else 1,
        dp=dp,
        zero=zero,
        shard=shard,
        schedule=schedule,
        stages=stages,
        sequence_parallel=sequence,
        vocab_multiple=128,
    )


def fullest(layers: int, pp: int, chunks: int) -> int:
    """The chunks of a rank, fewer where a stage would have embedding or head alone.

    The language has no stage without a layer; `126 layers, pp 16, 8 chunks` --> 4 chunks.
    """
    if pp * chunks <= layers:
        return chunks
    even = [c for c in range(2, chunks) if pp * c <= layers and (layers + 2) % (pp * c) == 0]
    fitting = [c for c in range(1, chunks) if pp * c <= layers]
    return max(even or fitting, default=chunks)


def uneven(layers: int, steps: int) -> tuple[int, ...] | None:
    """Layers of each stage where they do not divide: embedding and head count as a layer.

    `126, 16` --> `7, 8, …, 8, 7`
    """
    if layers % steps == 0:
        return None
    assert layers >= steps, "more stages than layers"
    if (layers + 2) % steps == 0 and (layers + 2) // steps > 1:
        each = (layers + 2) // steps
        return (each - 1, *([each] * (steps - 2)), each - 1)
    each, rest = divmod(layers, steps)
    first = (steps - rest) // 2
    return tuple(each + (first <= i < first + rest) for i in range(steps))


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


def _train(row: Row, base: Train | None, usual: Usual, parallel: Parallel) -> Train:
    assert base is not None
    micro = _number(row, "micro_batch")
    each = micro * parallel.dp
    batch = each * max(1, round(float(row["global_batch_seqs"]) / each))
    words = row["zero_stage_or_sharding"]
    settings: dict[str, Any] = {"rank": 16, "alpha": 16.0}
    return replace(
        base,
        seq=_number(row, "seq"),
        micro_batch=micro,
        global_batch=batch,
        precision=precision(row["precision"]),
        gradients="bf16" if "PURE" in words else usual.gradients,
        recompute=_recompute(row, usual),
        attention=attention(row["attention"] or usual.attention),
        compile="torch.compile" in row.get("notes", ""),
        lora=Setting("lora", settings) if task_of(row) == "lora" else None,
        stack=stack_of(row),
    )


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


def _recompute(row: Row, usual: Usual) -> Setting:
    """The row's recompute; where it says `selective` of what layers alone, HFU over MFU tells the
    share: the backward repeats a forward, a third of the work."""
    words = row["recompute"] or usual.recompute
    if words == "selective" and row["hfu_pct"] and row["mfu_pct"]:
        share = 3 * (float(row["hfu_pct"]) / float(row["mfu_pct"]) - 1)
        if share > 0.1:
            return Setting("full", {"first": None, "every": max(1, round(1 / share))})
    return recompute(words)


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
