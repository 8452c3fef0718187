"""What the time side of the ledger says: plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class CallTime(NamedTuple):
    """What a line of the communication ledger takes in one step on one rank.

    `seconds` is what its calls take if nothing hides them, `exposed_seconds` what the step waits
    for on the busiest stage. `source` is where rate and latency come from.
    """

    seconds: float
    exposed_seconds: float
    formula: str
    source: str

    def stretched(self, times: float) -> CallTime:
        """The same where a step takes `times` as long."""
        return self._replace(
            seconds=self.seconds * times, exposed_seconds=self.exposed_seconds * times
        )


class Share(NamedTuple):
    """A component of the step: seconds on the critical path, and how they come about.

    `source` names the rows of the table, or the calibration, that `factor` or the wires come from.
    """

    name: str
    seconds: float
    factor: float
    formula: str
    source: str


class Told(NamedTuple):
    """How a step comes about: its components, and the formula of each figure by name."""

    shares: tuple[Share, ...]
    formulas: dict[str, str]


@dataclass(frozen=True)
class TimeLine:
    """The predicted step.

    `bubble` is the idle share of the pipeline's time, `bubble_over_ideal` the same over the time
    without it. `mfu` and `hfu` count `flops_per_token` as `flops_convention` says, over the dense
    peak of the precision, `peak_flops`; `hfu` adds what is recomputed, `mfu_causal` counts half of
    attention's square. They are None where no peak is known. `band` is the error of the prediction
    that held for half of the held-out runs of its class, as a share. `tell` makes the words.
    """

    step_seconds: float
    compute_seconds: float
    exposed_communication_seconds: float
    bubble: float
    bubble_over_ideal: float
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    mfu: float | None
    hfu: float | None
    mfu_causal: float | None
    peak_flops: float | None
    flops_per_token: float
    flops_convention: str
    band: float
    tell: Callable[[], Told] = field(compare=False, repr=False)

    @cached_property
    def told(self) -> Told:
        """Components and formulas, made when they are asked for."""
        return self.tell()

    @property
    def shares(self) -> tuple[Share, ...]:
        """The components of the step."""
        return self.told.shares

    @property
    def formulas(self) -> dict[str, str]:
        """The formula of each figure, by name."""
        return self.told.formulas
