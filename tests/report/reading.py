"""A page as a reader of it sees it: elements, and figures with their paths; nothing of Parlay's.

The reader is strict: every element is closed where it was opened, attributes and ids stand once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass
class Element:
    """One element: its name, attributes, parent, and what is in it in order."""

    name: str
    attributes: dict[str, str]
    parent: Element | None
    inside: list[Element | str] = field(default_factory=list)

    def all(self, name: str = "") -> Iterator[Element]:
        """The elements of that name in it, or all of them, from the top."""
        for each in self.inside:
            if isinstance(each, Element):
                if not name or each.name == name:
                    yield each
                yield from each.all(name)

    def one(self, name: str, **attributes: str) -> Element:
        (found,) = self.having(name, **attributes)
        return found

    def having(self, name: str, **attributes: str) -> list[Element]:
        """Those of that name with these attributes; `class_` asks for one of the classes."""
        found = []
        for each in self.all(name):
            wanted = dict(attributes)
            kind = wanted.pop("class_", None)
            if kind is not None and kind not in each.classes:
                continue
            if all(each.attributes.get(k.replace("_", "-")) == v for k, v in wanted.items()):
                found.append(each)
        return found

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def inside_cells(self) -> list[Element]:
        """The cells of a row."""
        return [each for each in self.all() if each.name in ("td", "th")]

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.inside)

    @property
    def around(self) -> Iterator[Element]:
        """The elements around it, the outermost first."""
        if self.parent is not None:
            yield from self.parent.around
            yield self.parent


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {}, None)
        self.at = self.root
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open(tag, attrs)
        if tag in VOID:
            self.shut(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("path", "rect", "line"), f"<{tag}/> closes nothing in HTML"
        self.open(tag, attrs)
        self.shut(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag not in VOID
        self.shut(tag)

    def handle_data(self, data: str) -> None:
        self.at.inside.append(data)

    def handle_comment(self, data: str) -> None:
        assert data.startswith(" parlay sha256:"), data

    def open(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        element = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        if "id" in element.attributes:
            assert element.attributes["id"] not in self.ids, element.attributes
            self.ids.add(element.attributes["id"])
        self.at.inside.append(element)
        self.at = element

    def shut(self, tag: str) -> None:
        assert self.at.name == tag, f"</{tag}> closes <{self.at.name}>"
        assert self.at.parent is not None
        self.at = self.at.parent


def read(text: str) -> Element:
    """The page as a tree; raises where it is not well-formed."""
    assert text.startswith("<!DOCTYPE html>\n")
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.at is reader.root, f"<{reader.at.name}> is never closed"
    return reader.root


# ── Figures ───────────────────────────────────────────────────────────────────

UNITS = {
    "": 1.0,
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "%": 1e-2,
    "K": 1e3,
    "M": 1e6,
    "B": 1e9,
    "T": 1e12,
}
BYTES = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}
SHOWN = re.compile(r"\$?(-?[\d,]+(?:\.\d+)?)( ?)([A-Za-zµ%]*)")


@dataclass
class Number:
    """One `<data>`: its paths from the root of the phases, and its value as it is written."""

    element: Element
    paths: list[str]
    operation: str
    document: str

    @property
    def value(self) -> float:
        return json.loads(self.element.attributes["value"])  # type: ignore[no-any-return]


def numbers(page: Element) -> list[Number]:
    """Every figure of the page."""
    found = []
    for each in page.all("data"):
        above = [e.attributes["data-at"] for e in each.around if "data-at" in e.attributes]
        paths = [".".join([*above, path]) for path in each.attributes["data-path"].split(" ")]
        operation = each.attributes.get("data-op", "")
        assert len(paths) == (2 if operation else 1)
        found.append(Number(each, paths, operation, each.attributes.get("data-in", "ledger")))
    return found


def at(document: Any, path: str) -> Any:
    """What a document has at a path."""
    for key in path.split("."):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def expected(number: Number, documents: dict[str, Any]) -> float:
    """The figure as the documents of `--json` have it."""
    values = [at(documents[number.document], path) for path in number.paths]
    if not number.operation:
        return values[0]  # type: ignore[no-any-return]
    a, b = values
    made = {"product": a * b, "difference": a - b, "share": a / b if b else float("nan")}
    return float(made[number.operation])


def rounds_to(shown: str, value: float) -> bool:
    """Whether `shown` is `value`, rounded at its last digit."""
    found = SHOWN.fullmatch(shown)
    if found is None:
        return False
    digits, space, unit = found.groups()
    size = 1024.0 ** BYTES[unit] if space and unit in BYTES else UNITS[unit]
    places = len(digits.partition(".")[2])
    return abs(float(digits.replace(",", "")) * size - value) <= 0.5001 * 10**-places * size


def wrong(page: Element, documents: dict[str, Any]) -> list[str]:
    """What is said of every figure that is not the documents', or not shown as it is."""
    told = []
    for number in numbers(page):
        known = expected(number, documents)
        if isinstance(known, bool) or number.value != known:
            told.append(f"{number.paths}: {number.value} on the page, {known} in the document")
        if not rounds_to(number.element.text, known):
            told.append(f"{number.paths}: {known} is shown as {number.element.text}")
    return told
