"""A run that is asked to end early, saves and ends.

SIGUSR1 is what a scheduler sends before its time limit: the run ends with status 0 and is queued
again by who started it. SIGTERM is what a machine sends that goes away, a pod that is moved: it
ends with 143, as whom the signal ended would, since it is not done.

Ranks may see a signal in different steps, or some of them not at all, so they agree on it after
every step: one all-reduce of a number over all ranks, that no plan.json counts.
"""

from __future__ import annotations

import signal
import threading
from typing import Final

import torch
import torch.distributed as dist

SIGNAL: Final = signal.SIGUSR1
ENDS: Final = signal.SIGTERM
SIGNALS: Final = (SIGNAL, ENDS)
"""By their weight, the heavier last."""


class Stop:
    """Watches for both signals from its making on; `device` is where ranks exchange numbers."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seen = 0
        """0, or the place in `SIGNALS`, from 1, of the heaviest that was seen."""
        # Python hands signals to the main thread alone; elsewhere nothing is watched.
        if threading.current_thread() is threading.main_thread():
            for one in SIGNALS:
                signal.signal(one, self._see)

    def asked(self) -> bool:
        """Whether any rank has seen a signal: the same answer on every rank."""
        if dist.is_initialized():
            seen = torch.tensor(self.seen, device=self.device)
            dist.all_reduce(seen, op=dist.ReduceOp.MAX)
            self.seen = int(seen.item())
        return self.seen > 0

    def leave(self) -> None:
        """Before: all is saved. Ends this rank with 143 where SIGTERM asked for it."""
        if self.seen and SIGNALS[self.seen - 1] == ENDS:
            raise SystemExit(128 + ENDS)

    def _see(self, number: int, _: object) -> None:
        self.seen = max(self.seen, 1 + [int(one) for one in SIGNALS].index(number))
