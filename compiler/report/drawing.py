"""What a figure is drawn of: boxes, lines and words, in units of one SVG pixel at full width."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SIZE: Final = 12.0
"""Height of the words of a drawing."""
WIDE: Final = 0.62
"""Width of a character, in heights: the mean of a sans-serif's digits and letters, rounded up."""


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; `kind` is its class."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Words:
    """A text whose foot stands at `y`; `anchor` says which end of it is at `x`."""

    text: str
    x: float
    y: float
    anchor: str = "start"
    kind: str = ""

    @property
    def width(self) -> float:
        """About how wide it is."""
        return width_of(self.text)


@dataclass(frozen=True, slots=True)
class Stroke:
    """A straight line."""

    kind: str
    x: float
    y: float
    to_x: float
    to_y: float


@dataclass(frozen=True, slots=True)
class Trail:
    """Many boxes of one kind as one path, drawn with a pen as wide as they are high."""

    kind: str
    path: str


@dataclass(slots=True)
class Drawing:
    """One figure: `title` names it, `about` says in words what is seen."""

    name: str
    title: str
    about: str
    width: float
    height: float
    boxes: list[Box] = field(default_factory=list)
    trails: list[Trail] = field(default_factory=list)
    strokes: list[Stroke] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)


def width_of(text: str) -> float:
    """About how wide `text` is in a drawing."""
    return len(text) * SIZE * WIDE


def px(number: float) -> str:
    """A coordinate, to a tenth, as short as SVG reads it."""
    text = f"{number:.1f}".removesuffix(".0")
    return text[1:] if text.startswith("0.") else text
