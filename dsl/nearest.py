"""Names that a mistaken one may have meant."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 48
"""Beyond this many letters nothing is compared: no name of the language is so long."""


def nearest(word: str, candidates: Iterable[str], at_most: int = 3) -> list[str]:
    """The candidates that are few typing slips away from `word`, nearest first.

    A slip is a letter added, dropped, changed or swapped with its neighbour; a third of the word
    may have slipped. Case alone is no slip. Cost is bounded by the number of candidates.
    """
    if not word or len(word) > _LONGEST:
        return []
    allowed = (len(word) + 1) // 3
    lower = word.lower()
    found: list[tuple[int, int, str]] = []
    for order, candidate in enumerate(dict.fromkeys(candidates)):
        if abs(len(candidate) - len(word)) > allowed or candidate == word:
            continue
        slips = _distance(lower, candidate.lower())
        if slips <= allowed:
            found.append((slips, order, candidate))
    return [candidate for _, _, candidate in sorted(found)[:at_most]]


def _distance(a: str, b: str) -> int:
    """Edit distance with swaps of neighbours counted as one."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i] + [0] * len(b)
        for j, y in enumerate(b, 1):
            row[j] = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], before[j - 2] + 1)
        before = above
    return row[-1]
