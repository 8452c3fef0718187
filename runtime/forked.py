"""A forked rank from its first to its last instruction; `local` holds the other ends of its pipes.

A rank waits for the port of the store, runs its target, reports once, and stays until the parent
says that all have reported: its peers may still be receiving what it sent.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

HOST = "127.0.0.1"
FILE = __file__
MACHINERY = (
    __name__,
    *("parlay.runtime.local", "parlay.runtime.verify", "parlay.runtime.prove"),
    *("runpy", "importlib", "importlib._bootstrap", "importlib._bootstrap_external"),
)
"""The modules that start a rank; a traceback begins after them."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which rank this is, and where its output goes."""

    rank: int
    world: int
    threads: int
    log: Path | None  # standard output and error; None leaves them the parent's
    stack: Path  # where it says on SIGUSR1 what it is doing


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a rank tells its parent, once."""

    at: float  # time.monotonic(), one clock for all processes
    value: Any = None
    summary: str | None = None  # of the exception; None where all went well
    detail: str = ""  # its traceback


def be(
    place: Place,
    target: Callable[[int], Any],
    *,
    parent: int,
    report: int,
    control: int,
    others: Iterable[int],
) -> NoReturn:
    """Become the rank of `place`. `report` and `control` are this rank's ends of its pipes,
    `others` the ends of the parent, closed here: a pipe ends when nobody holds its other end.
    """
    gc.freeze()  # what the parent owns, its threads above all, is not to be torn down here
    try:
        for end in others:
            os.close(end)
        _die_with(parent)
        _settle(place)
        with os.fdopen(control, "rb") as orders:
            os.environ["MASTER_PORT"] = orders.readline().decode().strip()
            with os.fdopen(report, "wb") as out:
                out.write(_attempt(target, rank=place.rank))
            orders.read()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)


def _die_with(parent: int) -> None:
    """Linux ends this process when its parent ends, however that came about."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)


def _settle(place: Place) -> None:
    """The process group, signals, output, scheduling, threads and environment of a rank."""
    import torch

    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # a Ctrl-C on the terminal reaches the parent alone
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if place.log is not None:
        with place.log.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
    # What stood in these names may be the parent's own, a test runner's for example.
    sys.stdin, sys.stdout, sys.stderr = _text(0, "r"), _text(1, "w"), _text(2, "w")
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=place.stack.open("w"))
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    torch.set_num_threads(place.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    os.environ.update(
        RANK=str(place.rank),
        LOCAL_RANK=str(place.rank),
        WORLD_SIZE=str(place.world),
        LOCAL_WORLD_SIZE=str(place.world),
        MASTER_ADDR=HOST,
        OMP_NUM_THREADS=str(place.threads),
        CUDA_VISIBLE_DEVICES="",  # these ranks are of the CPU, and a fork must not touch a GPU
        # The store is the parent's; rank 0 must not open one on the same port.
        TORCHELASTIC_USE_AGENT_STORE="True",
    )


def _text(descriptor: int, mode: str) -> Any:
    return open(descriptor, mode, encoding="utf-8", buffering=1, closefd=False)


def _attempt(target: Callable[[int], Any], *, rank: int) -> bytes:
    try:
        try:
            value = target(rank)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            value = None
        return pickle.dumps(Report(at=time.monotonic(), value=value))
    except BaseException as error:
        at = time.monotonic()
        summary = traceback.format_exception_only(error)[-1].strip()
        detail = "".join(traceback.format_exception(error.with_traceback(_theirs(error))))
        return pickle.dumps(Report(at=at, summary=summary, detail=detail))


def _theirs(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is not of the machinery that started the rank."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_globals.get("__name__") not in MACHINERY:
            return at
        at = at.tb_next
    return error.__traceback__
