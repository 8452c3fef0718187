"""Solves `auto`: the best of all layouts that the file leaves open, and why the others lost.

Exact under the ledger's own model: every layout is legal and judged, rejected by a rule, or cannot
be better by a bound that holds.
"""

from parlay.compiler.planner.best import Best
from parlay.compiler.planner.plan import MOST, Plan, layouts, plan, settled
from parlay.compiler.planner.score import OBJECTIVES, Score, mfu
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.tally import Candidate, Tally

__all__ = [
    "MOST",
    "OBJECTIVES",
    "Best",
    "Candidate",
    "Plan",
    "Score",
    "Tally",
    "layouts",
    "mfu",
    "plan",
    "settled",
    "spelling",
]
