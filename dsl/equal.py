"""Trees compared by what they say, not where it stands."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from parlay.dsl.source import Span
from parlay.dsl.syntax import Comment


def same_tree(a: Any, b: Any) -> bool:
    """Equal but for spans. Numbers count as written; of comments, blanks at their end do not."""
    if isinstance(a, Span) or type(a) is not type(b):
        return isinstance(a, Span) and isinstance(b, Span)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_tree(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Comment):
        return bool(a.text.rstrip() == b.text.rstrip())
    if is_dataclass(a):
        return all(same_tree(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)
