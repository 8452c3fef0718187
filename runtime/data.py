"""Training data: windows of `seq + 1` tokens, in an order that no layout changes.

Sample i of the global order is a pure function of (seed, i). An epoch holds every window of the
token stream once, permuted by a Feistel network keyed with (seed, epoch), so that no permutation
is kept in memory; or in the order of the stream, where the plan says so. The whole state of a run
is two integers: the seed and the number of samples consumed, which is `step * global_batch`.

Step t reads the samples [t * global_batch, (t + 1) * global_batch). Data-parallel rank d takes as
its microbatch k the samples t * global_batch + (k * ranks + d) * micro_batch, and the next
`micro_batch - 1`. Microbatch k of all ranks together is thus one contiguous piece, and any layout
reads the same global batches.

Where the plan says that documents are not packed, windows are those of `documents`.

Where the plan holds a share of the windows out, these are the last ones of the stream, and an epoch
has the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from parlay.runtime.documents import Documents
from parlay.runtime.mesh import own_device
from parlay.runtime.order import mixed, permuted
from parlay.runtime.plan import Plan
from parlay.runtime.streams import DataError, bounds_of, open_stream

__all__ = ["IGNORED", "DataError", "Loader", "Microbatch"]

IGNORED = -100
"""The label of a token that does not count."""

SCANNED = 1 << 28
"""Up to this many tokens are looked at before training, by all ranks together; each batch is looked
at as it is read."""


class Microbatch(Sequence[torch.Tensor]):
    """`(tokens, labels)`, read when one of them is first looked at: a stage between the first and
    the last looks at none, and most ranks of a long pipeline read no file."""

    def __init__(self, loader: Loader, windows: Sequence[int]) -> None:
        self.loader, self.windows = loader, windows

    @cached_property
    def both(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.loader.read(self.windows)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: Any) -> Any:
        return self.both[at]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.both)


class Loader:
    """The microbatches of one data-parallel rank; of each sequence the tokens at the positions
    `own`, by default all."""

    def __init__(
        self, plan: Plan, *, rank: int, ranks: int, own: torch.Tensor | None = None
    ) -> None:
        batch = plan.batch
        share, rest = divmod(batch.global_batch, batch.micro_batch * ranks)
        if rest:
            raise DataError(
                f"a global batch of {batch.global_batch} does not divide into microbatches of "
                f"{batch.micro_batch} on {ranks} data-parallel ranks"
            )
        self.rank, self.ranks, self.microbatches = rank, ranks, share
        self.own = own
        self.pinned = own_device().type == "cuda"
        """A GPU takes them from there while the CPU goes on."""
        self.micro_batch, self.global_batch, self.seq = (
            batch.micro_batch,
            batch.global_batch,
            batch.seq,
        )
        self.seed, self.vocab = plan.seed, plan.model.vocab
        self.shuffle = plan.data.get("shuffle", True)
        data = plan.data
        self.stream = open_stream(data.format, data.path, tokenizer=data.get("tokenizer"))
        self.windows = (len(self.stream.tokens) - 1) // self.seq
        self.documents: Documents | None = None
        if not plan.data.get("packing", True):
            self.documents = Documents(bounds_of(self.stream), seq=self.seq)
            self.windows = self.documents.windows
        self.held_batches = 0
        if (held := plan.data.get("validation")) is not None:
            self._hold(held.share, held.batches)
        self._check()

    def batch(self, step: int) -> list[Microbatch]:
        """This rank's microbatches `(tokens, labels)`, each [micro_batch, seq] int64, or as many
        tokens of each sequence as are its own."""
        microbatches = []
        for k in range(self.microbatches):
            piece = k * self.ranks + self.rank
            first = step * self.global_batch + piece * self.micro_batch
            windows = [self.window(first + row) for row in range(self.micro_batch)]
            microbatches.append(Microbatch(self, windows))
        return microbatches

    def held(self) -> list[Microbatch]:
        """This rank's microbatches of the samples that are held out: the same ones each time."""
        each = self.ranks * self.micro_batch
        first = self.windows + self.rank * self.micro_batch
        pieces = range(first, first + self.held_batches * self.global_batch, each)
        return [Microbatch(self, range(at, at + self.micro_batch)) for at in pieces]

    def _hold(self, share: float, batches: int) -> None:
        """The last `share` of the windows is not trained on; `batches` of it are looked at."""
        out = int(self.windows * share)
        if out < self.global_batch:
            raise DataError(
                f"{share:.6g} of the {self.windows} windows of {self.stream.source} is {out}; "
                f"one global batch that is held out takes {self.global_batch}"
            )
        self.windows -= out
        self.held_batches = min(batches, out // self.global_batch)

    def window(self, sample: int) -> int:
        """Which window of the stream is sample `sample` of the global order."""
        epoch, index = divmod(sample, self.windows)
        if not self.shuffle:
            return index
        return permuted(index, size=self.windows, key=mixed(mixed(self.seed) + epoch))

    def read(self, windows: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The tokens and labels of these windows."""
        # What stands behind a document is any token, and counts nowhere.
        rows = np.full((len(windows), self.seq + 1), self.stream.end or 0, dtype=np.int64)
        lengths = []
        for row, window in enumerate(windows):
            start, stop = window * self.seq, (window + 1) * self.seq + 1
            if self.documents is not None:
                start, stop = self.documents.span(window)
            rows[row, : stop - start] = self.stream.tokens[start:stop]
            lengths.append(stop - start)
        _check_range(rows, vocab=self.vocab, source=self.stream.source)
        both = torch.from_numpy(rows)
        tokens, labels = both[:, :-1].contiguous(), both[:, 1:].clone()
        for row, length in enumerate(lengths):
            labels[row, length - 1 :] = IGNORED
        if self.stream.pad is not None:
            labels[labels == self.stream.pad] = IGNORED
        if self.own is not None:
            tokens, labels = tokens[:, self.own], labels[:, self.own]
        if self.pinned:
            return tokens.pin_memory(), labels.pin_memory()
        return tokens, labels

    def _check(self) -> None:
        tokens, source = self.stream.tokens, self.stream.source
        if self.windows < 1:
            raise DataError(
                f"{source} holds {len(tokens)} tokens; one sample needs {self.seq + 1} "
                f"(sequence {self.seq} and the label of its last token)"
            )
        if self.stream.vocab is not None and self.stream.vocab > self.vocab:
            raise DataError(
                f"{source} is written with a vocabulary of {self.stream.vocab} tokens; "
                f"the model's has {self.vocab}"
            )
        pieces = -(-len(tokens) // (1 << 20))
        stride = max(1, pieces * (1 << 20) // SCANNED)
        # A share each: the file system would have to give all of it to every node.
        for piece in range(self.rank * stride, pieces, self.ranks * stride):
            chunk = tokens[piece << 20 : (piece + 1) << 20]
            _check_range(chunk, vocab=self.vocab, source=source)


def _check_range(tokens: np.ndarray[Any, Any], *, vocab: int, source: str) -> None:
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab:
        outside = high if high >= vocab else low
        raise DataError(
            f"{source} holds the token {outside}; a vocabulary of {vocab} ends at {vocab - 1}"
        )
