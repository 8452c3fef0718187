"""What is no job at all: a diagnostic, exit 1, at once."""

from __future__ import annotations

import json
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "startup.py"
MAKE: Callable[[Path], dict[str, tuple[Path, str]]] = runpy.run_path(str(BENCH))["bad_inputs"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    return MAKE(tmp_path_factory.mktemp("bad"))


KINDS = [
    "a missing file",
    "a folder",
    "binary noise",
    "noise without zeros",
    "an empty file",
    "2 MB",
    "1,000 nested braces",
    "1,000 nested parentheses",
    "a number of 5,000 digits",
    "1e999",
    "an unknown preset",
    "an unknown field",
    "a field given twice",
    "a cycle of two",
    "a cycle of 10,000 definitions",
]


def test_the_list_is_whole(inputs: dict[str, tuple[Path, str]]) -> None:
    assert list(inputs) == KINDS


@pytest.mark.parametrize("what", KINDS)
def test_is_told(what: str, inputs: dict[str, tuple[Path, str]], parlay: Any) -> None:
    path, code = inputs[what]
    start = time.perf_counter()
    ended = parlay("check", "--json", path)
    took = time.perf_counter() - start
    document = json.loads(ended.out)
    told = document["files"][0]["diagnostics"]
    assert code in {one["code"] for one in told}
    assert len(told) <= 5, "one mistake, told over and over"
    assert document["summary"]["errors"] == sum(one["severity"] == "error" for one in told) > 0
    assert (ended.status, ended.err) == (1, "")
    assert took < 60, "bench/startup.py shows what it takes on a quiet machine"


@pytest.mark.slow
@pytest.mark.parametrize("what", KINDS)
def test_is_told_by_a_process(what: str, inputs: dict[str, tuple[Path, str]], process: Any) -> None:
    path, code = inputs[what]
    start = time.perf_counter()
    ended = process("check", path)
    took = time.perf_counter() - start
    assert ended.returncode == 1
    assert f"error[{code}]" in ended.stdout
    assert str(path) in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    assert took < 60


def said(parlay: Any, tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.par"
    path.write_text(text)
    ended = parlay("check", path)
    assert ended.status == 1
    return str(ended.out)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('model from "lama3-70b"', ['"llama3-70b"']),
        ('cluster { node from "dgxh100" }', ['"dgx-h100"']),
        ("parallel { tpp = 2 }", ["`tp`", "`pp`"]),
        ("train { sequence = 8Ki }", []),
        ("paralel { tp = 2 }", ["`parallel`"]),
        ("parallel { schedule = interleavd(chunks = 2) }", ["`interleaved`"]),
        ("let size = 4\nparallel { tp = sise }", ["`size`"]),
    ],
)
def test_nearest_names(parlay: Any, tmp_path: Path, text: str, names: list[str]) -> None:
    out = said(parlay, tmp_path, text)
    for name in names:
        assert name in out


def test_both_places_of_a_field_given_twice(parlay: Any, tmp_path: Path) -> None:
    out = said(parlay, tmp_path, "parallel {\n  tp = 2\n  tp = 4\n}\n")
    assert "2 |   tp = 2" in out
    assert "3 |   tp = 4" in out


def test_the_ring_of_a_cycle(parlay: Any, tmp_path: Path) -> None:
    out = said(parlay, tmp_path, "let a = b\nlet b = c\nlet c = a\n")
    assert "a -> b -> c -> a" in out


def test_all_mistakes_come_in_one_run(parlay: Any, tmp_path: Path) -> None:
    out = said(
        parlay,
        tmp_path,
        'model from "nothing"\nparallel { tp = 0, pp = "two" }\nlet a = 1 / 0\nlet b = @\n',
    )
    for code in ("T003", "T106", "T101", "T108", "P010"):
        assert f"error[{code}]" in out


def test_a_file_that_cannot_be_read_beside_one_that_can(
    parlay: Any, tmp_path: Path, tiny: Path
) -> None:
    ended = parlay("check", "--json", tmp_path / "missing.par", tiny)
    first, second = json.loads(ended.out)["files"]
    assert [one["code"] for one in first["diagnostics"]] == ["P001"]
    assert second["file"] == str(tiny)
    assert all(one["severity"] != "error" for one in second["diagnostics"])
    assert ended.status == 1
