"""A pipeline of small stages against the same stages run one after the other, in float64."""

from typing import ClassVar

import pytest
import torch
from parlay.runtime import pipeline, timeline
from parlay.runtime.axes import Grid
from parlay.runtime.local import run_ranks
from parlay.runtime.mesh import Mesh
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

pytestmark = pytest.mark.distributed

B, S, H = 2, 3, 4


class Stage(nn.Module):
    def __init__(self, stage, *, stages):
        super().__init__()
        torch.manual_seed(stage)
        self.first, self.last = stage == 0, stage == stages - 1
        self.layers = nn.ModuleDict({str(stage): nn.Linear(H, H, dtype=torch.float64)})
        if self.first:
            self.embedding = nn.Embedding(10, H, dtype=torch.float64)
        if self.last:
            self.norm = nn.RMSNorm(H, dtype=torch.float64)

    def forward(self, x, labels):
        if self.first:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return (self.norm(x).sum(-1) * labels).sum() if self.last else x


def batch_of(microbatches):
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randint(0, 10, (B, S), generator=g), torch.randint(0, 10, (B, S), generator=g))
        for _ in range(microbatches)
    ]


def run(schedule, *, axis, batch, stages, **changed):
    keywords = {
        "valid": torch.tensor(5),
        "axis": axis,
        "shape": (B, S, H),
    }
    return pipeline.run(schedule, stages=stages, batch=batch, **{**keywords, **changed})


def one_after_the_other(stages, microbatches):
    modules = [Stage(stage, stages=stages) for stage in range(stages)]
    total = 0.0
    for tokens, labels in batch_of(microbatches):
        x = tokens
        for module in modules:
            x = module(x, labels)
        (x / 5).backward()
        total += float(x.detach() / 5)
    return total, {
        name: parameter.grad for module in modules for name, parameter in module.named_parameters()
    }


@pytest.mark.parametrize(
    ("world", "chunks", "schedule"),
    [
        (4, 1, timeline.gpipe(4, 6)),
        (4, 1, timeline.one_f_one_b(4, 6)),
        (4, 1, timeline.one_f_one_b(4, 2)),
        (2, 3, timeline.interleaved(2, 3, 4)),
        (1, 2, timeline.interleaved(1, 2, 3)),
    ],
    ids=["gpipe", "1f1b", "1f1b-short", "interleaved", "one-rank"],
)
def test_equal_to_the_stages_in_turn(world, chunks, schedule):
    def target(rank):
        axis = Mesh(Grid((("pp", world),))).pp
        model = pipeline.Chunks(
            [Stage(chunk * world + rank, stages=schedule.stages) for chunk in range(chunks)]
        )
        batch = batch_of(schedule.microbatches)
        loss = run(schedule, axis=axis, batch=batch, stages=model.stages)
        grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
        return None if loss is None else float(loss), grads

    found = run_ranks(target, world, timeout=60)
    loss, expected = one_after_the_other(schedule.stages, schedule.microbatches)
    assert [of_rank[0] is None for of_rank in found] == [True] * (world - 1) + [False]
    assert found[-1][0] == pytest.approx(loss, rel=1e-13)
    grads = {name: grad for _, of_rank in found for name, grad in of_rank.items()}
    assert grads.keys() == expected.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(torch.from_numpy(grad), expected[name], rtol=1e-12, atol=1e-14)


class Counting(Stage):
    """Counts which of the activations it has returned are still in memory."""

    returned: ClassVar[list[StorageWeakRef]] = []

    def forward(self, x, labels):
        out = super().forward(x, labels) + 1.0  # an addition keeps nothing for its backward
        self.returned.append(StorageWeakRef(out.untyped_storage()))
        return out


@pytest.mark.parametrize(
    ("schedule", "held"),
    [(timeline.one_f_one_b(2, 8), [2, 1]), (timeline.gpipe(2, 8), [8, 8])],
    ids=["1f1b", "gpipe"],
)
def test_what_is_kept_and_for_how_long(schedule, held):
    """A microbatch until its backward, a stage's output until it is sent."""

    def target(rank):
        axis = Mesh(Grid((("pp", 2),))).pp
        most = {"held": 0, "outputs": 0, "inputs": 0}
        act = pipeline._Worker.act

        def counted(worker, action):
            alive = sum(not ref.expired() for ref in Counting.returned)
            out = act(worker, action)
            for name, count in [
                ("held", len(worker.held)),
                ("outputs", alive),
                ("inputs", len(worker.inbox)),
            ]:
                most[name] = max(most[name], count)
            return out

        pipeline._Worker.act = counted
        run(schedule, axis=axis, batch=batch_of(8), stages=[Counting(rank, stages=2)])
        return most

    for rank, most in enumerate(run_ranks(target, 2, timeout=60)):
        assert most["held"] == held[rank]
        if rank == 0:
            assert most["outputs"] <= 1
            assert most["inputs"] <= 2


def test_what_does_not_fit_is_named():
    schedule = timeline.one_f_one_b(2, 2)

    def target(rank):
        axis = Mesh(Grid((("pp", 2),))).pp
        stages, batch = [Stage(rank, stages=2)], batch_of(2)
        with pytest.raises(ValueError, match="takes 2 microbatches, the batch has 1"):
            run(schedule, axis=axis, batch=batch[:1], stages=stages)
        if rank == 0:
            with pytest.raises(
                ValueError, match=r"stage 0 returned \(2, 3, 4\).*sends \(2, 9, 4\)"
            ):
                run(schedule, axis=axis, batch=batch, stages=stages, shape=(B, 9, H))
        one = timeline.one_f_one_b(1, 2)
        alone = Stage(0, stages=1)
        with pytest.raises(ValueError, match="needs the number of valid labels"):
            run(one, axis=Alone(), batch=batch, stages=[alone], valid=None)

    run_ranks(target, 2, timeout=60)


class Alone:
    rank = 0


def test_chunks_keep_global_names():
    model = pipeline.Chunks([Stage(0, stages=4), Stage(2, stages=4)])
    assert sorted(name for name, _ in model.named_parameters()) == [
        "embedding.weight",
        "layers.0.bias",
        "layers.0.weight",
        "layers.2.bias",
        "layers.2.weight",
    ]
