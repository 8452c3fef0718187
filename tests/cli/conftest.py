"""The shapes of JSON that docs/commands.md shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


class Page:
    """The blocks `json NAME` of the page, by their names."""

    def __init__(self, shapes: Mapping[str, Any]) -> None:
        self.shapes = shapes

    def lacking(self, found: Any, shape: str) -> list[str]:
        """What is shown and not found; an empty list or object may hold anything."""
        return list(_lacking(found, self.shapes[shape], ""))


def _lacking(found: Any, shown: Any, at: str) -> Iterator[str]:
    if isinstance(shown, dict) and found is not None:
        for name, below in shown.items():
            if not isinstance(found, dict) or name not in found:
                yield f"{at}.{name}"
            else:
                yield from _lacking(found[name], below, f"{at}.{name}")
    elif isinstance(shown, list) and shown and isinstance(shown[0], dict):
        for item in found:
            yield from _lacking(item, shown[0], f"{at}[]")


@pytest.fixture(scope="session")
def page() -> Page:
    blocks = re.findall(r"^```json (\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return Page({name: json.loads(body) for name, body in blocks})
