"""Names that would do harm, on a page: shown as they are, never obeyed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .commands import ROOT, run
from .reading import Element, read

TINY = (ROOT / "examples" / "tiny" / "tiny.par").read_text()
pytestmark = pytest.mark.slow

NAMES = (
    "</script><script>alert(1)</script>",
    "</style><b>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!--",
    "-->",
    "<!-- parlay sha256:0 -->",
    "]]>",
    "&lt;b&gt; &amp;",
    "javascript:alert(1)",
    "{{ 7*7 }}{% include 'x' %}",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\x1b[2J",
    "a\rb",
    "one\ntwo",
    "\u2028x",
    "x" * 300,
    "\U0001f600é",
)
FIELDS = {
    "phase": "phase {0} {{ train {{ steps = 50 }} }}",
    "paths": "data {{ path = {0}, tokenizer = {0} }}\ncheckpoint {{ path = {0} }}",
    "reason": "allow N201 {0}",
    "comment": "budget {{ memory = 90% }} # {1}",
    "let": "let named = {0}\ncheckpoint {{ path = named }}",
    "target": 'target "torch" {{ version = {0} }}',
}
HARM = re.compile("[\x00-\x09\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def quoted(name: str) -> str:
    plain = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def shape(page: Element) -> set[tuple[str, tuple[str, ...]]]:
    """The kinds of elements there are, with the attributes that they have."""
    return {(each.name, tuple(sorted(each.attributes))) for each in page.all()}


def unharmed(text: str, known: set[tuple[str, tuple[str, ...]]]) -> Element:
    assert HARM.search(text) is None
    page = read(text)
    assert shape(page) <= known
    assert len(list(page.all("script"))) == len(list(page.all("style"))) == 1
    for each in page.all():
        assert "\n" not in "".join(each.attributes.values())
    return page


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, tuple[str, ...]]]:
    """The elements of pages with harmless names."""
    found = set()
    folder = tmp_path_factory.mktemp("plain")
    fails = 'assert memory.peak < 1MB\nphase "x" {{ train {{ steps = 50 }} }}'
    for field, line in {**FIELDS, "fails": fails, "wrong": "lett x = {0}"}.items():
        path = folder / f"{field}.par"
        path.write_text(TINY + line.format('"plain"', "plain") + "\n")
        result = run("report", path, "-o", "-", "--nodes", "1")
        found |= shape(read(result.stdout_bytes.decode()))
    assert ("h2", ("id",)) in found
    return found


@pytest.mark.parametrize("field", FIELDS)
def test_names(tmp_path: Path, known: set[tuple[str, tuple[str, ...]]], field: str) -> None:
    pages = 0
    # A phase's name stands in a heading, in diagnostics and in the text, the others in fewer.
    for name in NAMES if field == "phase" else NAMES[list(FIELDS).index(field) % 3 :: 3]:
        path = tmp_path / "job.par"
        path.write_bytes((TINY + FIELDS[field].format(quoted(name), name) + "\n").encode())
        result = run("report", path, "-o", "-", "--nodes", "1")
        assert result.exit_code in (0, 1), result.output
        page = unharmed(result.stdout_bytes.decode(), known)
        if result.exit_code == 0:
            pages += 1
            if name.isprintable() and "&" not in name:
                assert name in page.text
            if name.startswith("&lt;") and field in ("phase", "reason"):
                assert name in page.text, "it is shown as it is written"
    assert pages > 1


def test_names_of_phases(tmp_path: Path, known: set[tuple[str, tuple[str, ...]]]) -> None:
    path = tmp_path / "job.par"
    name = "</script><img src=x onerror=alert(1)>"
    path.write_text(TINY + f'phase "{name}" {{ train {{ steps = 50 }} }}\n')
    page = unharmed(run("report", path, "-o", "-").stdout_bytes.decode(), known)
    assert [each.text for each in page.all("h2")][1] == f"Phase {name}"


@pytest.mark.parametrize("name", ["<b>x", "a&b", 'x" onload="y', "\u202egnp", "a\nb", b"\xff\xfe"])
def test_names_of_files(
    tmp_path: Path, known: set[tuple[str, tuple[str, ...]]], name: str | bytes
) -> None:
    shown = os.fsdecode(name)
    path = tmp_path / f"{shown}.par"
    path.write_text(TINY)
    result = run("report", path, "-o", "-", "--nodes", "1")
    assert result.exit_code == 0, result.output
    page = unharmed(result.stdout_bytes.decode(), known)
    if shown.isprintable():
        assert page.one("h1").text == f"{shown}.par"
    ended = run("report", path, "-o", tmp_path / f"{shown}.html")
    assert ended.exit_code == 0
    assert HARM.search(ended.stdout) is None
