"""The time of a step: roofline of every layer, collectives, the pipeline's timeline, traffic."""

from parlay.compiler.ledger.time.lines import CommunicationTime, Share, TimeLine
from parlay.compiler.ledger.time.report import time_of

__all__ = ["CommunicationTime", "Share", "TimeLine", "time_of"]
