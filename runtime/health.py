"""What keeps a run honest: gradients that are numbers, jumps that are told, ranks that fall behind.

A step whose gradients are not finite ends the run before it changes a weight, so that the last save
is the last good state. Jumps of loss and gradient norm are told and change nothing. What a rank
waits for too long is told by `watchdog`.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from parlay.runtime.axes import Grid
from parlay.runtime.collectives import all_gather
from parlay.runtime.loss import Batch
from parlay.runtime.plan import Plan
from parlay.runtime.watchdog import Watchdog, named
from torch import Tensor

FEWEST: Final = 8
"""Steps that a jump is measured against, at the least."""
NAMED: Final = 4
"""Ranks that a line names, at the most."""


class Unhealthy(SystemExit):
    """A run that must not go on; its message is what the last line of a rank says."""


class Named(Protocol):
    """Gradients by the names of their weights."""

    def named(self) -> Iterable[tuple[Any, ...]]: ...


def must_be_finite(norm: Tensor, gradients: Named, *, step: int) -> None:
    """Ends the run where `norm`, the same on every rank, is no finite number.

    Before: `gradients` are summed, no weight has changed. Raises Unhealthy with the step and the
    ranks whose gradients it comes from, which they tell each other only then.
    """
    if math.isfinite(value := float(norm)):
        return
    mine = next((name for name, tensor in parts(gradients) if not tensor.isfinite().all()), None)
    if not dist.is_initialized():
        raise Unhealthy(f"step {step}: the norm of the gradients is {value}{where({0: mine})}")
    every: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    raise Unhealthy(
        f"step {step}: the norm of the gradients is {value}{where(dict(enumerate(every)))}"
    )


def parts(gradients: Named) -> Iterator[tuple[str, Tensor]]:
    """Each gradient, or the piece that is here, with the name of its weight."""
    for name, *_, tensor in gradients.named():
        yield name, tensor


def where(first: dict[int, str | None]) -> str:
    """`: layers.3.mlp.up.weight on ranks 0, 2`; `first` is the first weight of each rank, if any.

    Gradients that are finite while their norm is not are too large for its dtype.
    """
    by_name: dict[str, list[int]] = {}
    for rank, name in first.items():
        if name is not None:
            by_name.setdefault(name, []).append(rank)
    if not by_name:
        return ": each is a number, their squares are too large to be summed"
    told = [f"{name} on {named(ranks)}" for name, ranks in list(by_name.items())[:NAMED]]
    more = len(by_name) - len(told)
    return ": " + "; ".join(told) + (f"; and {more} more" if more else "")


# ── Over a run ────────────────────────────────────────────────────────────────


class Health:
    """Looks after the steps of one run, by the thresholds of `plan.health`.

    `writes` is the rank that tells, which holds the loss. `over` and `after` stand around a step.
    """

    def __init__(self, plan: Plan, *, writes: bool, device: torch.device) -> None:
        self.writes = writes
        self.limits = plan.health
        self.grid = Grid(tuple(plan.mesh.items()))
        self.jumps = {
            "loss": Jump(self.limits.spike.loss, window=self.limits.spike.window),
            "gradient norm": Jump(self.limits.spike.grad_norm, window=self.limits.spike.window),
        }
        self.effort = Effort(device)
        self.device = device
        self.watchdog = Watchdog(self.grid, wait=self.limits.wait)

    def over(self, step: int, batch: Batch) -> Batch:
        """`batch`, whose microbatches tell the watchdog that step `step` gets on."""
        return self.watchdog.over(step, batch)

    def after(self, step: int, *, loss: Tensor | None, grad_norm: Tensor) -> None:
        """Before: step `step` is done on this rank.

        Raises Unhealthy where the loss is no finite number: on all ranks of the last stage.
        """
        if loss is not None and not math.isfinite(float(loss)):
            raise Unhealthy(
                f"step {step}: the loss is {float(loss)}, on the ranks of the last stage"
            )
        if self.writes and loss is not None:
            for name, value in (("loss", loss), ("gradient norm", grad_norm)):
                if not math.isfinite(float(value)):  # a step that was left out
                    continue
                if (usual := self.jumps[name].beyond(float(value))) is not None:
                    tell(f"step {step}: {name} {float(value):.4g}, of late {usual:.4g}")
        if (step + 1) % self.limits.straggler.every == 0:
            self._stragglers(step)
        self.watchdog.rest()

    def close(self) -> None:
        """After: nothing is watched."""
        self.watchdog.close()

    def _stragglers(self, step: int) -> None:
        """One number from each rank: what its own work took, waiting left out."""
        if self.grid.world == 1:
            return
        mine = torch.tensor([self.effort.seconds()], dtype=torch.float64, device=self.device)
        every = torch.empty(self.grid.world, dtype=torch.float64, device=self.device)
        all_gather(every, mine)
        if self.writes:
            took, peers = every.tolist(), self.effort.peers(self.grid)
            for rank, usual in behind(took, peers=peers, beyond=self.limits.straggler.beyond):
                at = self.grid.coordinates(rank)
                place = ", ".join(f"{axis} {one}" for axis, one in at.items())
                tell(
                    f"step {step}: rank {rank} ({place}) is slow: {self.effort.what} takes it "
                    f"{took[rank]:.3g} s, others like it {usual:.3g} s"
                )


def tell(line: str) -> None:
    """A line beside those of the log."""
    print(line, file=sys.stderr, flush=True)


class Jump:
    """A number that should not leave its own recent course."""

    def __init__(self, factor: float, *, window: int) -> None:
        self.factor = factor
        self.recent: deque[float] = deque(maxlen=window)

    def beyond(self, value: float) -> float | None:
        """The median of the last values, where `value` is more than `factor` times it."""
        usual = statistics.median(self.recent) if len(self.recent) >= FEWEST else None
        self.recent.append(value)
        return usual if usual is not None and value > self.factor * usual else None


class Effort:
    """How long this rank works where it waits for nobody.

    On CPUs the processor time since the last look, which waiting does not use. A GPU's queue waits
    inside of its messages, so there it is one matrix product, the same on every rank: it finds the
    GPU that is hot, capped or shared.
    """

    SIZE: Final = 4096
    TIMES: Final = 8

    def __init__(self, device: torch.device) -> None:
        self.device, self.gpu = device, device.type == "cuda"
        self.what = "a matrix product" if self.gpu else "the work since the last look"
        self.since = time.process_time()

    def seconds(self) -> float:
        """What the last steps, or a product, took."""
        if self.gpu:
            return self._product()
        before, self.since = self.since, time.process_time()
        return self.since - before

    def peers(self, grid: Grid) -> Sequence[Sequence[int]]:
        """The ranks that should take alike: all GPUs; of CPUs those of one stage."""
        if self.gpu:
            return [range(grid.world)]
        return grid.groups([axis for axis in grid.axes if axis != "pp"])

    def _product(self) -> float:
        x = torch.ones(self.SIZE, self.SIZE, dtype=torch.bfloat16, device=self.device)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        x @ x  # the first one chooses its kernel
        began.record()
        for _ in range(self.TIMES):
            x @ x
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1000 / self.TIMES


def behind(
    took: Sequence[float], *, peers: Sequence[Sequence[int]], beyond: float
) -> Iterator[tuple[int, float]]:
    """Ranks that take more than `beyond` times the median of their peers, and that median.

    Of an even number it is the lower middle, so that one of two can be slow.
    """
    for ranks in peers:
        usual = statistics.median_low([took[rank] for rank in ranks])
        yield from ((rank, usual) for rank in ranks if took[rank] > beyond * usual)
