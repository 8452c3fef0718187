"""The committed split: which rows a fit may see when a row is tested.

Rows are grouped by source and model (`rows.group_of`: stack and widths, no name), so that neither
a repeat nor another layout or depth of the same model from the same source helps to predict a row.
Groups are dealt over `FOLDS` folds by a hash. `whole_sources` leaves whole sources out instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from rows import Case

FOLDS = 8


def fold_of(name: str) -> int:
    """The fold of a group, the same on every machine."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") % FOLDS


def folds(cases: Sequence[Case]) -> Iterator[tuple[list[int], list[int]]]:
    """Indices of (training, test) rows of every fold; no group stands on both sides."""
    for fold in range(FOLDS):
        test = [i for i, case in enumerate(cases) if fold_of(case.group) == fold]
        held = set(test)
        if test:
            yield [i for i in range(len(cases)) if i not in held], test


def whole_sources(cases: Sequence[Case]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Every source left out whole: its name, and the indices of (training, test) rows."""
    for source in sorted({case.source for case in cases}):
        test = [i for i, case in enumerate(cases) if case.source == source]
        yield source, [i for i, case in enumerate(cases) if case.source != source], test
