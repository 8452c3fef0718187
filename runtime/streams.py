"""Streams of tokens, by the format of their files:

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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from parlay.runtime import corpus
from parlay.runtime.documents import by_end

TEXT_END = 256
TEXT_VOCAB = 257

Integers = np.ndarray[Any, Any]

INDEXED = 1 << 22
"""Entries of an index that are looked through at once."""

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}


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
    bounds: Callable[[], np.ndarray[Any, Any] | None] | None = None  # of documents, where asked for


def bounds_of(stream: TokenStream) -> np.ndarray[Any, Any]:
    """Where documents begin and end."""
    if stream.bounds is not None and (found := stream.bounds()) is not None:
        return found
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
    header = struct.Struct("<QBQQ")
    at = len(MEGATRON_MAGIC)
    with _existing(index_file).open("rb") as file:
        begins = file.read(at + header.size)
    if begins[:at] != MEGATRON_MAGIC or len(begins) < at + header.size:
        raise DataError(f"{index_file} is not a Megatron index: it does not begin with MMIDIDX")
    version, code, sequences, documents = header.unpack_from(begins, at)
    if version != 1 or code not in MEGATRON_DTYPES:
        raise DataError(f"{index_file}: version {version}, dtype code {code} cannot be read")
    at += header.size
    # Mapped, so that the ranks of a node have one copy of what may be gigabytes.
    raw = np.memmap(index_file, dtype=np.uint8, mode="r")
    if len(raw) < at + sequences * 12 + documents * 8:
        raise DataError(
            f"{index_file} is cut short: {sequences} sequences and {documents} document bounds "
            f"take {at + sequences * 12 + documents * 8} bytes, the file has {len(raw)}"
        )
    lengths = np.frombuffer(raw, dtype="<i4", count=sequences, offset=at)
    offsets = np.frombuffer(raw, dtype="<i8", count=sequences, offset=at + sequences * 4)
    dtype = np.dtype(MEGATRON_DTYPES[code]).newbyteorder("<")
    if not _follow(offsets, lengths, dtype.itemsize):
        raise DataError(f"{index_file}: the sequences do not follow one another in the .bin file")
    expected = int(offsets[-1]) + int(lengths[-1]) * dtype.itemsize if sequences else 0
    found = _existing(tokens_file).stat().st_size
    if expected != found:
        raise DataError(
            f"{tokens_file} has {found} bytes; the sequences of {index_file.name} "
            f"take {expected}: the pair does not belong together, or was cut short"
        )
    firsts = np.frombuffer(raw, dtype="<i8", count=documents, offset=at + sequences * 12)
    return TokenStream(
        tokens=_memmap(tokens_file, dtype),
        source=str(tokens_file),
        bounds=lambda: _of_documents(firsts, offsets // dtype.itemsize, expected // dtype.itemsize),
    )


def _follow(offsets: Integers, lengths: Integers, width: int) -> bool:
    """Whether each sequence begins where the one before it ends, a piece of them at a time."""
    for at in range(0, len(offsets), INDEXED):
        ends = offsets[at : at + INDEXED] + lengths[at : at + INDEXED].astype(np.int64) * width
        after = offsets[at + 1 : at + INDEXED + 1]
        if not np.array_equal(ends[: len(after)], after):
            return False
    return not len(offsets) or int(offsets[0]) == 0


def _of_documents(firsts: Integers, starts: Integers, stop: int) -> Integers | None:
    """Where documents begin, by their first sequences; None where these do not say it."""
    ascend = bool(len(firsts)) and firsts[0] == 0 and firsts[-1] == len(starts)
    if not ascend or not bool((np.diff(firsts) >= 0).all()):
        return None
    found: Integers = np.append(starts, stop)[firsts]
    return found


def _memmap(path: Path, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = _existing(path).stat().st_size
    if size == 0 or size % dtype.itemsize:
        raise DataError(f"{path} has {size} bytes, not a whole number of {dtype.name} tokens")
    return np.memmap(path, dtype=dtype, mode="r")


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"no file {path} (looked for from {Path.cwd()})")
    return path
