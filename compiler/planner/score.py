"""What a layout costs, by the ledger's own figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.memory import Memory, account
from parlay.compiler.ledger.time import price, priceable
from parlay.compiler.spec.blocks import Spec

OBJECTIVES: Final[Mapping[str, str]] = {
    "step_time": "seconds of a step, the least",
    "tokens_per_gpu": "tokens a second and GPU, the most",
    "cost": "cost of a token, the least",
    "headroom": "memory left on the fullest rank, the most",
}
"""What may be sought; on one cluster and batch the first three agree."""


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of a layout: seconds and bytes, `parts` the step's seconds by component.

    `step_seconds` is None where the ledger has no time for the job, without a peak of the GPU.
    """

    step_seconds: float | None
    peak_bytes: int
    budget_bytes: int
    parts: Mapping[str, float]

    @property
    def fits(self) -> bool:
        """Whether the fullest rank is within the budget."""
        return self.peak_bytes <= self.budget_bytes


def budget_bytes(spec: Spec) -> int:
    """What may be planned of one GPU's memory, the reserve still in it."""
    assert spec.cluster is not None
    return int(spec.budget.memory * spec.cluster.node.gpu.memory_bytes)


def score(subject: Subject, memory: Memory | None = None) -> Score:
    """The ledger's memory and time of a legal layout; `memory` where that is known already."""
    spec, layout = subject.spec, subject.laid_out
    memory = memory or account(spec, layout)
    seconds: float | None = None
    parts: dict[str, float] = {}
    if layout.stages and priceable(spec):
        step = price(spec, layout, ranks=[each.held for each in memory.classes])
        factors = step.efficiency.factors
        parts = {name: part * factors[name] for name, part in step.parts.items() if part}
        seconds = step.seconds
    return Score(seconds, memory.worst.peak_bytes, memory.budget_bytes, parts)


def mfu(subject: Subject, seconds: float | None) -> float | None:
    """Model FLOPs over the dense peak; None without a peak or a time."""
    from parlay.compiler.ledger import flops

    spec = subject.spec
    if seconds is None or spec.cluster is None or spec.train is None or spec.model is None:
        return None
    peak: float | None = flops.peak(spec.cluster.node.gpu, spec.train.precision)
    if not peak:
        return None
    tokens = spec.train.global_batch * spec.train.seq
    return flops.per_token(spec) * tokens / seconds / spec.cluster.gpus / peak
