"""The ranks of long-context-moe.par: tp 2, cp 64, dp 4, ep 64."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a tp group.
ORDER = ("tp", "cp", "dp")

# parallel.ep = 64 (long-context-m..:20): experts have a grid of their own over the same ranks.
EXPERT_ORDER = ("ep", "edp")

# dp_cp is the ranks that share a global batch and hold each weight alike.
PLANES = (("dp", "cp"),)


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER), planes=PLANES)
    mesh.overlay(Grid.of(plan.expert_mesh, order=EXPERT_ORDER))
    return mesh
