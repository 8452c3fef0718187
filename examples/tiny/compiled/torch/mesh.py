"""The ranks of tiny.par: tp 2, dp 2, pp 2."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, dp, pp] (tiny.par:22): neighbouring ranks share a tp group.
ORDER = ("tp", "dp", "pp")

# tp_pp is all ranks of one replica: the norm of the gradients is summed over it.
PLANES = (("tp", "pp"),)


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    return Mesh(Grid.of(plan.mesh, order=ORDER), planes=PLANES)
