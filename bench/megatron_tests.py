"""Megatron-LM's own functional tests as `.par`: what a row's columns and its test's name state.

A row of such a test has the columns of every row; the rest of its arguments stand in the test's
public `model_config.yaml`, whose name says how it differs from the plain one
(`gpt3_mcore_te_tp2_pp2_qk_layernorm`). Read are words of the name alone, never the whole of it; a
word that the language cannot say makes the row unpriced, with the reason. The shapes of `SHAPES`
are found by their columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Row = Mapping[str, str]

GPUS = {"GB200-NVL72": "gb200-nvl72", "RTX4090": "rtx-4090"}
DEFAULT_VOCAB = 50257  # GPT-2's, where a row leaves it out
RECOMPUTED = {
    "layernorm": "norm",
    "mlp": "mlp",
    "moe_act": "activation",
    "core_attn": "core_attention",
    "moe": "experts",
}
NO_WORD = {
    "tunable_overlap": "microbatches grouped otherwise than by pp",
    "defer_embedding_wgrad": "deferred gradients of the head",
    "fine_grained_offloading": "offloaded activations",
    "cudagraph": "pools of CUDA graphs",
    "muon": "the optimizer muon",
    "uninstall_te": "running without any fused kernel",
    "native_fp8": "parameters gathered in fp8",
    "hybrid_": "state-space layers",
    "nemotron": "state-space layers",
}
"""Words of a name for what the language has no word for."""


USUAL_GPUS = {"megatron_ci_small": 8}
"""GPUs of a source that seldom says otherwise."""

GROUPED = ("groupedgemm", "collective", "top2router")
"""Of the tests of experts and two parallel axes, those that multiply several experts at once; the
later tests all do."""


class Unsaid(Exception):
    """A row that cannot be said in the language; the reason is the argument."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a shape has beside its columns, by the configurations of the tests that run it."""

    mla: str
    dense_ffn: int
    dense_layers: int | None
    vocab_multiple: int


SHAPES = {
    # hidden, heads, experts, top_k
    (1024, 32, 32, 4): Shape("q_rank = 1536 kv_rank = 512", 4096, None, 3232),
    (512, 32, 32, 4): Shape("q_rank = 1536 kv_rank = 512", 4096, None, 3232),
    (512, 8, 8, 4): Shape("q_rank = 256 kv_rank = 128", 2048, 3, 64),
}
"""DeepSeek-V3 in small: latent attention (128 + 64 and 128 wide), a shared expert, first layers
dense (one, or three of those that do not divide by pp), no dropout, RMSNorm."""


def par_of(row: Row) -> str:
    """The `.par` of a row."""
    name = row["model"].lower()
    for word, what in NO_WORD.items():
        if word in name:
            raise Unsaid(f"no word in the language: {what}")
    layers, hidden, heads = (int(row[column]) for column in ("layers", "hidden", "heads"))
    experts, top_k = number(row, "experts", 0), number(row, "topk", 1)
    tp, pp, cp, chunks = (number(row, column, 1) for column in ("tp", "pp", "cp", "vpp"))
    ep = number(row, "ep", 1)
    dp = number(row, "dp", 0) or max(1, gpus_of(row, name) // (tp * pp * cp))
    micro = int(row["micro_batch"])
    batch = number(row, "global_batch_seqs", micro * dp * pp * 8)
    vocab = number(row, "vocab", DEFAULT_VOCAB)
    shape = SHAPES.get((hidden, heads, experts, top_k))
    zero = zero_of(row["zero_stage_or_sharding"])
    if zero and not dp_stated(row) and row["source_group"] not in USUAL_GPUS:
        raise Unsaid("state is sharded over a dp that is not stated")
    shard = ""
    if "multi_dist_optimizer_instances" in name:
        shard = f"shard = {dp // 2}" if dp > 1 else ""
    schedule = f"interleaved(chunks = {chunks})" if chunks > 1 else "one_f_one_b"
    etp = etp_of(name, tp, ep, tp * cp * dp) if experts else 1
    precision = row["precision"] or "bf16"
    # Megatron accumulates and reduces in fp32 for bf16 alone.
    gradients = "bf16" if precision == "fp16" else "fp32"
    multiple = shape.vocab_multiple if shape else 128
    return f"""
model {{
  layers = {layers}  hidden = {hidden}  heads = {heads}  vocab = {vocab}  context = {row["seq"]}
  {_model(row, name, shape)}
}}
cluster {{
  nodes = 1
  node {{ gpus = {tp * pp * cp * dp}  gpu from "{GPUS.get(row["gpu"], row["gpu"].lower())}" }}
}}
parallel {{
  tp = {tp}  sequence_parallel = {"on" if row["sp"] == "1" else "off"}
  pp = {pp}  schedule = {schedule}  cp = {cp}  ep = {ep}  etp = {etp}
  zero = {zero}  {shard}  vocab_multiple = {multiple}  {stages(name, layers, pp, chunks)}
  order = [tp, cp, dp, pp]
}}
train {{
  seq = {row["seq"]}  micro_batch = {micro}  global_batch = {batch}
  precision = {precision}  gradients = {gradients}  recompute = {recompute_of(row["recompute"])}
  attention = {attention_of(row["attention"], name)}  stack = "{stack_of(row, name, shape)}"
}}
"""


def _model(row: Row, name: str, shape: Shape | None) -> str:
    """Fields of the model that the words of a name state, and Megatron's defaults."""
    hidden = int(row["hidden"])
    gated = "swiglu" in row["notes"]
    # A gated MLP without a width gets two thirds of 4h, in multiples of 64.
    plain = int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
    ffn = number(row, "ffn", plain)
    fields = [f"ffn = {shape.dense_ffn if shape else ffn}"]
    fields.append(f"activation = {'swiglu' if gated else 'gelu'}")
    if row["experts"]:
        count, top_k = int(row["experts"]), number(row, "topk", 1)
        more = ""
        if shape:
            dense = shape.dense_layers or (
                1 if int(row["layers"]) % number(row, "pp", 1) == 0 else 3
            )
            more = f"shared = 1 dense_layers = {dense} router = sigmoid router_bias = on"
        fields.append(f"experts {{ count = {count} top_k = {top_k} ffn = {ffn} {more} }}")
    if shape:
        width = "nope_dim = 128 rope_dim = 64 v_dim = 128"
        fields.append(f"mla {{ {shape.mla} {width} }} norm = rmsnorm position = rope")
        mtp = number(row, "experts", 0) == 32 and hidden == 1024 and "no_mtp" not in name
        fields.append(f"mtp_layers = {int(mtp)} tied_embeddings = off bias = none")
        return "\n  ".join(fields)
    fields.append(f"kv_heads = {number(row, 'kv_heads', number(row, 'heads', 1))}")
    fields.append("norm = layernorm dropout = 0.1")
    fields.append(f"position = {'rope' if 'rope' in name else 'learned'}")
    # Experts' tests leave biases out.
    fields.append(f"bias = {'none' if 'disable_bias' in name or row['experts'] else 'all'}")
    untied = "untie" in name or number(row, "vocab", DEFAULT_VOCAB) != DEFAULT_VOCAB
    fields.append(f"tied_embeddings = {'off' if untied else 'on'}")
    if "qk_layernorm" in name:
        fields.append("qk_norm = per_head")
    return "\n  ".join(fields)


def dp_stated(row: Row) -> bool:
    """Whether a row says over how many ranks data is parallel."""
    return bool(row["dp"] or row["gpus"])


def gpus_of(row: Row, name: str) -> int:
    """GPUs of the job: the source's usual number where a row has none, half on one GB200 node."""
    usual = USUAL_GPUS.get(row["source_group"], 8)
    return number(row, "gpus", usual // 2 if name.endswith("1node") else usual)


def number(row: Row, name: str, default: int) -> int:
    """A column as a whole number."""
    return int(row[name] or default)


def stages(name: str, layers: int, pp: int, chunks: int) -> str:
    """Layers of each stage: uneven by name, or because they do not divide.

    Uneven tests give half of a stage's layers to first and last; embedding and loss count as a
    layer each where the layers do not divide.
    """
    steps = pp * chunks
    if "uneven_pipeline" in name and chunks == 1 and (layers + pp) % pp == 0:
        inner = (layers + pp) // pp
        return f"stages = [{', '.join(map(str, (inner - 2, *[inner] * (pp - 2), inner - 2)))}]"
    if layers % steps == 0:
        return ""
    inner = -(-(layers + 2) // steps)
    rest = layers - 2 * (inner - 1)
    if steps > 2 and rest == inner * (steps - 2):
        counts = [inner - 1, *[inner] * (steps - 2), inner - 1]
    else:
        counts = [layers // steps + (i < layers % steps) for i in range(steps)]
    return f"stages = [{', '.join(map(str, counts))}]"


def stack_of(row: Row, name: str, shape: Shape | None) -> str:
    """The stack with its words."""
    words = ["megatron"]
    if "deterministic mode" in row["notes"]:
        words.append("deterministic")
    if local(name):
        words.append("local")
    if "loss_fusion" in name or (shape and shape.dense_layers is None):
        words.append("fused_loss")
    if "2parallel" in name and not any(word in name for word in GROUPED):
        words.append("sequential")
    if "no_create_attention_mask" not in name and not shape:
        words.append("masks")
    return "-".join(words)


def local(name: str) -> bool:
    """Whether the test runs Megatron's own layers: its name lacks Transformer Engine's `te`."""
    return "mcore" in name and "te" not in re.split(r"[/_]", name)


def zero_of(words: str) -> int:
    """The ZeRO stage that a row's words stand for."""
    if "ZeRO-1" in words or "distributed optimizer" in words:
        return 1
    if "optim_grads_params" in words or "ZeRO-3" in words:
        return 3
    return 2 if "ZeRO-2" in words or "optim_grads" in words else 0


def etp_of(name: str, tp: int, ep: int, ranks: int) -> int:
    """Megatron cuts experts over tp unless told otherwise."""
    if found := re.search(r"etp(\d+)", name):
        return int(found[1])
    return min(tp, max(1, ranks // ep))


def recompute_of(words: str) -> str:
    """A row's recompute as the language writes it."""
    if not words or words == "none":
        return "none"
    if words.startswith("full"):
        return "full"
    inside = re.search(r"\[(.*)\]", words)
    parts = inside[1].split() if inside else []
    if unsaid := [part for part in parts if part not in RECOMPUTED]:
        raise Unsaid(f"no word in the language: recompute of {', '.join(unsaid)}")
    return f"selective({', '.join(RECOMPUTED[part] for part in parts)})" if parts else "selective"


def attention_of(words: str, name: str) -> str:
    """The kernel; one that is not stated is the fused one, but for Megatron's own layers."""
    if words:
        return "math" if re.search("unfused|non-flash|math", words) else "flash"
    return "math" if local(name) else "flash"
