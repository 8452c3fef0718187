"""State and peak of the fullest rank against the memory that may be planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parlay.compiler.checks import words
from parlay.compiler.checks.degrees import shape_known
from parlay.compiler.checks.subject import WHOLE, Subject
from parlay.compiler.ledger.state import State, bytes_per_parameter, states
from parlay.compiler.spec.schema import Setting

READS = (
    WHOLE,
    "layout",
    "cluster.node.gpu.memory",
    "budget.memory",
    "budget.reserve",
    "parallel.zero",
    "parallel.vocab_multiple",
)


@dataclass(frozen=True, slots=True)
class Fullest:
    """The pipeline rank with the most state, its bytes, and the bytes there are for it."""

    stage: int
    state: State
    budget: float

    @property
    def total(self) -> float:
        """Bytes of the state."""
        return self.state.total

    @property
    def fits(self) -> bool:
        """Whether the state is within the budget."""
        return self.total <= self.budget


def budget(subject: Subject) -> float:
    """Bytes of one GPU that may be planned: its share of the memory without the reserve."""
    allowed = subject.spec.budget
    return allowed.memory * float(subject.cluster.node.gpu.memory_bytes) - allowed.reserve_bytes


def fullest(subject: Subject) -> Fullest | None:
    """The fullest pipeline rank; None where a size is not known, or there is no budget at all."""
    model, train = subject.spec.model, subject.spec.train
    if model is None or not subject.whole or not subject.has(READS) or budget(subject) <= 0:
        return None
    if not shape_known(model) and (model.params is None or model.layers is not None):
        return None
    recipe = (train.precision, train.gradients, train.master, train.optimizer) if train else ()
    if any(part is None for part in recipe):
        return None
    each = states(subject.spec, subject.laid_out)
    stage = max(range(len(each)), key=lambda rank: each[rank].total)
    return Fullest(stage, each[stage], budget(subject))


MOST_STAGES = 512
"""Pipelines with more stages are not priced."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment of a step with the most bytes, on the fullest pipeline rank.

    `categories` are its bytes by what they are for, the largest first; the reserve of the budget is
    among them, and not taken off `budget`.
    """

    stage: int
    moment: str
    bytes: float
    budget: float
    categories: dict[str, float]

    @property
    def fits(self) -> bool:
        """Whether the peak is within the budget."""
        return self.bytes <= self.budget

    @property
    def largest(self) -> str:
        """What the most bytes are for."""
        return next(iter(self.categories))


PEAK_READS = (
    *READS,
    "train.seq",
    "train.micro_batch",
    "train.global_batch",
    "train.recompute",
    "train.attention",
    "parallel.cp_method",
)


def peak(subject: Subject) -> Peak | None:
    """The peak of a step; None where it does not follow from what is known."""
    model = subject.spec.model
    if model is None or not subject.has(PEAK_READS) or subject.microbatches is None:
        return None
    if not shape_known(model) or fullest(subject) is None or not _runs(subject):
        return None
    from parlay.compiler.ledger.memory import account

    memory = account(_short(subject).spec, subject.laid_out)
    worst = memory.worst
    held = sorted(worst.peak.categories.items(), key=lambda item: -item[1])
    categories = {name: float(size) for name, size in held if size}
    return Peak(worst.stage, worst.peak.name, worst.peak_bytes, memory.budget_bytes, categories)


def _runs(subject: Subject) -> bool:
    """Whether the schedule runs with so many microbatches, and is short enough to be walked."""
    number, parallel = subject.microbatches, subject.parallel
    assert number is not None
    if len(subject.laid_out.stages) > MOST_STAGES:
        return False
    match parallel.schedule.name:
        case "interleaved":
            return number % parallel.pp == 0
        case "dualpipe":
            return parallel.pp % 2 == 0 and number % 2 == 0 and number >= 2 * parallel.pp
        case "dualpipe_v":
            return number >= 2 * parallel.pp
    return True


def _short(subject: Subject) -> Subject:
    """The same step with no more microbatches than it takes to fill the pipeline."""
    number, parallel, train = subject.microbatches, subject.parallel, subject.train
    enough = 8 * parallel.pp
    if number is None or number <= enough:
        return subject
    batch = enough * train.micro_batch * parallel.dp
    return subject.with_values({"train.global_batch": batch})


def host_bytes(subject: Subject) -> float | None:
    """Bytes that offloading keeps in the memory of one node; None where that is not known."""
    if fullest(subject) is None:
        return None
    from parlay.compiler.ledger.memory.states import kept, shards_of
    from parlay.compiler.ledger.parameters import Parameters

    weights = Parameters(round(weights_held(subject)))
    gone = kept(subject.spec, weights, shards_of(subject.laid_out))
    return float(gone.host_bytes * subject.cluster.node.gpus)


def weights_held(subject: Subject) -> float:
    """Parameters of the fullest rank before ZeRO shards them, without adapters."""
    plain: dict[str, Any] = {"parallel.zero": 0, "parallel.offload": Setting("none")}
    if subject.spec.train is not None:
        plain["train.lora"] = None
    most = fullest(subject.with_values(plain))
    assert most is not None
    return most.state.weights / bytes_per_parameter(subject.spec.train).weights


def fits(subject: Subject) -> bool:
    """Whether the job fits by the best estimate there is; true where there is none."""
    best = peak(subject) or fullest(subject)
    return best is None or best.fits


def figures(subject: Subject) -> str:
    """` (61.2 GB of 85.5 GB)` by the best estimate there is; empty where there is none."""
    highest = peak(subject)
    if highest is not None:
        needed, there = words.memories(highest.bytes, highest.budget)
        return f" ({needed} of {there})"
    return state_figures(subject)


def state_figures(subject: Subject) -> str:
    """` (weights and states 61.2 GB of 85.5 GB)`; empty where they are not known."""
    state = fullest(subject)
    if state is None:
        return ""
    needed, there = words.memories(state.total, state.budget)
    return f" (weights and states {needed} of {there})"
