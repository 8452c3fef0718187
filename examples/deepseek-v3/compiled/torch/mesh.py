"""The ranks of deepseek-v3.par: dp 128, pp 16, ep 64."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a dp group.
ORDER = ("dp", "pp")

# parallel.ep = 64 (deepseek-v3.par:16): experts have a grid of their own over the same ranks.
EXPERT_ORDER = ("ep", "edp", "pp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER))
    mesh.overlay(Grid.of(plan.expert_mesh, order=EXPERT_ORDER))
    return mesh
