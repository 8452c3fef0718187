"""The time of a step: roofline of every layer, collectives, the pipeline's timeline, traffic."""

from parlay.compiler.ledger.time.calls import call_times
from parlay.compiler.ledger.time.lines import CallTime, Share, TimeLine
from parlay.compiler.ledger.time.measured import priceable
from parlay.compiler.ledger.time.report import report, time_of
from parlay.compiler.ledger.time.step import Step, price

__all__ = [
    "CallTime",
    "Share",
    "Step",
    "TimeLine",
    "call_times",
    "price",
    "priceable",
    "report",
    "time_of",
]
