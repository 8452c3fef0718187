"""A document a sequence: windows that never reach from one document into the next.

A document of n tokens, its end among them, gives ceil((n − 1) / seq) windows of `seq + 1` tokens
that follow one another from its start, each from the last token of the one before it. The last one
is filled up behind the document, and what is filled up has no label: attention is causal, so that
nothing of the document sees it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SCANNED = 1 << 24
"""Tokens that are looked through at once for the ends of documents."""

Integers = np.ndarray[Any, Any]


class Documents:
    """The windows of documents that lie end to end, `bounds[i]` to `bounds[i + 1]`.

    Keeps two integers for each document.
    """

    def __init__(self, bounds: Integers, *, seq: int) -> None:
        self.bounds, self.seq = bounds, seq
        counts = np.maximum(0, -(-(np.diff(bounds) - 1) // seq))
        self.first = np.concatenate([[0], np.cumsum(counts)])
        """The number of each document's first window."""

    @property
    def windows(self) -> int:
        """Of all documents."""
        return int(self.first[-1])

    def span(self, window: int) -> tuple[int, int]:
        """The tokens of a window, at most `seq + 1`."""
        document = int(np.searchsorted(self.first, window, side="right")) - 1
        start = int(self.bounds[document]) + (window - int(self.first[document])) * self.seq
        return start, min(start + self.seq + 1, int(self.bounds[document + 1]))


def by_end(tokens: Integers, end: int) -> Integers:
    """The bounds of documents that are each closed by the token `end`; what stands behind the last
    one is a document, too."""
    found = [
        np.flatnonzero(tokens[at : at + SCANNED] == end) + at + 1
        for at in range(0, len(tokens), SCANNED)
    ]
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), *found])
    return bounds if bounds[-1] == len(tokens) else np.append(bounds, len(tokens))
