"""Ranks forked here: results, the first failure, time limits, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from parlay.runtime.local import RankFailure, RankTimeout, run_ranks

pytestmark = pytest.mark.distributed


def join() -> None:
    torch.distributed.init_process_group("gloo")


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_ranks_find_each_other_and_return_what_they_computed() -> None:
    def target(rank: int) -> tuple[int, float, int]:
        join()
        total = torch.tensor(float(rank))
        torch.distributed.all_reduce(total)
        return rank, total.item(), torch.get_num_threads()

    assert run_ranks(target, 4, timeout=60) == [(rank, 6.0, 1) for rank in range(4)]


def test_environment_is_torchruns() -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    first, second = run_ranks(lambda rank: [os.environ[name] for name in names], 2, timeout=60)
    assert first == ["0", "0", "2", "2", "127.0.0.1"]
    assert second == ["1", "1", "2", "2", "127.0.0.1"]


def test_first_failure_is_the_one_told_not_the_peers_that_it_broke() -> None:
    def target(rank: int) -> None:
        join()
        torch.distributed.barrier()
        if rank == 2:
            raise ValueError("the weights of rank 2 are gone")
        torch.distributed.barrier()  # ranks 0, 1 and 3 fail here, or wait

    start = time.monotonic()
    with pytest.raises(RankFailure) as caught:
        run_ranks(target, 4, timeout=60)
    assert time.monotonic() - start < 60
    assert caught.value.ranks == [2]
    assert caught.value.told() == "rank 2 failed: ValueError: the weights of rank 2 are gone"
    assert caught.value.detail.startswith("Traceback (most recent call last):")
    assert 'raise ValueError("the weights of rank 2 are gone")' in caught.value.detail
    assert "forked.py" not in caught.value.detail


def test_rank_that_is_killed_is_named_with_its_signal_and_last_output() -> None:
    def target(rank: int) -> None:
        join()
        torch.distributed.barrier()
        if rank == 1:
            print("about to go", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        torch.distributed.barrier()

    with pytest.raises(RankFailure, match="rank 1 was ended by SIGSEGV") as caught:
        run_ranks(target, 3, timeout=60)
    assert "about to go" in caught.value.detail


def test_rank_that_leaves_without_a_word_is_a_failure() -> None:
    with pytest.raises(RankFailure, match="rank 0 exited with 7"):
        run_ranks(lambda rank: os._exit(7), 1, timeout=60)


@pytest.mark.parametrize("code", [0, None])
def test_leaving_by_sys_exit_0_is_no_failure(code: int | None) -> None:
    assert run_ranks(lambda rank: sys.exit(code), 1, timeout=60) == [None]


def test_leaving_by_sys_exit_1_is_a_failure() -> None:
    with pytest.raises(RankFailure, match="rank 0 failed: SystemExit: 3"):
        run_ranks(lambda rank: sys.exit(3), 1, timeout=60)


def test_result_that_cannot_travel_is_a_failure_of_that_rank() -> None:
    with pytest.raises(RankFailure, match=r"rank 0 failed: .*pickle"):
        run_ranks(lambda rank: lambda: rank, 1, timeout=60)


def test_hang_ends_by_the_limit_and_names_who_waits_and_where() -> None:
    def target(rank: int) -> None:
        join()
        if rank != 1:
            torch.distributed.barrier()

    start = time.monotonic()
    with pytest.raises(RankTimeout) as caught:
        run_ranks(target, 3, timeout=6)
    assert time.monotonic() - start < 90
    assert caught.value.ranks == [0, 2]
    assert caught.value.told() == "rank 0, rank 2 did not finish in 6 s"
    assert "in barrier" in caught.value.detail
    assert "in target" in caught.value.detail


def test_result_larger_than_a_pipe() -> None:
    assert run_ranks(lambda rank: b"x" * 3_000_000, 2, timeout=60) == [b"x" * 3_000_000] * 2


def test_no_process_is_left_after_success_failure_or_hang(tmp_path: Path) -> None:
    def target(rank: int, *, fails: bool, hangs: bool) -> None:
        (tmp_path / f"{os.getpid()}").touch()
        if fails and rank == 0:
            raise RuntimeError
        while hangs:
            time.sleep(0.01)

    run_ranks(lambda rank: target(rank, fails=False, hangs=False), 3, timeout=60)
    with pytest.raises(RankFailure):
        run_ranks(lambda rank: target(rank, fails=True, hangs=True), 3, timeout=60)
    with pytest.raises(RankTimeout):
        run_ranks(lambda rank: target(rank, fails=False, hangs=True), 3, timeout=3)
    pids = [int(file.name) for file in tmp_path.iterdir()]
    assert len(pids) >= 7
    assert not any(running(pid) for pid in pids)


def test_output_goes_to_a_log_a_rank(tmp_path: Path) -> None:
    run_ranks(lambda rank: print(f"here is {rank}"), 2, timeout=60, log_dir=tmp_path)
    assert (tmp_path / "rank-0.log").read_text() == "here is 0\n"
    assert (tmp_path / "rank-1.log").read_text() == "here is 1\n"


PROGRAM = """
import sys, time, os
from pathlib import Path
from parlay.runtime.local import run_ranks
def target(rank):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(120)
run_ranks(target, 2, timeout=100)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_their_parent(
    tmp_path: Path, how: signal.Signals, interruptible: Callable[[], object]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    ) as parent:
        until = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        pids = [int(file.name) for file in tmp_path.iterdir()]
        assert len(pids) == 2
        parent.send_signal(how)
        parent.wait(timeout=60)
    until = time.monotonic() + 60
    while any(running(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(running(pid) for pid in pids)


TRAIN = """
import os, torch.distributed as dist
from sibling import word
if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    print(word, os.environ["RANK"])
    {then}
"""


def folder(at: Path, *, then: str) -> Path:
    at.mkdir()
    (at / "train.py").write_text(TRAIN.format(then=then))
    (at / "sibling.py").write_text("word = 'rank'\n")
    (at / "plan.json").write_text('{"version": 1, "mesh": {"dp": 1, "pp": 2}}')
    return at


def started(at: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parlay.runtime.local", str(at), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=90)


def test_command_runs_train_and_shows_the_rank_that_logs(tmp_path: Path) -> None:
    done = started(folder(tmp_path / "code", then="pass"), "--ranks", "2", "--timeout", "60")
    assert (done.returncode, done.stdout) == (0, "rank 1\n"), done.stderr


def test_command_tells_of_a_failure_once(tmp_path: Path) -> None:
    code = folder(tmp_path / "code", then="if os.environ['RANK'] == '0': raise KeyError('q')")
    done = started(code, "--ranks", "2", "--timeout", "60")
    assert done.returncode == 1
    assert done.stderr.startswith("rank 0 failed: KeyError: 'q'\n\nTraceback")
    assert "runpy" not in done.stderr


def test_command_refuses_another_number_of_ranks(tmp_path: Path) -> None:
    done = started(folder(tmp_path / "code", then="pass"), "--ranks", "3")
    assert done.returncode == 2
    assert "the mesh of plan.json has 2 ranks, not 3" in done.stderr
