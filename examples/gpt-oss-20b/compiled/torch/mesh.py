"""The ranks of gpt-oss-20b.par: dp 16, ep 8."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a dp group.
ORDER = ("dp",)

# parallel.ep = 8 (gpt-oss-20b.par:14): experts have a grid of their own over the same ranks.
EXPERT_ORDER = ("ep", "edp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER))
    mesh.overlay(Grid.of(plan.expert_mesh, order=EXPERT_ORDER))
    return mesh
