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

from parlay.compiler.checks import budget, cards, fix, suggest, words
from parlay.compiler.checks.degrees import shape_known
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.parameters import total, weights
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
    # Sequences shorter than their ranks are told elsewhere.
    if subject.train.micro_batch * subject.train.seq < parallel.cp:
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
            f"{each.tokens} operations at {words.percent(REACHED)} of {peak / 1e12:.4g} TFLOP/s",
            *_mixture(subject),
        ],
        help=help,
        fixes=fixes,
    )


def _known(subject: Subject) -> bool:
    """Whether every weight of the model has its size."""
    return subject.whole and shape_known(subject.model)


def _mixture(subject: Subject) -> list[str]:
    """What is different for experts; nothing where there are none."""
    experts = subject.spec.model.experts if subject.spec.model else None
    if experts is None or not _known(subject):
        return []
    held = words.counted(experts.count // subject.parallel.ep, "expert")
    return [f"a rank gathers {held} a layer, and each token visits {experts.top_k}"]


class _Each:
    """What the weights of one rank cost a microbatch: the network against the matrix units."""

    def __init__(self, speed: float, tokens: int, ratio: float) -> None:
        self.speed, self.tokens, self.ratio = speed, tokens, ratio


def _seconds(subject: Subject, peak: float) -> _Each:
    train, parallel = subject.train, subject.parallel
    tokens = train.micro_batch * train.seq // parallel.cp
    speed = cards.speed(subject, "shard")
    moved, computed = TIMES * 2 / speed, 6 * tokens / (REACHED * peak)
    experts = subject.spec.model.experts if subject.spec.model else None
    if experts is None or not _known(subject):
        return _Each(speed, tokens, moved / computed)
    # Under ep a rank gathers its own experts alone, from a group of their own, and they compute
    # for the tokens of every rank of theirs.
    held = sum(number * row.numel for row, number in weights(subject.model).groups() if row.expert)
    dense = total(subject.model) - held
    layout = subject.laid_out
    far = layout.expert is None or layout.reach("expert_shard").nodes > 1
    each = held / (parallel.ep * parallel.etp) * TIMES * 2
    moved *= dense / parallel.tp
    if far:
        moved += each / (speed if layout.expert is None else cards.speed(subject, "expert_shard"))
    computed *= (dense + held * experts.top_k / experts.count) / parallel.tp
    return _Each(speed, tokens, moved / computed)


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
