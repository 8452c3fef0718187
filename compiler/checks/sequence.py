"""What the sequence has to be a multiple of, by what cuts it."""

from __future__ import annotations

from math import lcm

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.blocks import Parallel

READS = (
    "train.seq",
    "parallel.tp",
    "parallel.sequence_parallel",
    "parallel.cp",
    "parallel.cp_method",
)


def context_unit(parallel: Parallel) -> int:
    """The multiple that cp asks for.

    2 · cp where each rank takes a chunk from the front and one from the back, so that all have the
    same share of a causal mask; cp for Ulysses, whose ranks see the whole sequence of their heads;
    2 · outer · inner where a ring stands around Ulysses.
    """
    if parallel.cp == 1:
        return 1
    return parallel.cp if parallel.cp_method.name == "ulysses" else 2 * parallel.cp


def tensor_unit(parallel: Parallel) -> int:
    """The multiple that sequence parallelism asks for: tp."""
    return parallel.tp if parallel.sequence_parallel else 1


def whole_unit(parallel: Parallel) -> int:
    """The multiple that both together ask for.

    A cp rank's share is cut over tp: seq / cp has to be a multiple of tp, and of 2 where it has
    two chunks.
    """
    chunks = context_unit(parallel) // parallel.cp or 1
    return parallel.cp * lcm(chunks, tensor_unit(parallel))


def near(subject: Subject) -> suggest.Help:
    """The nearest sequence lengths that fit every cut."""
    seq, unit = subject.train.seq, whole_unit(subject.parallel)
    values = words.near(seq, unit, least=unit)
    return suggest.choices(subject, "train.seq", values, wanted=seq)
