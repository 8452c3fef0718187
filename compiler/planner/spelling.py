"""A chosen value as a file writes it."""

from __future__ import annotations

from typing import Any

from parlay.compiler.spec.schema import Setting


def spelling(value: Any) -> str:
    """`interleaved(chunks = 2)`, `[tp, cp, pp, dp]`, `8`."""
    if isinstance(value, Setting):
        given = [*value.flags, *(f"{k} = {v}" for k, v in value.options.items() if v is not None)]
        return f"{value.name}({', '.join(given)})" if given else value.name
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
