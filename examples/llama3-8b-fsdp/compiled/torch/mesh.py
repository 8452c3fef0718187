"""The ranks of llama3-8b-fsdp.par: tp 2, dp 32."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a tp group.
ORDER = ("tp", "dp")


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER))
    # parallel.shard = 16 (llama3-8b-fsdp..:15): neighbours on dp that share one copy of the state.
    mesh.split("dp", mesh.dp.size // plan.shard, name="shard")
    mesh.across("dp", mesh.dp.size // plan.shard, name="replicate")
    return mesh
