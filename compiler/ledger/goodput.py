"""The useful share of a run: failures, restarts and checkpoints.

Young's and Daly's interval between checkpoints: sqrt(2·C·M) for a checkpoint that stops training
for C and a mean time M between failures of the whole job (doi:10.1016/j.future.2004.11.016).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.parameters import total
from parlay.compiler.ledger.shared import adapters_of
from parlay.compiler.ledger.state import bytes_per_adapter, bytes_per_parameter
from parlay.compiler.spec.blocks import Spec

ASYNC_SHARE = 0.05
"""Of an asynchronous checkpoint's time, the part in which training stands still (a snapshot)."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """What failures cost a job; the share is None where the checkpoint's time is not known."""

    mtbf_s: float
    checkpoint_bytes: int
    checkpoint_s: float | None
    interval_s: float | None
    useful_share: float | None
    formula: str

    @property
    def failures_per_day(self) -> float:
        """Interruptions of the whole job in one day."""
        return 86400 / self.mtbf_s


def goodput(spec: Spec, layout: Layout, *, step_s: float | None = None) -> Goodput | None:
    """The expected useful share; None where no mean time between failures is given.

    The job fails as soon as one GPU does: M = gpu_mtbf / GPUs. With interval t between checkpoints
    and restart R, useful = 1 - C/t - (t/2 + R)/M. `checkpoint.every` steps of `step_s` give t where
    both are known, else the best interval is taken.
    """
    cluster = spec.cluster
    assert cluster is not None and spec.model is not None
    reliability = cluster.reliability
    if reliability is None or not reliability.gpu_mtbf_s:
        return None
    mtbf = reliability.gpu_mtbf_s / layout.world
    size = checkpoint_bytes(spec)
    storage = cluster.storage
    if storage is None or not storage.bandwidth_bytes_per_s:
        words = f"{reliability.gpu_mtbf_s:g} s / {layout.world} GPUs"
        return Goodput(mtbf, size, None, None, None, words)
    written = size / storage.bandwidth_bytes_per_s
    stopped = written * (ASYNC_SHARE if spec.checkpoint.asynchronous else 1.0)
    best = sqrt(2 * stopped * mtbf)
    every = spec.checkpoint.every
    interval = every * step_s if every and step_s else max(best, written)
    share = 1 - stopped / interval - (interval / 2 + reliability.restart_s) / mtbf
    formula = (
        f"1 - {stopped:.1f} s / {interval:.1f} s - "
        f"({interval:.1f} s / 2 + {reliability.restart_s:g} s) / {mtbf:.1f} s"
    )
    return Goodput(mtbf, size, stopped, interval, max(0.0, share), formula)


def checkpoint_bytes(spec: Spec) -> int:
    """One whole checkpoint: weights, master and moments of every parameter, once; of adapters
    theirs alone."""
    assert spec.model is not None
    if (number := adapters_of(spec)) is not None and spec.train is not None:
        each = bytes_per_adapter(spec.train)
        return round(number * (each.weights + each.master + each.optimizer))
    each = bytes_per_parameter(spec.train)
    return round(total(spec.model) * (each.weights + each.master + each.optimizer))
