"""The shape of a pipeline schedule with even stages: idle time, messages, microbatches in flight.

Times are in units of one stage's forward: F = 1, the whole backward B = 2, of which the weights'
part W = 1, and a forward beside a backward FB = 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from parlay.compiler.layout.stages import chunks_of
from parlay.compiler.ledger.memory.flight import in_flight
from parlay.compiler.spec.blocks import Parallel

F, B, W, FB = 1, 2, 1, 3


@dataclass(frozen=True, slots=True)
class Pipelining:
    """One schedule over pp ranks.

    `idle` is the idle time of one rank in forwards of a whole stage, `bubble` its share of the
    step, `bubble_over_ideal` its ratio to the time of all microbatches. `in_flight` is by rank, in
    microbatches of a whole rank's layers; `messages` is relative to 1F1B, `copies` how often the
    parameters are held.
    """

    schedule: str
    microbatches: int
    chunks: int
    forward_slots: int
    idle: float
    bubble: float
    bubble_over_ideal: float
    in_flight: tuple[float, ...]
    messages: float
    copies: int
    formula: str


def pipelining(parallel: Parallel, microbatches: int) -> Pipelining:
    """The figures of a schedule.

    gpipe and 1F1B: (p - 1)(F + B) idle (arXiv:1811.06965); interleaved: that over v
    (arXiv:2104.04473); zero_bubble: (p - 1)(F + B - 2W); dualpipe: (p/2 - 1)(FB + B - 3W)
    (arXiv:2412.19437, table 2, B the whole backward); dualpipe_v: that of 2·p ranks, in half stages
    (github.com/deepseek-ai/DualPipe); zbv starts late by (p - 1) half stages where F, I and W take
    the same (arXiv:2405.15362). A forward and a backward beside each other end together after FB.
    """
    p, name = parallel.pp, parallel.schedule.name
    chunks = chunks_of(parallel.schedule)
    idle = Fraction((p - 1) * (F + B))
    formula = f"({p} - 1) x ({F} + {B})"
    match name:
        case "interleaved":
            idle, formula = idle / chunks, f"{formula} / {chunks}"
        case "zero_bubble":
            idle, formula = (
                Fraction((p - 1) * (F + B - 2 * W)),
                f"({p} - 1) x ({F} + {B} - 2 x {W})",
            )
        case "dualpipe":
            half = max(Fraction(0), Fraction(p, 2) - 1)
            idle, formula = half * (FB + B - 3 * W), f"({p} / 2 - 1) x ({FB} + {B} - 3 x {W})"
        case "dualpipe_v":
            # Chunks are half a stage long.
            idle = Fraction((p - 1) * (FB + B - 3 * W), 2)
            formula = f"({p} - 1) x ({FB} + {B} - 3 x {W}) / 2"
        case "zbv":
            idle, formula = Fraction(p - 1, 2), f"({p} - 1) / 2"
    ideal = microbatches * (F + B)
    flight = tuple(
        sum(held) / (chunks if name not in ("dualpipe",) else 1)
        for held in (
            in_flight(
                parallel.schedule,
                pp=p,
                microbatches=microbatches,
                stage=rank,
                weights=(1.0,) * chunks,
            )
            for rank in range(p)
        )
    )
    return Pipelining(
        schedule=name,
        microbatches=microbatches,
        chunks=chunks,
        forward_slots=microbatches + p - 1,
        idle=float(idle),
        bubble=float(idle / (ideal + idle)),
        bubble_over_ideal=float(idle / ideal),
        in_flight=flight,
        messages=float(_messages(name, p, chunks)),
        copies=2 if name == "dualpipe" else 1,
        formula=formula,
    )


def _messages(name: str, pp: int, chunks: int) -> Fraction:
    """Messages that a rank in the middle sends, relative to 1F1B's."""
    if name == "dualpipe" or pp == 1:
        return Fraction(1)
    return Fraction(chunks)
