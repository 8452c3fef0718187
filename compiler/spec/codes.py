"""The pages of the codes of family `T` that resolution tells: what `parlay explain T002` prints.

Imported by nothing that checks a file. Each page has the parts What, Why, Example and Instead, as
the pages of family `P` have; a test runs Example and Instead, but for the codes in `NOT_RUN`.
"""

from __future__ import annotations

from parlay.compiler.spec.codes_names import PAGES as _NAMES
from parlay.compiler.spec.codes_types import PAGES as _TYPES

CODES: dict[str, tuple[str, str]] = {**_NAMES, **_TYPES}
"""Code -> (title, page)."""

NOT_RUN = frozenset({"T014", "T116"})
"""Codes whose example is no single short text, or needs another command than `check`."""
