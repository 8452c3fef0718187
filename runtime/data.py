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

Formats:
  text      a file read as bytes, or English text that CPython carries; document end 256. With a
            tokenizer, the tokens that `parlay.runtime.prepare` has made of it, as below
  tokens    raw little-endian uint16 or uint32, with a sidecar `NAME.json` beside `NAME.bin`:
            {"dtype": "uint16", "vocab": 50257, "end": 50256, "pad": null}
  megatron  `PATH.bin` and `PATH.idx`
"""

from __future__ import annotations

import json
import struct
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parlay.runtime import corpus
from parlay.runtime.documents import Documents, by_end
from parlay.runtime.plan import Plan

IGNORED = -100
"""The label of a token that does not count."""

TEXT_END = 256
TEXT_VOCAB = 257

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}

SCANNED = 1 << 28
"""Up to this many tokens are looked at before training; each batch is looked at as it is read."""

_WORD = (1 << 64) - 1
_ROUNDS = 8


class DataError(ValueError):
    """The data set cannot be trained on as the plan says."""


@dataclass(frozen=True, kw_only=True)
class TokenStream:
    """All documents, one after the other, each closed by the token `end`."""

    tokens: np.ndarray[Any, Any]  # [length], any integer type, memory-mapped where it is a file
    source: str
    vocab: int | None = None
    end: int | None = None
    pad: int | None = None
    bounds: np.ndarray[Any, Any] | None = None  # of documents, where the format has them


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

    def batch(self, step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """This rank's microbatches `(tokens, labels)`, each [micro_batch, seq] int64, or as many
        tokens of each sequence as are its own."""
        microbatches = []
        for k in range(self.microbatches):
            piece = k * self.ranks + self.rank
            first = step * self.global_batch + piece * self.micro_batch
            microbatches.append(self._microbatch(first))
        return microbatches

    def held(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """This rank's microbatches of the samples that are held out: the same ones each time."""
        each = self.ranks * self.micro_batch
        first = self.windows + self.rank * self.micro_batch
        pieces = range(first, first + self.held_batches * self.global_batch, each)
        return [self._read(range(at, at + self.micro_batch)) for at in pieces]

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

    def _microbatch(self, first: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._read([self.window(first + row) for row in range(self.micro_batch)])

    def _read(self, windows: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
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
            return tokens[:, self.own], labels[:, self.own]
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
        for piece in range(0, pieces, stride):
            chunk = tokens[piece << 20 : (piece + 1) << 20]
            _check_range(chunk, vocab=self.vocab, source=source)


def bounds_of(stream: TokenStream) -> np.ndarray[Any, Any]:
    """Where documents begin and end."""
    if stream.bounds is not None:
        return stream.bounds
    if stream.end is None:
        raise DataError(
            f"{stream.source} does not say where documents end, which `packing = off` needs: "
            "`end` in the sidecar of tokens, the documents of a Megatron index"
        )
    return by_end(stream.tokens, stream.end)


def open_stream(format: str, path: str | None, *, tokenizer: str | None = None) -> TokenStream:
    if tokenizer is not None and path is not None:
        return read_prepared(Path(path), Path(tokenizer))
    if format == "text":
        return read_text(path)
    if path is None:
        raise DataError(f"data of the format `{format}` needs a path")
    if format == "tokens":
        return read_tokens(Path(path))
    if format == "megatron":
        return read_megatron(Path(path))
    raise DataError(f"unknown data format `{format}`: text, tokens or megatron")


# ── Formats ───────────────────────────────────────────────────────────────────


def read_text(path: str | None) -> TokenStream:
    """Bytes are tokens 0 to 255. Without a path: the help topics of CPython, or its own source."""
    documents = [_existing(Path(path)).read_bytes()] if path is not None else _own_text()
    pieces: list[np.ndarray[Any, Any]] = []
    for document in documents:
        pieces += [np.frombuffer(document, dtype=np.uint8).astype(np.uint16)]
        pieces += [np.array([TEXT_END], dtype=np.uint16)]
    return TokenStream(
        tokens=np.concatenate(pieces),
        source=str(path) if path is not None else "CPython's own text",
        vocab=TEXT_VOCAB,
        end=TEXT_END,
    )


def _own_text() -> list[bytes]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        library = Path(sysconfig.get_path("stdlib"))
        return [file.read_bytes() for file in sorted(library.glob("*.py"))]
    return [topics[name].encode() for name in sorted(topics)]


def read_prepared(path: Path, tokenizer: Path) -> TokenStream:
    """The tokens that were made of a corpus."""
    try:
        tokens = corpus.prepared(path, corpus.tokenizer_file(tokenizer))
    except corpus.CorpusError as error:
        raise DataError(str(error)) from error
    if not tokens.with_suffix(".json").is_file():
        raise DataError(
            f"{path} has not been tokenized by {tokenizer}, or has changed since: "
            f"`python -m parlay.runtime.prepare CODE`, with the folder of train.py, does it"
        )
    return read_tokens(tokens)


def read_tokens(path: Path) -> TokenStream:
    sidecar = path.with_suffix(".json")
    try:
        facts = json.loads(_existing(sidecar).read_text(encoding="utf-8"))
        dtype, vocab = str(facts["dtype"]), int(facts["vocab"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"{sidecar} states dtype, vocab, end and pad of {path.name} as JSON: {error!r}"
        ) from error
    if dtype not in ("uint16", "uint32"):
        raise DataError(f"{sidecar}: dtype is uint16 or uint32, not {dtype}")
    return TokenStream(
        tokens=_memmap(path, np.dtype(dtype).newbyteorder("<")),
        source=str(path),
        vocab=vocab,
        end=facts.get("end"),
        pad=facts.get("pad"),
    )


def read_megatron(path: Path) -> TokenStream:
    """`.idx`: magic (9 bytes), u64 version 1, u8 dtype, u64 sequences, u64 documents, then int32
    lengths [sequences], int64 byte offsets [sequences], int64 document bounds [documents].
    """
    stem = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    # A dataset's name may hold dots (`c4_text.v2`), which with_suffix would take for a suffix.
    index_file, tokens_file = Path(f"{stem}.idx"), Path(f"{stem}.bin")
    raw = _existing(index_file).read_bytes()
    header = struct.Struct("<QBQQ")
    at = len(MEGATRON_MAGIC)
    if raw[:at] != MEGATRON_MAGIC or len(raw) < at + header.size:
        raise DataError(f"{index_file} is not a Megatron index: it does not begin with MMIDIDX")
    version, code, sequences, documents = header.unpack_from(raw, at)
    if version != 1 or code not in MEGATRON_DTYPES:
        raise DataError(f"{index_file}: version {version}, dtype code {code} cannot be read")
    at += header.size
    if len(raw) < at + sequences * 12 + documents * 8:
        raise DataError(
            f"{index_file} is cut short: {sequences} sequences and {documents} document bounds "
            f"take {at + sequences * 12 + documents * 8} bytes, the file has {len(raw)}"
        )
    lengths = np.frombuffer(raw, dtype="<i4", count=sequences, offset=at).astype(np.int64)
    offsets = np.frombuffer(raw, dtype="<i8", count=sequences, offset=at + sequences * 4)
    dtype = np.dtype(MEGATRON_DTYPES[code]).newbyteorder("<")
    ends = np.cumsum(lengths) * dtype.itemsize
    if not np.array_equal(offsets, ends - lengths * dtype.itemsize):
        raise DataError(f"{index_file}: the sequences do not follow one another in the .bin file")
    expected, found = int(ends[-1]) if sequences else 0, _existing(tokens_file).stat().st_size
    if expected != found:
        raise DataError(
            f"{tokens_file} has {found} bytes; the sequences of {index_file.name} "
            f"take {expected}: the pair does not belong together, or was cut short"
        )
    firsts = np.frombuffer(raw, dtype="<i8", count=documents, offset=at + sequences * 12)
    return TokenStream(
        tokens=_memmap(tokens_file, dtype),
        source=str(tokens_file),
        bounds=_of_documents(firsts, np.concatenate([[0], np.cumsum(lengths)])),
    )


def _of_documents(firsts: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> Any:
    """Where documents begin, by their first sequences; None where these do not say it."""
    ascend = bool(len(firsts)) and firsts[0] == 0 and firsts[-1] == len(starts) - 1
    return starts[firsts] if ascend and bool((np.diff(firsts) >= 0).all()) else None


def _memmap(path: Path, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = _existing(path).stat().st_size
    if size == 0 or size % dtype.itemsize:
        raise DataError(f"{path} has {size} bytes, not a whole number of {dtype.name} tokens")
    return np.memmap(path, dtype=dtype, mode="r")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"no file {path} (looked for from {Path.cwd()})")
    return path


def _check_range(tokens: np.ndarray[Any, Any], *, vocab: int, source: str) -> None:
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab:
        outside = high if high >= vocab else low
        raise DataError(
            f"{source} holds the token {outside}; a vocabulary of {vocab} ends at {vocab - 1}"
        )


# ── The order of samples ──────────────────────────────────────────────────────


def mixed(value: int) -> int:
    """The finaliser of splitmix64: a bijection on 64 bits in which every bit stirs every other."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def permuted(index: int, *, size: int, key: int) -> int:
    """Where a permutation of range(size), chosen by `key`, sends `index`.

    A balanced Feistel network permutes the next power of four; a value that falls outside
    range(size) is sent through again until it falls inside, which keeps it a permutation.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    keys = [mixed(key + turn) for turn in range(_ROUNDS)]
    while True:
        left, right = index >> half, index & mask
        for stirred in keys:
            left, right = right, left ^ (mixed(right ^ stirred) & mask)
        index = (left << half) | right
        if index < size:
            return index
