"""One tiny job for each published figure: id -> the `.par`, the command, and where it prints it.

A path walks the JSON document; `[name=value]` picks the first element of a list that has it. Rows
of a speed that was measured state it with `--at`.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A job, a command and a path; `scale` brings the printed unit to the published one."""

    par: str
    path: str
    command: str = "ledger FILE --json"
    scale: float = 1.0


class Refused(NamedTuple):
    """A job, a command, the family of the error and words in it."""

    par: str
    command: str
    family: str
    words: str = ""


def at(speed: str) -> str:
    """The ledger at a speed that was measured."""
    return f"ledger FILE --json --at {speed}"


MEMORY = "phases.0.memory."
FIRST = MEMORY + "rank_classes.0.peak_bytes"
LAYER = MEMORY + "layers.0."
ROOM = "gpu { memory = 80GB }"

# ── Jobs ──────────────────────────────────────────────────────────────────────


def states(params: str, nodes: int = 1, parallel: str = "", train: str = "gradients = bf16") -> str:
    """A model without a shape on nodes of eight GPUs of 80e9 bytes, without links."""
    return f"""
model {{ params = {params} }}
cluster {{ nodes = {nodes}  node {{ gpus = 8  {ROOM} }} }}
parallel {{ {parallel} }}
train {{ seq = 8  micro_batch = 1  global_batch = 1024  {train} }}
"""


def layers(
    *,
    hidden: int = 8192,
    heads: int = 64,
    seq: int = 8192,
    count: int = 1,
    tp: int = 1,
    parallel: str = "",
    train: str = "attention = math",
    node: str = "",
) -> str:
    """Layers of the GPT kind with dropout, as Megatron keeps them."""
    return f"""
model {{
  layers = {count}  hidden = {hidden}  heads = {heads}  ffn = {4 * hidden}  vocab = 1024
  activation = gelu  norm = layernorm  dropout = 0.1
}}
cluster {{ node {{ gpus = {tp}  {node or ROOM} }} }}
parallel {{ tp = {tp}  {parallel} }}
train {{ seq = {seq}  micro_batch = 1  global_batch = 1  stack = "megatron"  {train} }}
"""


def piped(schedule: str, pp: int, microbatches: int, *, layers: int = 0, micro: int = 1) -> str:
    """A small model over a pipeline of `pp` GPUs."""
    return f"""
model {{ layers = {layers or 4 * pp}  hidden = 64  heads = 4  ffn = 128  vocab = 256 }}
cluster {{ node {{ gpus = {pp}  gpu from "h100-sxm-80gb" }} }}
parallel {{ pp = {pp}  schedule = {schedule} }}
train {{ seq = 128  micro_batch = {micro}  global_batch = {micro * microbatches} }}
"""


def preset(model: str, more: str = "") -> str:
    """A model of the catalog on one large node."""
    return f"""
model from "{model}" {{ {more} }}
cluster {{ node from "dgx-h100" }}
"""


def world(gpus: int, degrees: str, node: str = "dgx-h100") -> str:
    """Degrees on a cluster of eight-GPU nodes."""
    return f"""
model {{ params = 7B }}
cluster {{ nodes = {gpus // 8}  node from "{node}" }}
parallel {{ {degrees} }}
"""


def traffic(zero: int) -> str:
    """Plain data parallelism at equal dtypes and one microbatch."""
    return f"""
model {{ layers = 4  hidden = 256  heads = 4  ffn = 512  vocab = 512 }}
cluster {{ node from "dgx-h100" }}
parallel {{ zero = {zero} }}
train {{ seq = 128  micro_batch = 1  global_batch = 8  gradients = bf16 }}
"""


KAHAN = (
    "precision = bf16  gradients = bf16  master = none  "
    "optimizer = adamw(lr = 3e-4, states = bf16, kahan = on)"
)
SMALL = "hidden = 12288"
GPT3 = {"hidden": 12288, "heads": 96, "seq": 2048, "tp": 8}
LLAMA405 = "tp = 8  pp = 16"
FABRIC = "phases.0.links.{}.ms_per_gib"


def _wire(nodes: int, gpus: int = 8, params: str = "500M") -> str:
    return f"""
model {{ params = {params} }}
cluster {{
  nodes = {nodes}
  node {{
    gpus = {gpus}  {ROOM}
    link {{ kind = nvlink  bandwidth = 450GB/s }}
    nic {{ count = {gpus}  bandwidth = 400Gb/s }}
  }}
}}
train {{ seq = 8  micro_batch = 1  global_batch = {nodes * gpus}  gradients = bf16 }}
"""


def _links(link: str, nic: str) -> str:
    return f"""
model {{ params = 1B }}
cluster {{
  nodes = 2
  node {{
    gpus = 8
    gpu {{ memory = 80GB  bandwidth = 3350GB/s }}
    link {{ kind = nvswitch  bandwidth = {link} }}
    host {{ bandwidth = 63GB/s }}
    nic {{ count = 8  bandwidth = {nic} }}
  }}
}}
"""


def gathers(latency: str = "16.5us", nodes: int = 2, precision: str = "fp32") -> str:
    """ZeRO-3 over nodes of eight GPUs with a card of 200 Gb/s each."""
    return f"""
model {{ layers = 4  hidden = 256  heads = 4  ffn = 512  vocab = 512 }}
cluster {{
  nodes = {nodes}
  node {{
    gpus = 8  {ROOM}
    link {{ kind = nvlink  bandwidth = 300GB/s }}
    nic {{ count = 8  bandwidth = 200Gb/s  latency = {latency} }}
  }}
}}
parallel {{ zero = 3 }}
train {{ seq = 128  micro_batch = 1  global_batch = {8 * nodes}  precision = {precision} }}
"""


def whole_run(model: str, nodes: int, train: str, *, node: str = "", more: str = "") -> str:
    """A run on DGX H100 nodes of a model with or without a shape."""
    return f"""
model {model}
cluster {{ nodes = {nodes}  node from "dgx-h100" {{ {node} }}  {more} }}
parallel {{ tp = 8  pp = 16  stages = auto }}
train {{ seq = 8192  micro_batch = 1  {train} }}
"""


def useful(restart: str) -> str:
    """Llama 3's 16,384 GPUs: 419 interruptions in 54 days, 2 TB/s of storage."""
    return (
        whole_run(
            'from "llama3.1-405b"',
            2048,
            "global_batch = 2048  steps = 1",
            more=f"""
  storage {{ bandwidth = 2TB/s }}
  reliability {{ gpu_mtbf = 54d * 16384 / 419  restart = {restart} }}""",
        )
        + "checkpoint { async = on }"
    )


def priced(steps: int, nodes: int = 256, price: str = "2$/h") -> str:
    """A run of so many steps with a price of the accelerator."""
    node = f"gpu {{ price = {price} }}"
    return whole_run("{ params = 671B }", nodes, f"global_batch = 2048  steps = {steps}", node=node)


# ── Figures ───────────────────────────────────────────────────────────────────

CASES: dict[str, Case] = {
    # States
    **{f"zero{zero}_7.5B": Case(states("7.5B", 8, f"zero = {zero}"), FIRST) for zero in range(4)},
    **{
        f"bf16kahan_zero{zero}": Case(
            states("1B", 1, f"zero = {zero}", KAHAN), MEMORY + "state.largest_params"
        )
        for zero in range(4)
    },
    "state_70B": Case(states("70B"), MEMORY + "state.total_bytes"),
    "state_70B_fp32grad": Case(states("70B", train=""), MEMORY + "state.total_bytes"),
    "state_tp8pp4_7.5B": Case(states("7.5B", 8, "tp = 8  pp = 4"), FIRST),
    "state_tp8pp4_70B": Case(states("70B", 8, "tp = 8  pp = 4"), FIRST),
    "state_tp8pp4_175B": Case(states("175B", 8, "tp = 8  pp = 4"), FIRST),
    "zero1_dp2": Case(states("7.5B", 8, "tp = 8  pp = 4  zero = 1"), FIRST),
    "cards_70B_state": Case(states("70B"), MEMORY + "state.gpus_needed"),
    "dsv3_bf16": Case(states("671B"), MEMORY + "state.weights_total_bytes"),
    "ffn_405B": Case(
        preset("llama3.1-405b"), "phases.0.parameters.tensors.[name=mlp.up.weight].bytes"
    ),
    # Activations
    "act_linear_70B": Case(layers(), LAYER + "linear_bytes"),
    "act_quad_70B": Case(layers(), LAYER + "square_bytes"),
    "act_crossover_70B": Case(layers(), LAYER + "crossover_tokens"),
    "act_70B_layer": Case(layers(), LAYER + "bytes"),
    "act_70B_all": Case(layers(count=80), MEMORY + "layers_bytes"),
    "cards_70B_act": Case(layers(count=80), MEMORY + "layers_gpus_needed"),
    "act_tp": Case(
        layers(**GPT3, parallel="sequence_parallel = off"),  # type: ignore[arg-type]
        LAYER + "bytes",
    ),
    "act_tp_sp": Case(layers(**GPT3), LAYER + "bytes"),  # type: ignore[arg-type]
    "act_tp_sel": Case(
        layers(
            **GPT3,  # type: ignore[arg-type]
            parallel="sequence_parallel = off",
            train="attention = math  recompute = selective",
        ),
        LAYER + "bytes",
    ),
    "act_tp_sp_sel": Case(
        layers(**GPT3, train="attention = math  recompute = selective"),  # type: ignore[arg-type]
        LAYER + "bytes",
    ),
    "act_full": Case(
        layers(hidden=12288, heads=96, seq=2048, train="attention = math  recompute = full"),
        LAYER + "bytes",
    ),
    "selective_overhead_gpt3": Case(
        layers(**GPT3, train="attention = math  recompute = selective"),  # type: ignore[arg-type]
        "phases.0.recompute.published_extra_flops",
    ),
    "full_recompute_overhead": Case(
        layers(train="recompute = full"), "phases.0.recompute.published_extra_flops"
    ),
    # Pipelines
    "bubble_gpipe": Case(piped("gpipe", 4, 16), "phases.0.pipeline.bubble"),
    "bubble_ratio_8_64": Case(piped("one_f_one_b", 8, 64), "phases.0.pipeline.bubble_over_ideal"),
    "bubble_ratio_8_256": Case(piped("one_f_one_b", 8, 256), "phases.0.pipeline.bubble_over_ideal"),
    "bubble_interleaved": Case(
        piped("interleaved(chunks = 4)", 8, 64), "phases.0.pipeline.bubble_over_ideal"
    ),
    "forward_slots": Case(piped("one_f_one_b", 4, 4), "phases.0.pipeline.forward_slots"),
    "bubble_1f1b_time": Case(piped("one_f_one_b", 8, 16), "phases.0.pipeline.idle"),
    "bubble_zb1p_time": Case(piped("zero_bubble", 8, 16), "phases.0.pipeline.idle"),
    "bubble_dualpipe_time": Case(piped("dualpipe", 8, 16), "phases.0.pipeline.idle"),
    "dualpipe_params": Case(piped("dualpipe", 8, 16), "phases.0.pipeline.copies"),
    "dualpipe_acts": Case(piped("dualpipe", 8, 16), "phases.0.pipeline.in_flight.0"),
    "inflight_gpipe": Case(piped("gpipe", 4, 16), "phases.0.pipeline.in_flight.0"),
    "inflight_1f1b": Case(piped("one_f_one_b", 4, 16), "phases.0.pipeline.in_flight.0"),
    "p2p_interleaved": Case(piped("interleaved(chunks = 4)", 8, 64), "phases.0.pipeline.messages"),
    "p2p_bytes": Case(
        """
model { layers = 2  hidden = 8192  heads = 64  ffn = 1024  vocab = 1024 }
cluster { node { gpus = 2  gpu { memory = 80GB } } }
parallel { pp = 2 }
train { seq = 8192  micro_batch = 1  global_batch = 2 }
""",
        "phases.0.communication.[collective=send].bytes_per_call",
    ),
    # Traffic
    **{
        f"zero_comm_{zero}": Case(
            traffic(zero), "phases.0.communication_totals.data_parallel_relative_to_plain"
        )
        for zero in range(4)
    },
    "ring_allreduce": Case(
        _wire(1), "phases.0.communication.[collective=all_reduce].wire_bytes_per_call"
    ),
    "ring_reduce_scatter": Case(
        _wire(1) + "parallel { zero = 1 }",
        "phases.0.communication.[collective=reduce_scatter].wire_bytes_per_call",
    ),
    "ring_steps": Case(_wire(1), "phases.0.communication.[collective=all_reduce].latency_steps"),
    "tree_steps": Case(
        _wire(8, params="1k"), "phases.0.communication.[algorithm=tree].latency_steps"
    ),
    "tp_allreduces": Case(
        layers(tp=8, parallel="sequence_parallel = off"),
        "phases.0.communication.[what=layers].calls_per_step",
    ),
    "tp_allreduce_bytes": Case(
        layers(tp=8, parallel="sequence_parallel = off"),
        "phases.0.communication.[what=layers].bytes_per_call",
    ),
    "zero3_gather_floor": Case(gathers(), "phases.0.communication_totals.gather_floor_elements"),
    "nvlink_over_ib_h100": Case(preset("llama3-8b"), "phases.0.links.link_over_nic_as_quoted"),
    "nvlink_over_ib_h100_one_way": Case(preset("llama3-8b"), "phases.0.links.link_over_nic"),
    "h800_over_ib": Case(_links("160GB/s", "50GB/s"), "phases.0.links.link_over_nic"),
    "move_1gib_hbm": Case(_links("450GB/s", "400Gb/s"), FABRIC.format("memory")),
    "move_1gib_nvlink": Case(_links("450GB/s", "400Gb/s"), FABRIC.format("link")),
    "move_1gib_pcie5": Case(_links("450GB/s", "400Gb/s"), FABRIC.format("host")),
    "move_1gib_400g": Case(_links("450GB/s", "400Gb/s"), FABRIC.format("nic")),
    "move_1gib_100g": Case(_links("450GB/s", "100Gb/s"), FABRIC.format("nic")),
    # Layouts
    "global_batch": Case(
        """
model { layers = 8  hidden = 64  heads = 8  ffn = 128  vocab = 256 }
cluster { nodes = 8  node from "dgx-h100" }
parallel { tp = 8  pp = 4 }
train { seq = 128  micro_batch = 2  global_batch = 64 }
""",
        "phases.0.batch.sequences_per_step",
    ),
    **{
        f"dp_64_{name}": Case(
            world(64, degrees), "phases.0.axes.[name=dp].size", "layout FILE --json"
        )
        for name, degrees in (
            ("a", ""),
            ("b", "tp = 4"),
            ("c", "tp = 8  pp = 2"),
            ("d", "tp = 8  pp = 4"),
            ("e", "tp = 8  pp = 8"),
        )
    },
    "dp_256": Case(
        world(256, "tp = 8  pp = 4"), "phases.0.axes.[name=dp].size", "layout FILE --json"
    ),
    "dp_groups_64": Case(
        world(64, "tp = 8  pp = 4"), "phases.0.reach.dp.count", "layout FILE --json"
    ),
    "llama405_a": Case(world(8192, f"{LLAMA405}  dp = 64"), "phases.0.world", "layout FILE --json"),
    "llama405_b": Case(
        world(16384, f"{LLAMA405}  dp = 128"), "phases.0.world", "layout FILE --json"
    ),
    "llama405_c": Case(
        world(16384, f"{LLAMA405}  cp = 16  dp = 8"), "phases.0.world", "layout FILE --json"
    ),
    "cp_pairs": Case(
        """
model { layers = 2  hidden = 64  heads = 4  ffn = 128  vocab = 256 }
cluster { node { gpus = 4  gpu { memory = 80GB } } }
parallel { cp = 4 }
train { seq = 128  micro_batch = 1  global_batch = 1 }
""",
        "phases.0.context.chunks.1",
    ),
    "ulysses_limit": Case(
        preset("llama3-70b") + "parallel { tp = 8 }\n"
        "train { seq = 1024  micro_batch = 1  global_batch = 1 }",
        "phases.0.context.largest_ulysses",
    ),
    # In use, and the run
    "kv_405b": Case(preset("llama3.1-405b"), "phases.0.inference.kv_bytes_per_token"),
    "kv_qwen72b": Case(preset("qwen2.5-72b"), "phases.0.inference.kv_bytes_per_token"),
    "kv_dsv3": Case(preset("deepseek-v3"), "phases.0.inference.kv_bytes_per_token"),
    "kv_70b_128k": Case(
        preset("llama3-70b", "context = 128Ki"), "phases.0.inference.kv_bytes_full_context"
    ),
    "infer_70b": Case(
        preset("llama3-70b", "context = 128Ki"), "phases.0.inference.full_context_bytes"
    ),
    "mtbf_llama3": Case(
        """
model { params = 405B }
cluster {
  nodes = 2048  node from "dgx-h100"
  reliability { gpu_mtbf = 54d * 16384 / 419 }
}
""",
        "phases.0.goodput.mtbf_hours",
    ),
    # At a speed that was measured
    "llama405_a_mfu": Case(
        whole_run('from "llama3.1-405b"', 1024, "global_batch = 2048"),
        "phases.0.time.mfu",
        at("430TFLOP/s"),
    ),
    "llama405_days": Case(
        whole_run("{ params = 405B }", 2048, "global_batch = 2048  tokens = 15.6T"),
        "phases.0.run.days",
        at("400TFLOP/s"),
    ),
    "palm_mfu_hfu": Case(
        whole_run("{ params = 540B }", 768, "global_batch = 2064")
        + "let hfu = 57.8%\nassert hfu - throughput.mfu < 12%",
        "phases.0.asserts.0.value",
        at("46.2%"),
        100,
    ),
    "goodput_llama3": Case(useful("1057s"), "phases.0.goodput.useful_mfu", at("41%")),
    # 2.788 M GPU-hours are 1,000 steps of 4,900.78125 s on 2,048 GPUs.
    "dsv3_cost": Case(priced(1000), "phases.0.run.cost", at("4900.78125s")),
    "llama405_flops": Case(states("405B", train="tokens = 15.6T"), "phases.0.run.training_flops"),
}

REFUSED = {
    "state_tp8pp4_175B": Refused(CASES["state_tp8pp4_175B"].par, "check FILE", "M"),
    "fp8_over_bf16": Refused(
        states("7B", train="precision = bf16").replace(
            ROOM, "gpu { memory = 80GB  bf16 = 989TFLOP/s }"
        ),
        "ledger FILE --at 1500TFLOP/s",
        "W",
        "151.7%",
    ),
}
"""What a command must refuse, and the family of the diagnostic; words that it has to say."""
