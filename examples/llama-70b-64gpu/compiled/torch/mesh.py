"""The ranks of llama-70b.par: tp 8, pp 4, dp 2."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, pp, dp] (llama-70b.par:18): neighbouring ranks share a tp group.
ORDER = ("tp", "pp", "dp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    return Mesh(Grid.of(plan.mesh, order=ORDER))
