"""A rank that waits too long: who it is, and what it was doing. Nothing hangs for good.

A thread of every rank watches the microbatches of its steps. Where none begins for `wait` seconds
it asks all ranks, through a store of their own, what they are doing; one of them tells it in a
line, and the ranks end with status 1. A rank that says nothing is gone, stopped, or in code that
lets no other thread run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Final

from parlay.runtime.axes import Grid
from parlay.runtime.loss import Batch
from torch.distributed import PrefixStore, Store, TCPStore

TICK_S: Final = 15.0
"""How often a rank looks whether it is late, or asked; at most."""
ANSWER_S: Final = 3.0
"""How long one waits for the others' answers beyond a tick."""
LIBRARY: Final = ("site-packages", "dist-packages", "threading.py", "selectors.py", "socket.py")
"""Files that are not the job's own."""
WAITS: Final = (".wait(", "float(", ".item(", "synchronize(")
"""Calls in which the job itself waits for others, or for a GPU that waits for them."""
HERE: Final = str(Path(__file__).parent)
NOTHING: Final = ("says nothing", False)
PLURAL: Final = {"waits": "wait", "is": "are", "says": "say"}


class Watched(Sequence[Any]):
    """A batch that tells when one of its microbatches is taken."""

    def __init__(self, batch: Batch, watchdog: Watchdog) -> None:
        self.batch, self.watchdog = batch, watchdog

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, at: Any) -> Any:
        self.watchdog.beat(at)
        return self.batch[at]

    def __iter__(self) -> Iterator[Any]:
        for at, one in enumerate(self.batch):
            self.watchdog.beat(at)
            yield one


class Watchdog:
    """Watches this rank between `over` and `rest`; `wait` is in seconds."""

    def __init__(self, grid: Grid, *, wait: float) -> None:
        self.grid, self.wait = grid, wait
        self.rank = int(os.environ.get("RANK", "0"))
        self.main = threading.main_thread().ident
        self.step, self.microbatch = 0, 0
        self.since: float | None = None
        self.over_with = threading.Event()
        self.store = store_of(grid.world)
        self.tick = min(TICK_S, wait / 8)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def over(self, step: int, batch: Batch) -> Batch:
        """`batch`, whose microbatches are taken note of."""
        self.step = step
        self.beat(0)
        return Watched(batch, self)

    def beat(self, microbatch: int) -> None:
        """The step gets on."""
        self.microbatch, self.since = microbatch, time.monotonic()

    def rest(self) -> None:
        """What follows may take as long as it likes: a save, a validation."""
        self.since = None

    def close(self) -> None:
        """After: nothing is watched."""
        self.rest()
        self.over_with.set()

    # ── In the thread ─────────────────────────────────────────────────────────

    def _watch(self) -> None:
        answered = False
        while not self.over_with.wait(self.tick):
            since = self.since
            if since is not None and time.monotonic() - since > self.wait:
                self._end()
            if not answered and self._asked():
                self._answer()
                answered = True

    def _asked(self) -> bool:
        try:
            return self.store is not None and self.store.check(["asked"])
        except Exception:  # the store has gone with the rank that held it, which the launcher tells
            return False

    def _answer(self) -> None:
        if self.store is not None:
            self.store.set(f"doing/{self.rank}", json.dumps(self._doing()))

    def _doing(self) -> tuple[str, bool]:
        """What the main thread is doing, and whether it waits for others there."""
        frame = sys._current_frames().get(self.main or 0)
        what, waits = doing(frame)
        at = "" if self.since is None else f", microbatch {self.microbatch} of step {self.step}"
        return what + at, waits

    def _end(self) -> None:
        """Tells what stands still, once for all ranks, and ends this one."""
        frame = sys._current_frames().get(self.main or 0)
        say("".join(traceback.format_stack(frame)) if frame else "")
        try:
            self._tell()
        except Exception:  # without the others, of itself
            say(f"{self._since()}: rank {self.rank} {self._doing()[0]}\n")
        os._exit(1)

    def _since(self) -> str:
        return f"nothing has moved for {self.wait:g} s"

    def _tell(self) -> None:
        """What all ranks do, told by one of them; after: it is told."""
        if self.store is None:
            raise LookupError("no store")
        self.store.set("asked", "")
        self._answer()
        if self.store.add("telling", 1) > 1:
            self.store.wait(["told"], timedelta(seconds=2 * (self.tick + ANSWER_S)))
            return
        time.sleep(self.tick + ANSWER_S)
        told: list[tuple[str, bool]] = []
        for rank in range(self.grid.world):
            there = self.store.check([f"doing/{rank}"])
            answer = json.loads(self.store.get(f"doing/{rank}")) if there else NOTHING
            told.append((answer[0], answer[1]))
        say(f"{self._since()}: {summary(told)}\n")
        self.store.set("told", "")


def store_of(world: int) -> Store | None:
    """A connection of our own to the store that the ranks have met at; None for a rank alone.

    That of the process group may be held by the very call that waits. What ranks that torchrun has
    started anew ask is no question of those before.
    """
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if world == 1 or not host or not port:
        return None
    try:
        store = TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=30))
        return PrefixStore(f"watchdog/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    except Exception:
        return None  # each rank then tells of itself


def doing(frame: FrameType | None) -> tuple[str, bool]:
    """`waits in all_reduce, gather.py:88 (wait), train.py:120 (backward)`, and whether it is
    others that it waits for: the innermost call of the job's own, and where train.py made it."""
    if frame is None:
        return "is gone", False
    stack = traceback.extract_stack(frame)
    own = [at for at, one in enumerate(stack) if not library(one.filename)] or [len(stack) - 1]
    at = own[-1]
    # A decorator of torch's stands between a call and what is called.
    inside = [one.name for one in stack[at + 1 :] if one.name != "wrapper"]
    waits = any(word in (stack[at].line or "") for word in WAITS)
    waits |= any("distributed" in one.filename for one in stack[at + 1 :])
    emitted = [n for n in own if not stack[n].filename.startswith(HERE)]
    shown = dict.fromkeys([at, *emitted[-1:]])
    places = ", ".join(
        f"{Path(stack[n].filename).name}:{stack[n].lineno} ({stack[n].name})" for n in shown
    )
    what = "waits" if waits else "is"
    return f"{what} in {inside[0]}, {places}" if inside else f"{what} at {places}", waits


def library(file: str) -> bool:
    """Whether code is not the job's own."""
    return any(f"{os.sep}{one}" in file for one in LIBRARY) or file.startswith("<")


def summary(told: Sequence[tuple[str, bool]]) -> str:
    """Who does what, those that wait for nobody first: it is one of them that others wait for."""
    ranks: dict[tuple[bool, str], list[int]] = {}
    for rank, (what, waits) in enumerate(told):
        ranks.setdefault((waits, what), []).append(rank)
    lines = []
    for (_, what), found in sorted(ranks.items()):
        verb, _, rest = what.partition(" ")
        lines.append(f"{named(found)} {verb if len(found) == 1 else PLURAL[verb]} {rest}")
    return "; ".join(lines)


def named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 2`; of many the first few and how many more."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown, more = ", ".join(map(str, ranks[:8])), len(ranks) - 8
    return f"ranks {shown}" + (f" and {more} more" if more > 0 else "")


def say(text: str) -> None:
    """To standard error, past whatever holds Python's own stream."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))
