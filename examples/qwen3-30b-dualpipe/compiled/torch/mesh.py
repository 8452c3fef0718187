"""The ranks of qwen3-30b-dualpipe.par: dp 8, pp 4, ep 8."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a dp group.
ORDER = ("dp", "pp")

# parallel.ep = 8 (qwen3-30b-dual..:15): experts have a grid of their own over the same ranks.
EXPERT_ORDER = ("ep", "pp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER))
    mesh.overlay(Grid.of(plan.expert_mesh, order=EXPERT_ORDER))
    # parallel.schedule = dualpipe (qwen3-30b-dual..:14): two ranks hold the same stages.
    mesh.mirrored("pp", name="mirror")
    return mesh
