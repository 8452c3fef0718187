"""A folder with a project in it, and a client that is closed at the end."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("lsp_client", Path(__file__).with_name("client.py"))
assert _SPEC is not None and _SPEC.loader is not None
client_module = importlib.util.module_from_spec(_SPEC)
sys.modules["lsp_client"] = client_module
_SPEC.loader.exec_module(client_module)

RUN = """import "shared/base.par"

let tokens_per_sequence = 4Ki

parallel {
  tp = 8
  pp = 2
  dp = auto
}

train {
  seq = tokens_per_sequence
  micro_batch = 1
  global_batch = 16 * width
  optimizer = adamw(lr = 3e-4)
  recompute = selective(core_attention)
}

assert memory.peak <= 90% * gpu.memory
"""
BASE = """let width = 2

model from "llama3-8b"

cluster {
  nodes = 2
  node from "dgx-h100"
}
"""


def project(folder: Path) -> Path:
    (folder / "shared").mkdir()
    (folder / "shared" / "base.par").write_text(BASE)
    (folder / "run.par").write_text(RUN)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """One client and its folder for all tests of a file that change nothing on disk."""
    folder = project(tmp_path_factory.mktemp("project"))
    client = client_module.Client(folder)
    yield client, folder
    assert client.close() == 0


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Any]]:
    """`start(capabilities, **options)`: a client; every one is shut down at the end."""
    started: list[Any] = []

    def begin(capabilities: dict[str, Any] | None = None, **options: Any) -> Any:
        started.append(client_module.Client(folder, capabilities, **options))
        return started[-1]

    yield begin
    for client in started:
        if client.process.poll() is None:
            assert client.close() == 0


@pytest.fixture
def client(start: Callable[..., Any]) -> Any:
    return start()
