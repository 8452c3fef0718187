"""Jobs that suit DeepSpeed, from a hat."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from parlay.compiler import pipeline

from .generated_deepspeed import job


@pytest.fixture(scope="session")
def drawn_deepspeed() -> Callable[[Random], str]:
    """Makes the text of a job: `drawn_deepspeed(random)`."""
    return job


@pytest.fixture(scope="session")
def jobs(
    drawn_deepspeed: Callable[[Random], str], tmp_path_factory: pytest.TempPathFactory
) -> list[pipeline.Job]:
    """Thirty jobs that the target expresses."""
    folder, random, found = tmp_path_factory.mktemp("jobs"), Random(7), list[pipeline.Job]()
    while len(found) < 30:
        path = folder / f"job-{len(found)}.par"
        path.write_text(drawn_deepspeed(random))
        job = pipeline.check(path, ("deepspeed",))
        found += [] if job.errors else [job]
    return found
