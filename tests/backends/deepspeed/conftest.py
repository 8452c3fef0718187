"""Jobs that suit DeepSpeed, from a hat."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from .generated_deepspeed import job


@pytest.fixture(scope="session")
def drawn_deepspeed() -> Callable[[Random], str]:
    """Makes the text of a job: `drawn_deepspeed(random)`."""
    return job
