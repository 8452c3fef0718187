"""Ranks forked on this machine: how a layout is trained and proved without a cluster.

`run_ranks` forks one process a rank from a parent that has torch imported already, which is what
makes eight ranks on two cores start in seconds. The ranks find each other through a store that
the parent holds on a port that the kernel chose, so that two runs never meet on one port.

`python -m parlay.runtime.local DIR --ranks N` runs DIR/train.py on N ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import runpy
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parlay.runtime.axes import Grid
from parlay.runtime.forked import FILE, HOST, Place, Report, be
from parlay.runtime.plan import Plan


class RankFailure(RuntimeError):
    """`ranks` failed or hung, and the others were ended. `detail` tells more of it: a traceback,
    the last output, or where they were."""

    def __init__(self, what: str, *, ranks: list[int], detail: str = "") -> None:
        self.what, self.ranks, self.detail = what, ranks, detail
        super().__init__(f"{self.told()}\n\n{detail}" if detail else self.told())

    def told(self, names: Sequence[str] = ()) -> str:
        """One sentence; `names` are what the ranks are called in it, by default their numbers."""
        return ", ".join(names or [f"rank {rank}" for rank in self.ranks]) + " " + self.what


PATIENCE_S = 0.3
"""After a first failure, how long others are waited for that may have come before it."""


class RankTimeout(RankFailure):
    """The time limit passed before these ranks had finished."""


def run_ranks(
    target: Callable[[int], Any],
    world: int,
    *,
    timeout: float | None,
    threads: int = 1,
    log_dir: Path | None = None,
    stream: Collection[int] = (),
) -> list[Any]:
    """Run `target(rank)` in `world` forked processes; return what they returned, by rank.

    In each the environment is torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, ...), so that
    `init_process_group()` works as it stands. What a rank prints goes to `log_dir/rank-N.log`,
    or through to this process for the ranks in `stream`.

    Raises RankFailure for the rank that failed first, RankTimeout after `timeout` seconds. No
    process is left behind, whatever happens here, a Ctrl-C or the death of this process included.
    """
    preload()
    with contextlib.ExitStack() as stack:
        if log_dir is None:
            log_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ranks-")))
        log_dir.mkdir(parents=True, exist_ok=True)
        ranks: list[_Rank] = []
        stack.callback(_end, ranks)
        for number in range(world):
            place = Place(
                rank=number,
                world=world,
                threads=threads,
                log=None if number in stream else log_dir / f"rank-{number}.log",
                stack=log_dir / f"rank-{number}.stack",
            )
            _fork(target, place, children=ranks)
        # Only now, so that no rank is forked from a process in which the store's thread runs.
        store = _store(world)
        try:
            for rank in ranks:
                with contextlib.suppress(BrokenPipeError):  # one gone already is found below
                    os.write(rank.control, b"%d\n" % store.port)
            _await(ranks, timeout=timeout)
        finally:
            del store  # else the traceback of a failure keeps it, and its thread, alive
        return [rank.value for rank in ranks]


def preload() -> None:
    """Import, before the fork, what each rank would import after it (seconds a rank)."""
    import torch._dynamo  # an optimizer imports it, at its first parameter group
    import torch.distributed.device_mesh  # noqa: F401


# ── In the parent ─────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class _Rank:
    """A child, and this end of its pipes."""

    place: Place
    pid: int
    report: int  # to read: its one report, then end of file
    control: int  # to write: the port; closed when all have reported
    received: bytearray = field(default_factory=bytearray)
    reported: bool = False
    ended: bool = False
    value: Any = None

    @property
    def number(self) -> int:
        return self.place.rank


def _fork(target: Callable[[int], Any], place: Place, *, children: list[_Rank]) -> None:
    """After: the rank of `place` runs and stands in `children`."""
    (report_in, report_out), (control_in, control_out) = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # A Ctrl-C waits until the child is in the list of those to be ended.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        ours = [report_in, control_out, *(end for c in children for end in (c.report, c.control))]
        be(place, target, parent=parent, report=report_out, control=control_in, others=ours)
    os.close(report_out)
    os.close(control_in)
    with contextlib.suppress(OSError):  # the child does the same; whoever is first
        os.setpgid(pid, pid)
    children.append(_Rank(place=place, pid=pid, report=report_in, control=control_out))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _store(world: int) -> Any:
    from torch.distributed import TCPStore

    return TCPStore(HOST, 0, world_size=world, is_master=True, wait_for_workers=False)


def _await(ranks: list[_Rank], *, timeout: float | None) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.report, selectors.EVENT_READ, rank)
        while selector.get_map():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            failures = list(_receive(selector, timeout=left))
            if failures:
                # A rank that dies breaks its peers' connections, and they fail too: of all that is
                # here now, or comes soon, the first. The pipe of one that was killed may close
                # after its sockets.
                soon = time.monotonic() + PATIENCE_S
                while selector.get_map() and (left := soon - time.monotonic()) > 0:
                    failures += _receive(selector, timeout=left)
                raise min(failures, key=lambda failure: failure[0])[1]
            if deadline is not None and time.monotonic() >= deadline and selector.get_map():
                waiting = [key.data for key in selector.get_map().values()]
                raise _timed_out(waiting, timeout=timeout)


def _receive(
    selector: selectors.BaseSelector, *, timeout: float | None
) -> Iterator[tuple[float, RankFailure]]:
    """Read what the ranks report now; yield the failures, each with its time."""
    for key, _ in selector.select(timeout):
        rank: _Rank = key.data
        piece = os.read(rank.report, 1 << 20)
        rank.received += piece
        if piece:
            continue
        selector.unregister(rank.report)
        rank.reported = True
        try:
            report: Report = pickle.loads(bytes(rank.received))
        except (EOFError, pickle.UnpicklingError):
            died = _died(rank)
            # Libraries abort where a peer has gone: that is no first failure.
            yield (time.monotonic() if died.what.endswith("SIGABRT") else 0.0), died
            continue
        rank.value = report.value
        if report.summary is not None:
            what = f"failed: {report.summary}"
            yield report.at, RankFailure(what, ranks=[rank.number], detail=report.detail)


def _died(rank: _Rank) -> RankFailure:
    _, status = os.waitpid(rank.pid, 0)
    rank.ended = True
    code = os.waitstatus_to_exitcode(status)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
    return RankFailure(how, ranks=[rank.number], detail=_tail(rank.place.log, lines=80))


def _timed_out(waiting: list[_Rank], *, timeout: float | None) -> RankTimeout:
    """Asks the ranks that still run where they are before they are ended."""
    for rank in waiting:
        os.kill(rank.pid, signal.SIGUSR1)
    time.sleep(0.3)
    stacks = {rank.number: _stack(rank.place.stack) for rank in waiting}
    places = "\n\n".join(f"rank {number}:\n{stacks[number]}" for number in sorted(stacks))
    what = f"did not finish in {timeout:g} s"
    return RankTimeout(what, ranks=sorted(stacks), detail=places)


def _stack(path: Path) -> str:
    """What faulthandler wrote, the innermost call first, down to what started the rank."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return text.split(f'  File "{FILE}"')[0].rstrip()


def _tail(path: Path | None, *, lines: int) -> str:
    if path is None or not path.is_file():
        return ""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _end(ranks: list[_Rank]) -> None:
    """After: no process of `ranks` exists, and no pipe to it is open."""
    finished = all(rank.reported for rank in ranks)
    for rank in ranks:
        os.close(rank.control)  # a rank that has reported exits at this end of file
        os.close(rank.report)
    patience = time.monotonic() + (5 if finished else 0)
    for rank in ranks:
        while not rank.ended and time.monotonic() < patience:
            rank.ended = os.waitpid(rank.pid, os.WNOHANG)[0] != 0
            if not rank.ended:
                time.sleep(0.005)
    alive = [rank for rank in ranks if not rank.ended]
    for rank in alive:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGKILL)
    for rank in alive:
        os.waitpid(rank.pid, 0)
        rank.ended = True


# ── python -m parlay.runtime.local ────────────────────────────────────────────


def run_file(path: Path) -> None:
    """Run a file as `python FILE` does: as `__main__`, with its folder first on the path."""
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m parlay.runtime.local", description="Run DIR/train.py on ranks forked here."
    )
    parser.add_argument("dir", type=Path, help="an emitted folder")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds; no limit by default")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what each rank prints")
    asked = parser.parse_args()
    train = asked.dir.resolve() / "train.py"
    if not train.is_file():
        parser.error(f"no file {train}")
    mesh = Plan.load(train.with_name("plan.json")).mesh
    grid = Grid(tuple(mesh.items()))
    if grid.world != asked.ranks:
        parser.error(f"the mesh of plan.json has {grid.world} ranks, not {asked.ranks}")
    last = grid.rank_of({"pp": grid.size("pp") - 1}) if "pp" in mesh else 0
    try:
        run_ranks(
            lambda rank: run_file(train),
            asked.ranks,
            timeout=asked.timeout,
            log_dir=asked.logs,
            stream=[last],  # the rank that logs
        )
    except RankFailure as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    # By its own name: as `__main__` it would be taken for the program that it runs.
    from parlay.runtime import local

    sys.exit(local.main())
