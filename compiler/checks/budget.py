"""The training state of the fullest rank against the memory that may be planned."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.checks.degrees import shape_known
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.state import State, states

READS = (
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
    """The fullest pipeline rank; None where a size that it follows from is not known."""
    model, train = subject.spec.model, subject.spec.train
    if model is None or not subject.has(READS):
        return None
    if model.params is None and not shape_known(model):
        return None
    recipe = (train.precision, train.gradients, train.master, train.optimizer) if train else ()
    if any(part is None for part in recipe):
        return None
    each = states(subject.spec, subject.laid_out)
    stage = max(range(len(each)), key=lambda rank: each[rank].total)
    return Fullest(stage, each[stage], budget(subject))
