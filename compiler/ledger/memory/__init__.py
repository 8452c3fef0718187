"""What every rank holds at every moment of a step."""

from parlay.compiler.ledger.memory.memory import Memory, account, memory, peak
from parlay.compiler.ledger.memory.record import CATEGORIES, Line, Moment, RankClass, Saved
from parlay.compiler.ledger.memory.stack import STACKS, Stack, stack_of

__all__ = [
    "CATEGORIES",
    "STACKS",
    "Line",
    "Memory",
    "Moment",
    "RankClass",
    "Saved",
    "Stack",
    "account",
    "memory",
    "peak",
    "stack_of",
]
