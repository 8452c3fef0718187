"""The ranks of llama3-70b-lora.par: dp 8."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a dp group.
ORDER = ("dp",)


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    return Mesh(Grid.of(plan.mesh, order=ORDER))
