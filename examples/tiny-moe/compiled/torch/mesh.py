"""The ranks of tiny-moe.par: tp 2, dp 2, pp 2, ep 2."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a tp group.
ORDER = ("tp", "dp", "pp")

# parallel.ep = 2 (tiny-moe.par:31): experts have a grid of their own over the same ranks.
EXPERT_ORDER = ("ep", "edp", "pp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER))
    mesh.overlay(Grid.of(plan.expert_mesh, order=EXPERT_ORDER))
    return mesh
