"""A stop by signal: seen by one rank, agreed on by all."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime.local import run_ranks  # noqa: E402
from parlay.runtime.stop import ENDS, SIGNAL, SIGNALS, Stop  # noqa: E402


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = [signal.getsignal(one) for one in SIGNALS]
    yield
    for one, handler in zip(SIGNALS, before, strict=True):
        signal.signal(one, handler)


def test_it_is_asked_from_the_signal_on() -> None:
    stop = Stop(torch.device("cpu"))
    assert not stop.asked()
    os.kill(os.getpid(), SIGNAL)
    assert stop.asked() and stop.asked()


def test_a_signal_that_was_ignored_before_is_seen() -> None:
    # As under job.sbatch, which starts torchrun deaf to it.
    signal.signal(SIGNAL, signal.SIG_IGN)
    stop = Stop(torch.device("cpu"))
    os.kill(os.getpid(), SIGNAL)
    assert stop.asked()


def test_a_run_that_is_to_be_queued_again_ends_well_one_that_is_moved_does_not() -> None:
    stop = Stop(torch.device("cpu"))
    stop.leave()
    os.kill(os.getpid(), SIGNAL)
    assert stop.asked()
    stop.leave()
    os.kill(os.getpid(), ENDS)
    os.kill(os.getpid(), SIGNAL)  # the heavier stays
    assert stop.asked()
    with pytest.raises(SystemExit) as left:
        stop.leave()
    assert left.value.code == 143


def test_beside_the_main_thread_nothing_is_watched() -> None:
    before = signal.getsignal(SIGNAL)
    made: list[Stop] = []
    thread = threading.Thread(target=lambda: made.append(Stop(torch.device("cpu"))))
    thread.start()
    thread.join()
    assert not made[0].asked() and signal.getsignal(SIGNAL) is before


def _told(rank: int) -> list[int]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    stop = Stop(torch.device("cpu"))
    answers = [int(stop.asked())]
    if rank > 0:
        os.kill(os.getpid(), SIGNALS[rank - 1])
    stop.asked()
    answers.append(stop.seen)
    dist.destroy_process_group()
    return answers


@pytest.mark.distributed
def test_one_rank_that_sees_it_stops_all() -> None:
    assert run_ranks(_told, 3, timeout=120) == [[0, 2]] * 3
