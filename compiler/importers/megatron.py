"""Megatron-LM to `.par`: command lines, launch scripts and arguments.txt, read and never run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import lcm
from pathlib import Path
from typing import Final

from parlay.compiler.backends.megatron.passed import GOVERNED
from parlay.compiler.importers import arguments
from parlay.compiler.importers.arguments import Arguments, option_of
from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.megatron_model import model
from parlay.compiler.importers.megatron_recipe import recipe, services
from parlay.compiler.importers.written import Draft, Imported, listing, string, switch, value

NODE: Final = "dgx-h100"
CHOSEN: Final = (
    ("--distributed-backend", ("nccl",)),
    ("--transformer-impl", ("transformer_engine",)),
    ("--moe-token-dispatcher-type", ("alltoall",)),
    ("--log-throughput", ()),
    ("--no-bias-gelu-fusion", ()),
)
"""What the back end writes out by itself, so that it need not stand in the file."""

OTHER_KINDS: Final = re.compile(r"bert|t5|ict|retro|vision|vit|dino|vlm|multimodal|mamba|hybrid")
"""What names a script that trains something else than a decoder of attention and MLPs."""

BLOCKS: Final = ("model", "cluster", "parallel", "train", "data", "checkpoint", "log")


def read(path: Path, *, gpus: int | None = None, node: str = NODE) -> Imported:
    """The job of a file; raises `Unreadable` with the reason where it gives none."""
    given = arguments.read(path)
    return drafted(given, f"From {path.name}, a run of Megatron-LM.", gpus, node).finished()


def drafted(given: Arguments, title: str, gpus: int | None, node: str) -> Draft:
    """The blocks of a command line; raises `Unreadable` where it lacks a size."""
    if OTHER_KINDS.search(given.script.removesuffix(".py").removeprefix("pretrain_").lower()):
        raise Unreadable(f"{given.script} trains another kind of model than a decoder")
    draft = Draft(title, {name: {} for name in BLOCKS})
    draft.blocks["target megatron"] = {}
    draft.heads["target megatron"] = 'target "megatron"'
    seq = given.whole("--seq-length") or given.whole("--encoder-seq-length")
    if seq is None:
        raise Unreadable("--seq-length is not given as a number")
    model(given, draft, seq=seq)
    world = _cluster(given, draft, gpus=gpus, node=node)
    replicas = _parallel(given, draft, world)
    recipe(given, draft, seq=seq, replicas=replicas)
    services(given, draft)
    _experts_as_they_are(given, draft)
    _rest(given, draft)
    draft.lost += given.lost
    if not draft.blocks["target megatron"]:
        del draft.blocks["target megatron"], draft.heads["target megatron"]
    return draft


# ── Machines and degrees ──────────────────────────────────────────────────────


def _cluster(given: Arguments, draft: Draft, *, gpus: int | None, node: str) -> int:
    """The number of GPUs."""
    each = _number(given, ("nproc-per-node",), ("GPUS_PER_NODE", "NPROC_PER_NODE", "GPU_NUM"))
    nodes = _number(given, ("nnodes",), ("NNODES", "NUM_NODES", "SLURM_NNODES"))
    if gpus is not None:
        each = min(each or 8, gpus)
        nodes = -(-gpus // each)
    each = each or 8
    needed = _needed(given)
    if nodes is None or (nodes * each) % needed:
        said = "too few for these degrees" if nodes is not None else "not given"
        nodes = lcm(needed, each) // each
        draft.assumed.append(f"nodes = {nodes} of {each} GPUs: their number is {said}")
    draft.assumed.append(f'node from "{node}": the kind of machine is not given')
    draft.set("cluster.nodes", str(nodes))
    inside = "" if each == 8 else f" {{ gpus = {each} }}"
    draft.set("cluster.@node", f"node from {string(node)}{inside}")
    if nodes > 1:
        draft.set("cluster.@fabric", "fabric { kind = infiniband }")
    return nodes * each


def _number(given: Arguments, options: Sequence[str], names: Sequence[str]) -> int | None:
    found = [given.launcher.get(option, "") for option in options]
    found += [given.environment.get(name, "") for name in names]
    return next((int(text) for text in found if text.isdecimal() and int(text) > 0), None)


def _degrees(given: Arguments) -> tuple[int, int, int]:
    tp = given.whole("--tensor-model-parallel-size") or 1
    pp = given.whole("--pipeline-model-parallel-size") or 1
    cp = given.whole("--context-parallel-size") or 1
    return tp, pp, cp


def _needed(given: Arguments) -> int:
    """The least number of GPUs that dense layers and experts fit on."""
    tp, pp, cp = _degrees(given)
    dense = tp * pp * cp
    if "--num-experts" not in given.values:
        return dense
    ep = given.whole("--expert-model-parallel-size") or 1
    etp = given.whole("--expert-tensor-parallel-size") or tp
    return lcm(dense, etp * ep * pp)


def _parallel(given: Arguments, draft: Draft, world: int) -> int:
    """The number of replicas."""
    tp, pp, cp = _degrees(given)
    draft.set("parallel.tp", str(tp))
    if tp > 1:
        draft.set("parallel.sequence_parallel", switch(given.has("--sequence-parallel")))
    given.has("--sequence-parallel")
    draft.set("parallel.pp", str(pp))
    _stages(given, draft, pp)
    if cp > 1:
        draft.set("parallel.cp", str(cp))
        _context(given, draft)
    ep = given.whole("--expert-model-parallel-size", 1)
    etp = given.whole("--expert-tensor-parallel-size", tp)
    if "--num-experts" in given.values:
        draft.set("parallel.ep", str(ep))
        draft.set("parallel.etp", str(etp))
    replicas = world // (tp * pp * cp)
    draft.set("parallel.dp", str(replicas))
    zero = _zero(given, draft)
    draft.set("parallel.zero", str(zero))
    instances = given.whole("--num-distributed-optimizer-instances", 1) or 1
    if instances > 1:
        draft.set("parallel.shard", str(replicas * cp // instances))
    mapped = given.has("--use-tp-pp-dp-mapping")
    order = "tp, cp, ep, pp, dp" if mapped else "tp, cp, ep, dp, pp"
    draft.set("parallel.order", listing(order.split(", ")))
    gradients = given.has("--overlap-grad-reduce")
    gathers = given.has("--overlap-param-gather")
    draft.set("parallel.overlap", switch(gradients))
    if gradients and zero and not gathers:
        draft.lost.append("gathers of parameters that do not overlap: they do in the file")
    multiple = given.whole("--make-vocab-size-divisible-by", 128)
    draft.set("parallel.vocab_multiple", str(multiple))
    if given.has("--optimizer-cpu-offload"):
        given.has("--use-precision-aware-optimizer")
        draft.set("parallel.offload", "cpu(optimizer)")
    return replicas


def _context(given: Arguments, draft: Draft) -> None:
    kinds = given.list("--cp-comm-type") or ("p2p",)
    sizes = given.list("--hierarchical-context-parallel-sizes")
    names = {"p2p": "ring", "allgather": "allgather", "all_gather": "allgather", "a2a": "ulysses"}
    if len(set(kinds)) > 1:
        draft.lost.append(f"--cp-comm-type {' '.join(kinds)}: the first is written")
    if kinds[0] == "a2a+p2p" and len(sizes) == 2 and all(size.isdecimal() for size in sizes):
        inner, outer = sizes
        draft.set("parallel.cp_method", f"ulysses_ring(inner = {inner}, outer = {outer})")
        return
    if kinds[0] not in names:
        draft.lost.append(f"--cp-comm-type {kinds[0]}: ring is written")
    draft.set("parallel.cp_method", names.get(kinds[0], "ring"))


def _zero(given: Arguments, draft: Draft) -> int:
    cut = given.has("--use-distributed-optimizer")
    strategy = given.text("--data-parallel-sharding-strategy", "no_shard")
    if given.has("--use-megatron-fsdp") or given.has("--use-custom-fsdp"):
        zero = {"optim_grads": 2, "optim_grads_params": 3}.get(strategy or "")
        if zero is not None:
            return zero
        draft.lost.append(f"--use-megatron-fsdp with {strategy}: zero = {int(cut)} is written")
    if given.has("--use-torch-fsdp2"):
        draft.lost.append("--use-torch-fsdp2: zero = 3 is written")
        return 3
    return int(cut)


# ── Stages ────────────────────────────────────────────────────────────────────


def _stages(given: Arguments, draft: Draft, pp: int) -> None:
    layers = int(draft.blocks["model"]["layers"])
    chunks = given.whole("--num-virtual-stages-per-pipeline-rank")
    each = given.whole("--num-layers-per-virtual-pipeline-stage")
    written = given.text("--pipeline-model-parallel-layout")
    first, last = (given.whole(f"--decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    if pp == 1:
        return
    if written is not None:
        counts = layers_of(written)
        if counts is None or sum(counts) != layers or len(counts) % pp:
            draft.lost.append(f"--pipeline-model-parallel-layout {written}")
            return
        chunks = len(counts) // pp
        stages = listing(map(str, counts))
        if min(counts) < 1:
            draft.lost.append(f"--pipeline-model-parallel-layout {written}: stages = auto")
            stages = "auto"
        draft.set("parallel.stages", stages)
    elif first is not None or last is not None:
        ends = [end for end in (first, last) if end is not None]
        middle, rest = divmod(layers - sum(ends), max(1, pp - len(ends)))
        if rest or middle < 0:
            draft.lost.append(f"stages of {first} first and {last} last layers")
        else:
            counts = [middle] * (pp - len(ends))
            counts = [*([first] if first is not None else []), *counts]
            counts += [last] if last is not None else []
            draft.set("parallel.stages", listing(map(str, counts)))
    elif each:
        chunks = max(1, layers // pp // each)
    if chunks is not None and chunks > 1:
        draft.set("parallel.schedule", f"interleaved(chunks = {chunks})")


def layers_of(written: str) -> list[int] | None:
    """Layers of each stage of a layout string: `Et*3|t*4|t*3L` --> `[3, 4, 3]`."""
    text = written.replace(",", "").replace(" ", "")
    for _ in range(8):
        grown = re.sub(r"\(([^()]*)\)\*(\d{1,4})", _repeated, text)
        grown = re.sub(r"([EtmL])\*(\d{1,4})", _repeated, grown)
        if len(grown) > 100_000:
            return None
        if grown == text:
            break
        text = grown
    if not re.fullmatch(r"[EtmL|]+", text):
        return None
    return [stage.count("t") for stage in text.split("|")]


def _repeated(found: re.Match[str]) -> str:
    return found[1] * min(int(found[2]), 100_000 // max(1, len(found[1])))


# ── What is left ──────────────────────────────────────────────────────────────


def _experts_as_they_are(given: Arguments, draft: Draft) -> None:
    """Defaults of the framework that the back end would not choose."""
    if "--num-experts" not in given.values:
        return
    if "--moe-token-dispatcher-type" not in given.values:
        draft.set("target megatron.options.moe_token_dispatcher_type", "allgather")
    if not given.has("--moe-grouped-gemm"):
        draft.set("target megatron.options.moe_grouped_gemm", "off")
    if "--moe-router-pre-softmax" in given.values and given.text("--moe-router-topk", "2") == "1":
        given.has("--moe-router-pre-softmax")


def _rest(given: Arguments, draft: Draft) -> None:
    """Everything that no field takes: options of the target, and comments where none may stand."""
    saved = "fsdp_dtensor" if draft.blocks["parallel"]["zero"] in ("2", "3") else "torch_dist"
    for name, values in given.rest():
        option = option_of(name)
        shown = " ".join((name, *values))
        key = name[2:].replace("-", "_")
        if option is None or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            draft.lost.append(f"{shown}: no known option")
        elif option.dest in GOVERNED or any("$" in value for value in values):
            draft.lost.append(shown)
        elif (name, values) in CHOSEN or (name, values) == ("--ckpt-format", (saved,)):
            continue
        elif option.flag:
            draft.set(f"target megatron.options.{key}", "on")
        elif values:
            text = value(values[0]) if len(values) == 1 else listing(map(value, values))
            draft.set(f"target megatron.options.{key}", text)
        else:
            draft.lost.append(f"{shown}: without a value")
