"""One known layout in full, stages, JSON, and the cost of a large world."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from parlay.compiler.layout import lay_out, to_json
from parlay.compiler.layout.balance import split
from parlay.compiler.layout.stages import cut, place_of
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.schema import Setting

Job = Callable[..., Spec]
PIPELINE_OUTSIDE_DATA = ("tp", "pp", "dp")


def test_64_gpus(job: Job) -> None:
    layout = lay_out(job(gpus=64, tp=8, pp=4, order=PIPELINE_OUTSIDE_DATA))
    assert layout.size("dp") == 2
    assert layout.group_of("pp", 3) == [3, 11, 19, 27]
    assert layout.group_of("dp", 3) == [3, 35]
    assert len(layout.groups("dp")) == 32
    assert layout.coordinates(35) == {
        "tp": 3, "pp": 0, "dp": 1, "cp": 0,
    }  # fmt: skip
    assert "ep" not in layout.kinds  # etp = 1 in tp's place would tear the pipelines apart
    assert layout.node_of(35) == 4


def test_links(job: Job) -> None:
    layout = lay_out(job(gpus=64, tp=8, pp=4, nics=8))
    assert layout.reach("tp").link == "link"
    pipeline = layout.reach("pp")
    assert (pipeline.nodes, pipeline.link, pipeline.groups_per_nic) == (4, "fabric", 1.0)


def test_domain_smaller_than_a_node(job: Job) -> None:
    layout = lay_out(job(gpus=16, tp=4, domain=2, nics=2, affinity="node"))
    tensor = layout.reach("tp")
    assert (tensor.nodes, tensor.domains, tensor.link) == (1, 2, "host")
    assert layout.reach("dp").groups_per_nic == 2.0  # four groups on two cards


def test_domain_of_several_nodes(job: Job) -> None:
    layout = lay_out(job(gpus=144, per_node=4, domain=72, tp=8, nics=4))
    tensor = layout.reach("tp")
    assert (tensor.nodes, tensor.domains, tensor.link) == (2, 1, "link")
    assert tensor.groups_per_nic == 0.0


def test_shard_and_replicate(job: Job) -> None:
    layout = lay_out(job(gpus=32, tp=2, cp=2, ep=4, shard=4))
    assert layout.group_of("dp_cp", 0) == list(range(0, 32, 2))
    assert layout.group_of("shard", 0) == [0, 2, 4, 6]
    assert layout.group_of("replicate", 0) == [0, 8, 16, 24]
    assert layout.group_of("edp", 0) == list(range(0, 32, 4))
    assert layout.group_of("expert_shard", 0) == [0, 4]
    assert layout.group_of("expert_replicate", 0) == [0, 8, 16, 24]


def test_whole_shard_leaves_the_experts_whole(job: Job) -> None:
    layout = lay_out(job(gpus=24, tp=4, ep=3))
    assert layout.groups("expert_shard") == layout.groups("edp")
    assert layout.size("expert_replicate") == 1


def test_grids_without_common_digits(job: Job) -> None:
    layout = lay_out(job(gpus=24, tp=4, ep=3, shard=3))
    assert "expert_shard" not in layout.kinds


def test_large_world_costs_nothing(job: Job) -> None:
    spec = job(gpus=131072, tp=8, cp=4, pp=16, ep=8, shard=64, nics=8)
    lay_out(spec)
    start = time.perf_counter()
    for _ in range(20):
        layout = lay_out(spec)
        layout.coordinates(77777)
        layout.group_of("tp_pp", 77777)
    assert (time.perf_counter() - start) / 20 < 0.2
    start = time.perf_counter()
    assert len(to_json(layout, rank=77777)["reach"]) == len(layout.kinds)
    assert time.perf_counter() - start < 5


# ── Stages ────────────────────────────────────────────────────────────────────


def test_interleaved_places() -> None:
    schedule = Setting("interleaved", {"chunks": 2})
    places = [place_of(step, schedule=schedule, pp=4) for step in range(8)]
    assert places == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)]


def test_folded_places() -> None:
    places = [place_of(step, schedule=Setting("zbv"), pp=3) for step in range(6)]
    assert places == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]


def test_stages_hold_every_layer_once() -> None:
    stages = cut([3, 2, 1, 4], schedule=Setting("interleaved", {"chunks": 2}), pp=2)
    held = [layer for stage in stages for layer in range(stage.first, stage.last + 1)]
    assert held == list(range(10))
    assert [stage.embedding for stage in stages] == [True, False, False, False]
    assert [stage.head for stage in stages] == [False, False, False, True]


def test_dualpipe_holds_two_copies() -> None:
    stages = cut([2, 2], schedule=Setting("dualpipe"), pp=2)
    first = [(stage.chunk, stage.first) for stage in stages if stage.stage == 0]
    assert first == [(0, 0), (1, 2)]


@pytest.mark.parametrize(
    ("costs", "steps", "last", "expected"),
    [
        ([4] * 4, 2, 8, (3, 1)),
        ([3] * 126, 16, 2, (7, *(8,) * 14, 7)),  # as Llama 3 405B is cut
        ([1, 1, 1], 3, 100, (1, 1, 1)),
        ([5, 1, 1, 1, 1, 1], 2, 0, (1, 5)),
    ],
)
def test_split(costs: list[int], steps: int, last: int, expected: tuple[int, ...]) -> None:
    counts = split(costs, steps, last=last)
    assert sum(counts) == len(costs) and min(counts) > 0
    assert counts == expected


# ── JSON ──────────────────────────────────────────────────────────────────────


def test_json(job: Job) -> None:
    document = to_json(lay_out(job(gpus=8, tp=2, pp=2)), groups=True, rank=5)
    assert json.loads(json.dumps(document)) == document
    assert document["world"] == 8
    assert document["axes"] == [
        {"name": "tp", "size": 2, "stride": 1},
        {"name": "cp", "size": 1, "stride": 2},
        {"name": "dp", "size": 2, "stride": 2},
        {"name": "pp", "size": 2, "stride": 4},
    ]
    assert document["groups"]["pp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert document["rank"]["peers"]["tp"] == [4, 5]
    assert "groups" not in to_json(lay_out(job(gpus=8)))
