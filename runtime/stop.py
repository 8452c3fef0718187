"""A run that is asked to end early: by SIGUSR1, which a scheduler sends before its time limit.

Ranks may see the signal in different steps, or some of them not at all, so they agree on it after
every step: one all-reduce of a number over all ranks, that no plan.json counts.
"""

from __future__ import annotations

import signal
import threading
from typing import Final

import torch
import torch.distributed as dist

SIGNAL: Final = signal.SIGUSR1


class Stop:
    """Watches for the signal from its making on; `device` is where ranks exchange numbers."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seen = False
        # Python hands signals to the main thread alone; elsewhere nothing is watched.
        if threading.current_thread() is threading.main_thread():
            signal.signal(SIGNAL, self._see)

    def asked(self) -> bool:
        """Whether any rank has seen the signal: the same answer on every rank."""
        if not dist.is_initialized():
            return self.seen
        seen = torch.tensor(int(self.seen), device=self.device)
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
        return bool(seen.item())

    def _see(self, *_: object) -> None:
        self.seen = True
