"""Jobs from a hat, and the frameworks' own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from .generated import fsdp_job, job
from .oracle import Drivers, environment


@pytest.fixture(scope="session")
def drawn() -> Callable[[Random], str]:
    """Makes the text of a job: `drawn(random)`."""
    return job


@pytest.fixture(scope="session")
def drawn_fsdp() -> Callable[[Random], str]:
    """Makes the text of a job that FSDP suits."""
    return fsdp_job


@pytest.fixture(scope="session")
def oracle() -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Asks a driver: `oracle("megatron", "megatron_parse.py", asked)`; skips where it cannot."""
    drivers = Drivers()
    yield drivers.ask
    drivers.end()


@pytest.fixture(scope="session")
def python_of() -> Callable[..., Any]:
    """The Python of an oracle's environment and its variables; skips where there is none."""
    return environment
