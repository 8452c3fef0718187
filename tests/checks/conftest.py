"""Files by their blocks, and what a check tells of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.checks import Subject, subject_of
from parlay.dsl.diagnostics import Diagnostic

Check = Callable[[str], tuple[Diagnostic, ...]]


def make_job(
    model: str = 'from "llama3-8b"',
    cluster: str = '{ nodes = 8, node from "dgx-h100" }',
    parallel: str = "{ tp = 8 }",
    train: str = "",
    rest: str = "",
) -> str:
    """The text of a file, block by block."""
    text = f"model {model}\ncluster {cluster}\nparallel {parallel}\n"
    return text + (f"train {train}\n" if train else "") + rest


@pytest.fixture
def job() -> Callable[..., str]:
    """Makes the text of a file: `job(parallel="{ tp = 16 }")`."""
    return make_job


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Checks a text and gives its diagnostics."""

    def checked(text: str) -> tuple[Diagnostic, ...]:
        path = tmp_path / "run.par"
        path.write_text(text)
        return pipeline.check(path).diagnostics

    return checked


@pytest.fixture
def subject() -> Callable[[str], Subject]:
    """The first phase of a text, as the rules see it."""

    def read(text: str) -> Subject:
        path = Path("run.par")
        return subject_of(pipeline.load(path, {path.resolve(): text}).phases[0])

    return read
