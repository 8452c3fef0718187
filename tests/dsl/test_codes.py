"""The pages of the codes hold what they promise."""

from __future__ import annotations

import re
from pathlib import Path

import parlay.dsl.parse
import pytest
from parlay.dsl.diagnostics.codes import CODES, NOT_RUN, page, part
from parlay.dsl.parse import parse
from parlay.dsl.source import Source


@pytest.mark.parametrize("code", sorted(set(CODES) - NOT_RUN))
def test_the_example_fails_by_this_code_alone_and_the_other_is_clean(code: str) -> None:
    assert [one.code for one in parse(Source("page", part(code, "Example")))[1]] == [code]
    assert parse(Source("page", part(code, "Instead")))[1] == ()


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_page_has_its_parts(code: str) -> None:
    text = page(code)
    assert text is not None and text.startswith(f"{code}: ") and text.endswith("\n")
    for name in ("What", "Why", "Example", "Instead"):
        assert part(code, name)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


def test_an_unknown_code_has_no_page() -> None:
    assert page("P999") is None


def test_every_code_that_is_told_has_a_page() -> None:
    folder = Path(parlay.dsl.parse.__file__).parent
    written = {
        code
        for path in folder.glob("*.py")
        for code in re.findall(r'"(P\d{3})"', path.read_text(encoding="utf-8"))
    }
    assert written <= set(CODES)
