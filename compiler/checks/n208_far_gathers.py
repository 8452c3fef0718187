"""ZeRO-3 gathers weights over a network that cannot keep up.

What
    A warning where `zero = 3` shards over several nodes, and moving the weights of a microbatch
    takes longer than its computation.
Why
    Stage 3 gathers the weights of every layer for the forward, again for the backward, and scatters
    the gradients: three times the model crosses the network for each microbatch. Shards inside a
    node (`shard`, HSDP) or stage 1 keep that off the network, larger microbatches spread it.
Example
    model from "qwen2.5-7b"
    cluster {
      nodes = 4
      node from "rtx-4090-8"
    }
    parallel {
      zero = 3
      #      ^ N208
    }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
Instead
    model from "qwen2.5-7b"
    cluster {
      nodes = 4
      node from "dgx-h100"
    }
    parallel {
      zero = 3
    }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
Source
    arXiv:2306.10209 (ZeRO++), section 3.2; DeepSpeed issue 6889 and Qwen3 issue 773.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import budget, fix, suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, Fix, warning

CODE = "N208"
TITLE = "ZeRO-3 gathers weights over a network that cannot keep up"
READS = (
    "layout",
    "parallel.zero",
    "parallel.shard",
    "train.seq",
    "train.micro_batch",
    "train.precision",
    "cluster.node.gpu",
    "cluster.node.nic.count",
    "cluster.node.nic.bandwidth",
)
ALLOWED = False

REACHED: Final = 0.4
"""The share of the peak that a good run computes at."""
TIMES: Final = 3
"""Gathered for the forward and the backward, gradients scattered: two bytes a weight each."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, node = subject.parallel, subject.cluster.node
    peak = node.gpu.fp16_flops if subject.train.precision == "fp16" else node.gpu.bf16_flops
    if parallel.zero != 3 or parallel.shard == 1 or peak is None:
        return
    reach = subject.laid_out.reach("shard")
    if reach.nodes == 1 or reach.link != "fabric":
        return
    each = _seconds(subject, peak)
    if each.ratio <= 1:
        return
    span, label = subject.label("parallel.zero", f"gathered over {reach.nodes} nodes")
    help, fixes = _help(subject)
    yield warning(
        CODE,
        f"gathering the weights takes {_times(each.ratio)} times as long as computing with them",
        span,
        label,
        also=[
            subject.label("cluster.node.nic.bandwidth", f"{words.speed(each.speed)} a node"),
            subject.label("train.micro_batch", f"{each.tokens:,} tokens a microbatch"),
        ],
        notes=[
            f"a parameter: {TIMES} · 2 bytes over {words.speed(each.speed)}, against 6 · "
            f"{each.tokens} operations at {words.percent(REACHED)} of {peak / 1e12:.4g} TFLOP/s"
        ],
        help=help,
        fixes=fixes,
    )


class _Each:
    """What one parameter costs a microbatch: the network against the matrix units."""

    def __init__(self, speed: float, tokens: int, peak: float, share: float) -> None:
        self.speed, self.tokens = speed, tokens
        moved, computed = TIMES * 2 / speed, 6 * tokens * share / (REACHED * peak)
        self.ratio = moved / computed


def _seconds(subject: Subject, peak: float) -> _Each:
    cluster, train, parallel = subject.cluster, subject.train, subject.parallel
    nic, fabric = cluster.node.nic, cluster.fabric
    assert nic is not None
    over = fabric.oversubscription if fabric and fabric.oversubscription else 1.0
    reach = subject.laid_out.reach("shard")
    # Each group takes in the whole of its weights once a node; groups of one node share the cards.
    groups = cluster.node.gpus * reach.nodes / parallel.shard
    speed = nic.count * nic.bandwidth_bytes_per_s / over / max(groups, 1.0)
    experts = subject.spec.model.experts if subject.spec.model else None
    used = 1.0
    if experts is not None and experts.count and experts.top_k:
        used = (experts.top_k + (experts.shared or 0)) / (experts.count + (experts.shared or 0))
    return _Each(speed, train.micro_batch * train.seq // parallel.cp, peak, used)


def _stays(subject: Subject) -> bool:
    """Whether weights are sharded, and every shard group is inside a node."""
    layout = subject.layout
    return layout is not None and subject.parallel.shard > 1 and layout.reach("shard").nodes == 1


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _help(subject: Subject) -> tuple[list[str], list[Fix]]:
    """Shards inside the node, or a lower stage, where either fits the memory."""
    if subject.searching:
        return [], []
    parallel, cluster = subject.parallel, subject.cluster
    inside = max(cluster.node.gpus // parallel.tp, 1)
    help: list[str] = []
    fixes: list[Fix] = []
    for values, what in (
        ({"parallel.shard": inside}, f"shard = {inside} shards inside a node (HSDP)"),
        ({"parallel.zero": 1}, "zero = 1 sends gradients once a step"),
    ):
        other = subject.with_values(values)
        # With tp over a whole node, or dp far apart in `order`, no shard stays inside one.
        if values.get("parallel.shard") and not _stays(other):
            continue
        if not suggest.holds(subject, values) or not budget.fits(other):
            continue
        help.append(f"{what}, and fits{budget.figures(other)}")
        fixes += fix.set_fields(subject, values)
    if not help:
        help.append("more tokens a microbatch: `micro_batch`, with `recompute = full` for memory")
    return help, fixes
