"""Options that are texts of their own: read once, and told as wrong usage where they cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from parlay.compiler.commands.gates import Gate, gate
from parlay.compiler.ledger.stated import FORMS, speed
from parlay.dsl.units import Quantity

MOST_NODES = 1_000_000


def node_counts(text: str) -> tuple[int, ...]:
    """`8,16,32` --> `(8, 16, 32)`."""
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        whole = word.isascii() and word.isdigit() and len(word) <= len(str(MOST_NODES))
        if not whole or not 0 < int(word) <= MOST_NODES:
            shown = word if len(word) <= 20 else f"{word[:20]}…"
            raise typer.BadParameter(
                f"--nodes takes numbers of nodes from 1 to {MOST_NODES:,}, such as 8,16,32; "
                f"{shown!r} is none"
            )
    return tuple(int(word) for word in words)


def stated_speed(text: str | None) -> Quantity | None:
    """The speed of `--at`."""
    if text is None:
        return None
    found = speed(text)
    if found is None:
        raise typer.BadParameter(f"--at takes {FORMS}, not {text!r}")
    return found


def gates(texts: Sequence[str]) -> tuple[Gate, ...]:
    """The conditions of `--fail-if`."""
    found = []
    for text in texts:
        read = gate(text)
        if isinstance(read, str):
            raise typer.BadParameter(f"--fail-if {text!r}: {read}")
        found.append(read)
    return tuple(found)
