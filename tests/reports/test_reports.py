"""Public reports of layouts that failed, hung or trained the wrong model: each a file of its own.

`expected.toml` says what each is told, and where; `ID-legal.par` is the nearest file that is told
nothing. What the language cannot say (a data loader's fault) names the test that covers its kind.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends import rules
from parlay.dsl.diagnostics import Diagnostic, Severity

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text())
FILES = [name for name, report in EXPECTED.items() if "told" in report]
BROKEN = [name for name in FILES if (HERE / f"{name}-legal.par").exists()]


def _quick(names: list[str]) -> list[Any]:
    """The later half of the reports (numbers from 200 on) is not among the quick tests."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if re.search(r"-2\d\d$", name) else name
        for name in names
    ]


Check = Callable[[Path], pipeline.Job]


@pytest.fixture(scope="module")
def check() -> Check:
    """The job at a path, checked once for all tests of this module."""
    return cache(pipeline.check)


def _check(path: Path, target: str | None, check: Check = pipeline.check) -> list[Diagnostic]:
    """Errors and warnings of the general rules, and of those of the target."""
    job = check(path)
    told = [*job.diagnostics]
    if target:
        told += [each for phase in job.phases for each in rules.found(target, phase)]
    return [each for each in told if each.severity is not Severity.NOTE]


def _places(path: Path, target: str | None, check: Check) -> list[tuple[str, int]]:
    text = path.read_text()
    told = _check(path, target, check)
    return sorted(
        (each.code, text[: each.span.start].count("\n") + 1) for each in told if each.span
    )


@pytest.mark.parametrize("name", _quick(FILES))
def test_what_it_is_told(name: str, check: Check) -> None:
    report = EXPECTED[name]
    wanted = sorted((code, line) for code, line in report["told"])
    assert _places(HERE / f"{name}.par", report.get("target"), check) == wanted


@pytest.mark.parametrize("name", _quick(FILES))
def test_the_general_rules_say_nothing_of_one_target(name: str, check: Check) -> None:
    told = [code for code, _ in _places(HERE / f"{name}.par", None, check)]
    assert not [code for code in told if code.startswith("B")]


@pytest.mark.parametrize("name", _quick(BROKEN))
def test_the_nearest_legal_file(name: str) -> None:
    assert not _check(HERE / f"{name}-legal.par", EXPECTED[name].get("target"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_suggestion_mends_it(name: str, tmp_path: Path, check: Check) -> None:
    """A fix leaves nothing of what it mends; those of the last error leave no error at all."""
    path, target = HERE / f"{name}.par", EXPECTED[name].get("target")
    text, told = path.read_text(), _check(path, target, check)
    errors = [each for each in told if each.severity is Severity.ERROR]
    for found in told:
        others = {each.code for each in errors if each is not found}
        for fix in found.fixes:
            mended = text
            for edit in sorted(fix.edits, key=lambda edit: edit.span.start, reverse=True):
                mended = mended[: edit.span.start] + edit.text + mended[edit.span.end :]
            copy = tmp_path / "run.par"
            copy.write_text(mended)
            # A general rule knows of no target; `check --fix` passes over what one refuses.
            judge = target if found.code.startswith("B") else None
            left = {e.code for e in _check(copy, judge) if e.severity is Severity.ERROR}
            assert left <= others, (fix.title, mended)


def test_every_error_has_a_legal_file() -> None:
    told = [name for name in FILES if EXPECTED[name]["told"]]
    assert set(told) <= set(BROKEN)


def test_no_file_is_forgotten() -> None:
    files = {path.stem.removesuffix("-legal") for path in HERE.glob("*.par")}
    assert files == set(FILES)
    assert all(path.read_text().strip() for path in HERE.glob("*.par"))


def test_what_has_no_file_is_covered() -> None:
    elsewhere = [report["covered_by"] for report in EXPECTED.values() if "covered_by" in report]
    assert len(EXPECTED) > 72 and len(elsewhere) <= 25
    for place in elsewhere:
        file, _, test = place.partition("::")
        assert f"def {test}" in (ROOT / file).read_text()


def test_the_table_lists_them_all() -> None:
    table = (ROOT / "docs" / "reports.md").read_text()
    rows = dict(re.findall(r"^\| ([a-z0-9]+-\d+) \| (.*?) \|", table, flags=re.MULTILINE))
    assert set(rows) == set(EXPECTED)
    for name, report in EXPECTED.items():
        codes = dict.fromkeys(code for code, _ in report.get("told", ()))
        assert rows[name] == (", ".join(codes) or "–")
