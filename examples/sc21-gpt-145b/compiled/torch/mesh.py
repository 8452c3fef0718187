"""The ranks of sc21-gpt-145b.par: tp 8, dp 24, pp 8."""

from parlay.runtime.axes import Grid
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan

# parallel.order = [tp, cp, dp, pp] (default): neighbouring ranks share a tp group.
ORDER = ("tp", "dp", "pp")

# tp_pp is all ranks of one replica: the norm of the gradients is summed over it.
PLANES = (("tp", "pp"),)


def build(plan: Plan) -> Mesh:
    """The process groups of this rank."""
    mesh = Mesh(Grid.of(plan.mesh, order=ORDER), planes=PLANES)
    # model.tied_embeddings = on (sc21-gpt-145b...:13): the first stage and the last.
    mesh.ends("pp", name="embedding")
    return mesh
