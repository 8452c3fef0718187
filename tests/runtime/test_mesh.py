"""Process groups in the order of the grid."""

import pytest
import torch.distributed as dist
from parlay.runtime.axes import Grid
from parlay.runtime.local import run_ranks
from parlay.runtime.mesh import Mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

pytestmark = pytest.mark.distributed


def test_the_mesh_names_its_groups_and_knows_its_size():
    def target(rank):
        with pytest.raises(ValueError, match="tp 3 takes 3 ranks; this job has 4"):
            Mesh(Grid((("tp", 3),)))
        mesh = Mesh(Grid((("tp", 2), ("pp", 2))), planes=(("tp", "pp"),))
        groups = {
            name: (getattr(mesh, name).ranks, mesh.name_of(getattr(mesh, name).group.group_name))
            for name in ("tp", "pp", "tp_pp", "world")
        }
        with pytest.raises(AttributeError, match="no group dp; it has tp, pp, tp_pp, world"):
            mesh.dp  # noqa: B018
        assert mesh.device_mesh["pp"].mesh.tolist() == list(mesh.pp.ranks)
        return groups, mesh.tp.first, mesh.pp.last, dist.get_backend()

    found = run_ranks(target, 4, timeout=60)
    assert found[1] == (
        {
            "tp": ((0, 1), "tp"),
            "pp": ((1, 3), "pp"),
            "tp_pp": ((0, 1, 2, 3), "tp_pp"),
            "world": ((0, 1, 2, 3), "world"),
        },
        False,
        False,
        "gloo",
    )


def test_a_large_grid_is_built_under_the_fake_process_group():
    grid = Grid((("tp", 8), ("dp", 128), ("pp", 16)))

    def target(_):
        dist.init_process_group("fake", store=FakeStore(), rank=4099, world_size=grid.world)
        mesh = Mesh(grid, planes=(("tp", "pp"),))
        return {name: getattr(mesh, name).ranks for name in ("tp", "dp", "pp", "tp_pp")}

    for name, ranks in run_ranks(target, 1, timeout=60)[0].items():
        assert list(ranks) == grid.group_of(4099, name.split("_"))
