"""The ranks of llama-405b-phases.par: tp 8, pp 16, dp 64."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, pp, dp] (llama-405b-pha..:22): neighbouring ranks share a tp group.
ORDER = ("tp", "pp", "dp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    return Mesh(Grid.of(plan.mesh, order=ORDER))
