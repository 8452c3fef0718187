"""Solves `auto`: the best of all layouts that the file leaves open, and why the others lost.

Exact under the ledger's own model: every layout is legal and judged, rejected by a rule, or cannot
be better by a bound that holds. Where too many are near each other, what was not looked into is
told with its bound.
"""

from parlay.compiler.planner.best import Best
from parlay.compiler.planner.gap import Gap
from parlay.compiler.planner.plan import DEGREES, Plan, degrees, layouts, plan, settled
from parlay.compiler.planner.score import OBJECTIVES, Score, mfu
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.tally import Candidate, Tally

__all__ = [
    "DEGREES",
    "OBJECTIVES",
    "Best",
    "Candidate",
    "Gap",
    "Plan",
    "Score",
    "Tally",
    "degrees",
    "layouts",
    "mfu",
    "plan",
    "settled",
    "spelling",
]
