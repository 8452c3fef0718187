"""`parlay init`: a starter that checks clean, and never over anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import catalog, pipeline
from parlay.compiler.commands.init import starter
from parlay.dsl.diagnostics import Severity
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

pytestmark = pytest.mark.slow

MODELS = ("llama3-8b", "gpt2-xl", "mixtral-8x7b")
NODES = tuple(name for name in catalog.names("node") if name != "laptop")


def clean(model: str, node: str) -> None:
    text = starter(model, node)
    assert text, "no layout"
    path = Path("starter.par")
    job = pipeline.check(path, (), {path.resolve(): text})
    assert [one for one in job.diagnostics if one.severity is Severity.ERROR] == []
    assert not job.phases[0].open
    source = Source("starter.par", text)
    assert format(parse(source)[0], source) == text
    assert text.count("#") > 10


def test_the_starter_is_clean_and_commented(
    parlay: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = parlay("init")
    assert (ended.status, ended.err) == (0, "")
    assert parlay("check", "job.par").status == 0
    assert parlay("fmt", "--check", "job.par").status == 0
    assert parlay("ledger", "job.par").status == 0


def test_it_never_overwrites(parlay: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.par"
    path.write_text("mine")
    ended = parlay("init", tmp_path / "mine")
    assert ended.status == 1 and "stays as it is" in ended.err
    assert path.read_text() == "mine"
    link = tmp_path / "link.par"
    link.symlink_to(tmp_path / "elsewhere.par")
    assert parlay("init", link).status == 1
    assert not (tmp_path / "elsewhere.par").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--model", "lama3-8b"], 2, "llama3-8b"),
        (["--cluster", "dgx-h10"], 2, "dgx-h100"),
        (["--cluster", "../../x\x1b[2J"], 2, "the catalog has no node"),
        (["--model", "llama3.1-405b", "--cluster", "laptop"], 1, "no layout of llama3.1-405b"),
    ],
)
def test_what_cannot_be(
    parlay: Callable[..., Any], tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    ended = parlay("init", tmp_path / "x", *arguments)
    assert ended.status == status and said in ended.err and "\x1b" not in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(parlay: Callable[..., Any], tmp_path: Path) -> None:
    ended = parlay("init", tmp_path / "no" / "x")
    assert ended.status == 1 and "cannot be written" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("model", catalog.names("model"))
def test_every_model(model: str) -> None:
    clean(model, "dgx-h100")


@pytest.mark.slow
@pytest.mark.parametrize("node", NODES)
def test_every_node(node: str) -> None:
    for model in MODELS:
        clean(model, node)


def test_a_laptop_holds_small_models() -> None:
    for model in ("gpt2-xl", "llama3.2-1b"):
        clean(model, "laptop")
