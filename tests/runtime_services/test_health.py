"""What ends a run, or is told of it: gradients that are no numbers, jumps, slow ranks, hangs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime import watchdog  # noqa: E402
from parlay.runtime.health import (  # noqa: E402
    Effort,
    Health,
    Jump,
    Unhealthy,
    behind,
    must_be_finite,
)
from parlay.runtime.local import RankFailure, run_ranks  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.watchdog import doing, summary  # noqa: E402

NAN, INF = float("nan"), float("inf")


def plan(mesh: dict[str, int], **health: Any) -> Plan:
    limits = {
        "wait": 60,
        "spike": {"loss": 1.5, "grad_norm": 10.0, "window": 32},
        "straggler": {"every": 3, "beyond": 1.5},
    }
    return Plan.of({"version": 1, "mesh": mesh, "health": limits | health})


class Found:
    """Gradients by name."""

    def __init__(self, *gradients: tuple[Any, ...]) -> None:
        self.gradients = gradients

    def named(self) -> tuple[tuple[Any, ...], ...]:
        return self.gradients


# ── Numbers ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_norm_that_is_no_number_ends_the_run(value: float) -> None:
    gradients = Found(("a.weight", torch.ones(2)), ("b.weight", 4, torch.tensor([1.0, value])))
    with pytest.raises(Unhealthy, match=rf"step 7: .* is {value}: b.weight on rank 0$"):
        must_be_finite(torch.tensor(value), gradients, step=7)
    must_be_finite(torch.tensor(3.0), gradients, step=7)


def test_squares_that_are_too_large_are_said_to_be() -> None:
    with pytest.raises(Unhealthy, match="each is a number"):
        must_be_finite(torch.tensor(INF), Found(("a.weight", torch.tensor([1e30]))), step=0)


def _norms(rank: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    mine = torch.tensor([1.0, NAN if rank in (1, 2) else 0.0])
    norm = mine.square().sum()
    dist.all_reduce(norm)
    name = "norm.weight" if rank == 1 else "head.weight"
    must_be_finite(norm.sqrt(), Found((name, mine)), step=3)


@pytest.mark.distributed
def test_every_rank_ends_and_names_those_it_comes_from() -> None:
    with pytest.raises(RankFailure, match="step 3") as told:
        run_ranks(_norms, 4, timeout=120)
    assert "norm.weight on rank 1; head.weight on rank 2" in str(told.value)


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    health = Health(plan({}), writes=True, device=torch.device("cpu"))
    with pytest.raises(Unhealthy, match="step 2: the loss is nan"):
        health.after(2, loss=torch.tensor(NAN), grad_norm=torch.tensor(1.0))
    health.close()


# ── Jumps ─────────────────────────────────────────────────────────────────────


def test_a_jump_is_one_over_the_median_of_the_last_values() -> None:
    jump = Jump(2.0, window=8)
    assert [jump.beyond(value) for value in (100.0, *[3.0] * 6)] == [None] * 7
    assert jump.beyond(50.0) is None  # seven are too few
    assert jump.beyond(6.0) is None and jump.beyond(6.1) == 3.0
    for _ in range(8):  # a course that stays is the usual one
        jump.beyond(50.0)
    assert jump.beyond(60.0) is None


def test_jumps_are_told_by_the_rank_that_writes(capsys: pytest.CaptureFixture[str]) -> None:
    for writes in (True, False):
        health = Health(plan({}), writes=writes, device=torch.device("cpu"))
        for step in range(10):
            loss, norm = (4.0, 30.0) if step == 9 else (2.0, 1.0)
            health.after(step, loss=torch.tensor(loss), grad_norm=torch.tensor(norm))
        health.close()
        told = capsys.readouterr().err.splitlines()
        said = ["step 9: loss 4, of late 2", "step 9: gradient norm 30, of late 1"]
        assert told == (said if writes else [])


# ── Slow ranks ────────────────────────────────────────────────────────────────


def test_who_is_behind_its_peers() -> None:
    took = [1.0, 1.1, 2.0, 9.0, 8.0, 9.0, 1.0, 1.6]
    peers = [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert list(behind(took, peers=peers, beyond=1.5)) == [(2, 1.1), (7, 1.0)]


def test_waiting_is_no_effort() -> None:
    effort = Effort(torch.device("cpu"))
    time.sleep(0.3)
    assert effort.seconds() < 0.1
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    assert 0.1 <= effort.seconds() < 0.3


def _slow(rank: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    health = Health(plan({"dp": 2, "pp": 2}), writes=rank == 2, device=torch.device("cpu"))
    health.effort.seconds()
    for step in range(3):
        # What else they do in three steps is to be little beside it.
        until = time.process_time() + (0.2 if rank else 0.01)
        while time.process_time() < until:
            pass
        health.after(step, loss=torch.tensor(1.0), grad_norm=torch.tensor(1.0))
    health.close()


@pytest.mark.distributed
def test_a_slow_rank_is_named_among_those_of_its_stage(tmp_path: Path) -> None:
    run_ranks(_slow, 4, timeout=120, log_dir=tmp_path)
    told = [(tmp_path / f"rank-{rank}.log").read_text() for rank in range(4)]
    assert "step 2: rank 1 (dp 1, pp 0) is slow" in told[2]
    assert told[2].count("is slow") == 1 and "is slow" not in told[0] + told[1] + told[3]


# ── Hangs ─────────────────────────────────────────────────────────────────────


def _hangs(rank: int, *, stopped: bool) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))  # who starts late, or connects, is not what is waited for
    health = Health(plan({"dp": 3}, wait=3), writes=rank == 0, device=torch.device("cpu"))
    for step in range(3):
        for _ in health.over(step, [(torch.ones(1), torch.ones(1))] * 2):
            if step == 1 and rank == 2:
                os.kill(os.getpid(), signal.SIGSTOP) if stopped else time.sleep(100)
            dist.all_reduce(torch.ones(1))
        health.after(step, loss=None, grad_norm=torch.tensor(1.0))


@pytest.mark.distributed
@pytest.mark.parametrize("stopped", [False, True])
def test_a_rank_that_others_wait_for_is_named(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "ANSWER_S", 1.5)
    with pytest.raises(RankFailure, match="exited with 1"):
        run_ranks(lambda rank: _hangs(rank, stopped=stopped), 3, timeout=90, log_dir=tmp_path)
    told = "".join((tmp_path / f"rank-{rank}.log").read_text() for rank in range(3))
    [line] = [line for line in told.splitlines() if "nothing has moved" in line]
    culprit = "rank 2 says nothing" if stopped else "rank 2 is at test_health.py"
    assert line.startswith(f"nothing has moved for 3 s: {culprit}"), line
    assert "ranks 0, 1 wait in all_reduce, test_health.py" in line
    assert line.endswith("microbatch 0 of step 1")


def test_saves_and_what_lies_between_steps_may_take_long() -> None:
    health = Health(plan({}, wait=0.2), writes=False, device=torch.device("cpu"))
    for _ in health.over(0, [(torch.ones(1), torch.ones(1))]):
        pass
    health.after(0, loss=None, grad_norm=torch.tensor(1.0))
    time.sleep(0.5)  # the process is still here
    health.close()


def test_what_the_ranks_do_is_told_once() -> None:
    waits = ("waits in all_reduce", True)
    told = summary([waits, ("is at data.py:3 (read)", False), *[waits] * 9])
    assert told == (
        "rank 1 is at data.py:3 (read); ranks 0, 2, 3, 4, 5, 6, 7, 8 and 2 more wait in all_reduce"
    )
    assert doing(None) == ("is gone", False)
