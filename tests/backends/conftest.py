"""Jobs from a hat, and the frameworks' own code."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from .generated import fsdp_job, job
from .oracle import ask, environment


@pytest.fixture(scope="session")
def drawn() -> Callable[[Random], str]:
    """Makes the text of a job: `drawn(random)`."""
    return job


@pytest.fixture(scope="session")
def drawn_fsdp() -> Callable[[Random], str]:
    """Makes the text of a job that FSDP suits."""
    return fsdp_job


@pytest.fixture(scope="session")
def oracle() -> Callable[..., list[dict[str, Any]]]:
    """Asks a driver: `oracle("megatron", "megatron_parse.py", asked)`; skips where it cannot."""
    return ask


@pytest.fixture(scope="session")
def python_of() -> Callable[..., Any]:
    """The Python of an oracle's environment and its variables; skips where there is none."""
    return environment
