"""What the backward of the emitted code holds at one operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from parlay.compiler.ledger.memory.sizes import Sizes

Term = tuple[float, int, str]
"""How often, bytes, of what."""


class Point(NamedTuple):
    """What is held at one operator beside the tensors that a layer saved, less those of them that
    are gone."""

    name: str
    terms: tuple[Term, ...]
    value_bytes: int

    @classmethod
    def of(cls, name: str, terms: tuple[Term, ...]) -> Point:
        """That of `terms` and their sum."""
        return cls(name, terms, int(sum([count * value for count, value, _ in terms])))

    @property
    def formula(self) -> str:
        """The arithmetic, each term with its name."""
        terms = (f"{count:g} x {value} {name}" for count, value, name in self.terms if value)
        return " + ".join(terms).replace("+ -", "- ")


def behind_norm(sizes: Sizes) -> int:
    """Whether a norm stands behind each half: the gradient that comes through it is another than
    that of the residual stream, and what it saved is gone."""
    return int(sizes.model.norm_placement in ("after", "both"))


def point(name: str, parts: Mapping[str, int], *counts: float) -> Point:
    """So many of each of `parts`, in their order; those that are there no times are left out."""
    pairs = zip(counts, parts.items(), strict=True)
    return Point.of(name, tuple([(count, value, part) for count, (part, value) in pairs if count]))


def again(sizes: Sizes) -> int:
    """Whether a gathered or scattered stream is there in two orders."""
    return int(sizes.residual > 1 and sizes.batch > 1)


def weight_width(sizes: Sizes) -> int:
    """Bytes of an element of a weight's gradient as it comes: none where weights are frozen."""
    return 0 if sizes.train.lora is not None else sizes.width
