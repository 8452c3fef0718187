"""Every rule's page: its Example gives exactly that code at the marked place, Instead is clean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.checks import Page, codes, page
from parlay.dsl.diagnostics import Diagnostic, Severity

MARK = re.compile(r"^ *# *?(?P<carets>\^+) (?P<code>\w+)$")


def _page(code: str) -> Page:
    found = page(code)
    assert found is not None
    return found


def _check(text: str, folder: Path) -> tuple[Diagnostic, ...]:
    path = folder / "run.par"
    path.write_text(text)
    # Resolution notes that fields are open; the rules go on from there.
    return tuple(each for each in pipeline.check(path).diagnostics if each.code != "T114")


def _marked(text: str) -> tuple[int, int]:
    """Start and end of what the carets under a line mark."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    marks = [(number, mark) for number, line in enumerate(lines) if (mark := MARK.match(line))]
    [(number, mark)] = marks
    first, last = mark.span("carets")
    return starts[number - 1] + first, starts[number - 1] + last


@pytest.mark.parametrize("code", codes())
def test_example(code: str, tmp_path: Path) -> None:
    example = _page(code).example
    told = _check(example, tmp_path)
    assert [each.code for each in told] == [code], told
    [found] = told
    assert found.span is not None
    start, end = _marked(example)
    assert example[found.span.start : found.span.end] == example[start:end]
    assert (found.span.start, found.span.end) == (start, end)


@pytest.mark.parametrize("code", codes())
def test_instead(code: str, tmp_path: Path) -> None:
    told = _check(_page(code).instead, tmp_path)
    assert not told


@pytest.mark.parametrize("code", codes())
def test_page_is_whole(code: str) -> None:
    found = _page(code)
    assert all((found.what, found.why, found.example, found.instead, found.source))
    assert not re.search(r"\b[Yy]ou", found.text)
    assert found.text.startswith(f"{code}: {found.title}\n\nWhat: ")


@pytest.mark.slow
@pytest.mark.parametrize("code", codes())
def test_fixes_of_the_example_mend_it(code: str, tmp_path: Path) -> None:
    """A fix is applied as it stands, and what it leaves has neither that fault nor an error."""
    example = _page(code).example
    for found in _check(example, tmp_path):
        for fix in found.fixes:
            text = example
            for edit in sorted(fix.edits, key=lambda edit: edit.span.start, reverse=True):
                text = text[: edit.span.start] + edit.text + text[edit.span.end :]
            told = _check(text, tmp_path)
            left = [e for e in told if e.severity is Severity.ERROR or e.code == found.code]
            assert not left, f"{fix.title}: {text}"
