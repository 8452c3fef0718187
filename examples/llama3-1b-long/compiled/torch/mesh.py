"""The ranks of llama3-1b-long.par: cp 4, dp 2."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a cp group.
ORDER = ("cp", "dp")

# dp_cp is the ranks that share a global batch and hold each weight alike.
PLANES = (("dp", "cp"),)


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    return Mesh(Grid.of(plan.mesh, order=ORDER), planes=PLANES)
