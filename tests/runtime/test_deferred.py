"""The two halves of a backward: nothing is computed twice, kept too long or left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from parlay.compiler.ledger.memory.flight import in_flight  # noqa: E402
from parlay.compiler.spec.schema import Setting  # noqa: E402
from parlay.runtime import deferred, pipeline, timeline_split  # noqa: E402
from parlay.runtime.axes import Grid  # noqa: E402
from parlay.runtime.local import run_ranks  # noqa: E402
from parlay.runtime.mesh import Mesh  # noqa: E402
from parlay.runtime.recompute import recompute  # noqa: E402
from parlay.runtime.timeline import Timeline, one_f_one_b  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

B, S, H = 2, 3, 4
SCHEDULES: dict[str, Callable[[int, int], Timeline]] = {
    "zero_bubble": timeline_split.zero_bubble,
    "zbv": timeline_split.zbv,
    "dualpipe_v": timeline_split.dualpipe_v,
}


class Layer(nn.Module):
    """A norm and a linear, and how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(H, dtype=torch.float64)
        self.linear = deferred.Linear(H, H, dtype=torch.float64)
        self.forwards = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += 1
        return torch.tanh(self.linear(self.norm(x)))


class Stage(nn.Module):
    """Two layers, one of which is computed again."""

    def __init__(self, stage: int, *, stages: int) -> None:
        super().__init__()
        torch.manual_seed(stage)
        self.first, self.last = stage == 0, stage == stages - 1
        self.layers = nn.ModuleDict({f"{2 * stage}": Layer(), f"{2 * stage + 1}": Layer()})
        if self.first:
            self.embedding = nn.Embedding(10, H, dtype=torch.float64)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.first:
            x = self.embedding(x)
        kept, again = self.layers.values()
        x = recompute(again, kept(x))
        return (x.sum(-1) * labels).sum() if self.last else x


class Alone:
    rank = 0


def batch_of(microbatches: int) -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randint(0, 10, (B, S), generator=g), torch.randint(0, 10, (B, S), generator=g))
        for _ in range(microbatches)
    ]


def run(line: Timeline, stages: Any, axis: Any = Alone) -> None:
    batch = batch_of(line.microbatches)
    valid = torch.tensor(5)
    pipeline.run(line, stages=stages, batch=batch, valid=valid, axis=axis, shape=(B, S, H))


def gradients(line: Timeline) -> dict[str, Tensor]:
    model = pipeline.Chunks([Stage(i, stages=line.stages) for i in range(line.stages)])
    run(line, model.stages)
    again = [2 if int(name) % 2 else 1 for name in model.layers]
    forwards = [layer.forwards for layer in model.layers.values()]
    assert forwards == [times * line.microbatches for times in again]  # once more, not twice
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", SCHEDULES)
def test_two_halves_are_a_whole(name: str) -> None:
    line = SCHEDULES[name](1, 5)
    assert line.splits
    expected = gradients(Timeline(1, line.chunks, 5, whole(line), line.route))
    found = gradients(line)
    assert found.keys() == expected.keys()
    for weight, gradient in found.items():
        torch.testing.assert_close(gradient, expected[weight], rtol=1e-12, atol=1e-14)


def whole(line: Timeline) -> Any:
    """The same list without halves."""
    return tuple(
        tuple(a._replace(kind="B" if a.kind == "I" else a.kind) for a in mine if a.kind != "W")
        for mine in line.actions
    )


def test_the_first_half_leaves_linears_alone() -> None:
    layer = Layer()
    x = torch.ones(B, S, H, dtype=torch.float64, requires_grad=True)
    with deferred.splitting(True):
        out = layer(x)
    with deferred.put_off() as late:
        out.sum().backward()
    assert x.grad is not None
    assert layer.norm.weight.grad is not None
    assert layer.linear.weight.grad is None
    assert layer.linear.bias.grad is None
    given = StorageWeakRef(x.untyped_storage())
    del x, out
    assert given.expired()  # nothing keeps the graph
    seen: list[int] = []
    late.hold(lambda: seen.append(len(late.tasks)))
    late.run()
    assert seen == [0]
    assert layer.linear.weight.grad is not None
    assert layer.linear.bias.grad is not None
    assert not late.tasks
    assert not deferred.second()


def test_whole_backwards_stay_whole() -> None:
    """Nothing of a list without halves goes through the runtime's linear."""
    line = one_f_one_b(1, 2)
    with mock.patch.object(deferred._Linear, "forward", side_effect=AssertionError):
        run(line, [Stage(0, stages=1)])


def test_a_list_that_leaves_something_out_is_named() -> None:
    line = timeline_split.zero_bubble(1, 2)
    (mine,) = line.actions
    halves = [("weight gradients", "W"), ("backward", "IW")]
    for what, kinds in halves:
        less = tuple(a for a in mine if a[1:] != (0, 1) or a.kind not in kinds)
        with pytest.raises(ValueError, match=f"no {what} of stage 0, microbatch 1"):
            run(Timeline(1, 1, 2, (less,)), [Stage(0, stages=1)])


# ── What is held ──────────────────────────────────────────────────────────────


@pytest.mark.distributed
def test_what_is_held_is_what_the_list_says() -> None:
    """Microbatches of each chunk between their forward and their last half, at most, on four ranks:
    those of the ledger."""
    lines = {name: made(4, 11) for name, made in SCHEDULES.items()}

    def target(rank: int) -> dict[str, int]:
        axis = Mesh(Grid((("pp", 4),))).pp
        found = {}
        for name, line in lines.items():
            own = [s for s in range(line.stages) if line.rank_of(s) == rank]
            stages = [Stage(stage, stages=line.stages) for stage in own]
            most = 0
            act = pipeline._Worker.act

            def counted(worker: Any, action: Any, act: Any = act) -> Any:
                nonlocal most
                out = act(worker, action)
                most = max(most, len(worker.held) + len(worker.late))
                return out

            with mock.patch.object(pipeline._Worker, "act", counted):
                run(line, stages, axis)
            found[name] = most
        return found

    for rank, found in enumerate(run_ranks(target, 4, timeout=120)):
        for name, line in lines.items():
            assert found[name] == line.in_flight(rank), (rank, name)
            weights = (1.0,) * line.chunks
            asked = {"pp": 4, "microbatches": 11, "stage": rank, "weights": weights}
            assert sum(in_flight(Setting(name), **asked)) == found[name]


# ── Messages ──────────────────────────────────────────────────────────────────


@st.composite
def lines(draw: st.DrawFn) -> Timeline:
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    pp = draw(st.integers(1, 8))
    least = 2 * pp if name == "dualpipe_v" else 1
    return SCHEDULES[name](pp, draw(st.integers(least, least + 3 * pp + 2)))


@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(lines())
def test_rounds_never_wait_in_a_ring(line: Timeline) -> None:
    """Ranks that run their rounds as `_Worker.turn` does: before a round's messages are posted,
    those of the rank's last round have to be through, which both ends must have posted."""
    queues = [list(line.rounds(rank)) for rank in range(line.pp)]
    at = [0] * line.pp
    posted: list[set[Any]] = [set() for _ in range(line.pp)]  # what each rank has posted
    under_way: list[list[Any]] = [[] for _ in range(line.pp)]
    arrived: list[set[Any]] = [set() for _ in range(line.pp)]

    def through(message: Any) -> bool:
        return message in posted[message.source] and message in posted[message.target]

    moved = True
    while moved:
        moved = False
        for rank in range(line.pp):
            while at[rank] < len(queues[rank]) and all(map(through, under_way[rank])):
                turn = queues[rank][at[rank]]
                arrived[rank] |= set(under_way[rank])
                need = line.needs(turn.action) if turn.action is not None else None
                if need is not None and line.rank_of(need.stage) != rank:
                    kind = "F" if turn.action.kind == "F" else "B"
                    key = (kind, turn.action.stage, turn.action.microbatch)
                    assert key in {message[:3] for message in arrived[rank]}
                under_way[rank] = [*turn.sends, *turn.receives]
                posted[rank] |= set(under_way[rank])
                at[rank] += 1
                moved = True
    assert at == [len(queue) for queue in queues]
    assert all(through(message) for messages in under_way for message in messages)
