"""The columns of a row --> a resolved spec. What has no column comes from the catalog's model of
the same shape, whatever the row calls it, or from what the row's stack usually does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import presets
from parlay.compiler.spec.blocks import Cluster, Model, Nic, Parallel, Spec, Train
from parlay.compiler.spec.schema import Setting
from stacks import UNFUSED_LATENTS, Row, Usual, stack_of
from stages import chunks_of, uneven
from words import attention, precision, recompute, sharding

NODES = {
    "A100-SXM-80GB": "dgx-a100",
    "A100-SXM-40GB": "a100-40gb-8",
    "A100-PCIe-40GB": "a100-pcie-pairs",
    "A100-PCIe-80GB": "a100-pcie-pairs",
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
    "V100-PCIe-32GB": "l40s-8",
    "A10": "l40s-8",
    "MI250X": "mi250x-8",
    "MI300X": "mi300x-8",
    "MI325X": "mi325x-8",
    "MI355X": "mi355x-8",
    "L40S": "l40s-8",
    "RTX-4090": "rtx-4090-8",
}
OTHER_GPU = {
    "A100-PCIe-40GB": "a100-pcie-40gb",
    "V100-SXM2-16GB": "v100-sxm2-16gb",
    "V100-PCIe-32GB": "v100-pcie-32gb",
    "A10": "a10",
}
"""Accelerators whose node is that of another one but for themselves."""
IMBALANCE = 1.15
"""Busiest expert over the mean under a trained router; rows that force balance say so."""


def gpu_named(words: str) -> str:
    """The accelerator of the table that a cell means: `H200-SXM-141GB` --> `H200-SXM`.

    A name that is not in the table is the first one that starts with its first word, on the same
    kind of board where it says which; what starts like none stays as it is.
    """
    if words in NODES:
        return words
    first, *rest = words.upper().replace("_", "-").replace(" ", "-").split("-")
    alike = [name for name in NODES if name.upper().split("-")[0] == first]
    board = [name for name in alike if set(name.upper().split("-")[1:2]) & set(rest)]
    return next(iter(board or alike), words)


def task_of(row: Row) -> str:
    """`lora`, `sft` or `pretrain`."""
    words = row.get("notes", "").lower()
    if "lora" in words:
        return "lora"
    return "sft" if "sft" in words else "pretrain"


def spec_of(row: Row, usual: Usual) -> Spec:
    """The spec of a row that states what is needed."""
    model = _model(row, usual)
    base = presets.base()
    cluster = _cluster(row, usual)
    parallel = _parallel(row, base.parallel, usual, model, cluster)
    if model.mla is not None and unfused_latents(row):
        usual = replace(usual, attention="math", recompute="selective (core attention)")
    train = _train(row, base.train, usual, parallel)
    return replace(base, model=model, cluster=cluster, parallel=parallel, train=train)


def unfused_latents(row: Row) -> bool:
    """Whether a row's stack has no fused kernel of latent attention on its GPU."""
    blackwell = row["gpu"].startswith(("B", "GB"))
    return blackwell and stack_of(row).startswith(UNFUSED_LATENTS)


def _number(row: Row, name: str, default: int = 1) -> int:
    found = int(float(row[name])) if row.get(name) else default
    assert found >= min(default, 1), f"{name} = {found}"
    return found


def _model(row: Row, usual: Usual) -> Model:
    heads = _number(row, "heads")
    kv = _number(row, "kv_heads", heads)
    layers, hidden, ffn = (_number(row, name) for name in ("layers", "hidden", "ffn"))
    assert hidden >= heads >= kv, "no head has a width"
    experts, top_k = _number(row, "experts", 0), _number(row, "topk", 0)
    assert not experts or top_k <= experts, "a token goes to more experts than there are"
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
                imbalance=_imbalance(row, usual),
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
            imbalance=_imbalance(row, usual),
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


def _imbalance(row: Row, usual: Usual) -> float:
    words = row.get("notes", "").lower()
    even = usual.balanced or "balance" in words or re.search(r"token[ -]?drop(?!less)", words)
    return 1.0 if even else IMBALANCE


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
    if row["gpu"] in OTHER_GPU:
        node = replace(node, gpu=presets.gpu(OTHER_GPU[row["gpu"]]))
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
    etp = _expert_tp(row, usual, cluster.gpus // pp) if model.experts is not None else 1
    assert cluster.gpus % (tp * cp * pp) == 0, "tp, cp and pp do not divide the GPUs"
    assert cluster.gpus % (ep * etp * pp) == 0, "ep does not divide the GPUs of a stage"
    dp = cluster.gpus // (tp * cp * pp)
    zero, shard = sharding(row["zero_stage_or_sharding"], usual, dp * cp)
    words = row.get("notes", "")
    chunks = chunks_of(row, usual, model.layers, pp, dp)
    schedule = Setting("one_f_one_b")
    if "ZB-V" in words and 2 * pp <= model.layers:
        schedule, chunks = Setting("zbv"), 2
    elif "ZB-1p" in words or "ZB-V" in words:  # the latter with ends of no layer
        schedule, chunks = Setting("zero_bubble"), 1
    elif pp > 1 and chunks > 1:
        schedule = Setting("interleaved", {"chunks": chunks})
    else:
        chunks = 1
    stages = uneven(model.layers, pp * chunks, pp)
    sequence = tp > 1 and (row.get("sp") == "1" or (row.get("sp", "") == "" and usual.sequence))
    return replace(
        base,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=etp,
        dp=dp,
        zero=zero,
        shard=shard,
        schedule=schedule,
        stages=stages,
        sequence_parallel=sequence,
        vocab_multiple=128,
    )


def _expert_tp(row: Row, usual: Usual, stage: int) -> int:
    """Over how many ranks an expert is cut: as the notes say, else over tp where that was usual and
    the `stage` GPUs of a stage hold so many."""
    if found := re.search(r"\betp ?= ?(\d+)", row.get("notes", "").lower()):
        return int(found[1])
    tp = _number(row, "tp")
    return tp if usual.expert_tp and stage % (_number(row, "ep") * tp) == 0 else 1


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


def _recompute(row: Row, usual: Usual) -> Setting:
    """The row's recompute; where it says `selective` of what layers alone, HFU over MFU tells the
    share: the backward repeats a forward, a third of the work."""
    words = row["recompute"] or usual.recompute
    if words == "selective" and row["hfu_pct"] and row["mfu_pct"]:
        share = 3 * (float(row["hfu_pct"]) / float(row["mfu_pct"]) - 1)
        if share > 0.1:
            return Setting("full", {"first": None, "every": max(1, round(1 / share))})
    return recompute(words)
