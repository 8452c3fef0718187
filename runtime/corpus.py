"""Text that is to be tokens: its files, its documents, and the pieces that processes take.

A corpus is a file or a folder. `.jsonl` has a document a line, an object whose `text` it is; any
other file is one document, of a folder those that end in `.txt`. Files follow one another by their
paths. A text beyond `PART` bytes is tokenized in parts, each begun at the first place after a
multiple of `PART` where no tokenizer joins what stands on either side: before the one space between
two letters, or behind the one line break between two characters. Where, depends on the text alone.

Pure Python: what trains looks for prepared tokens by it, without a tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

LINES: Final = ".jsonl"
TEXT: Final = ".txt"
KEY: Final = "text"
"""The field of a line that is the document."""

PART: Final = 1 << 20
"""Bytes of text that are tokenized at once, and a word or a line more."""
PIECE: Final = 32 * PART
"""Bytes of a file that one process takes, and a line more."""
READ: Final = 1 << 16

VERSION: Final = 1
"""Of how text is cut: tokens that an older one made are not taken for this one's."""

_PLACE: Final = re.compile(rb"(?<=[A-Za-z])(?= [A-Za-z])|\n")
_SEEN: Final = 5
"""Bytes on either side that say whether it is a place: a character's, and a line break."""
_MARK: Final = b"\xef\xbb\xbf"


class CorpusError(ValueError):
    """Text or a tokenizer cannot be read as the plan says."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a corpus; `name` is its path in it."""

    path: Path
    name: str
    size: int
    changed: int  # ns, of its last change

    @property
    def lines(self) -> bool:
        return self.path.suffix == LINES


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of a file from `start` to `stop`: whole lines, or whole parts of a text."""

    file: File
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Part:
    """Text that is tokenized at once: a document, or a part of one."""

    text: str
    first: bool
    last: bool


def files(path: Path) -> list[File]:
    """The files of a corpus, in the order of their documents."""
    if path.is_dir():
        found = sorted(
            each for each in path.rglob("*") if each.suffix in (LINES, TEXT) and each.is_file()
        )
        if not found:
            raise CorpusError(f"{path} holds no file that ends in {TEXT} or {LINES}")
    elif path.is_file():
        found = [path]
    else:
        raise CorpusError(f"no file or folder {path} (looked for from {Path.cwd()})")
    root = path if path.is_dir() else path.parent
    return [_file(each, each.relative_to(root).as_posix()) for each in found]


def _file(path: Path, name: str) -> File:
    told = path.stat()
    return File(path, name, told.st_size, told.st_mtime_ns)


# ── Tokenizers ────────────────────────────────────────────────────────────────


def tokenizer_file(path: Path) -> Path:
    """`tokenizer.json`, given itself or by its folder."""
    found = path / "tokenizer.json" if path.is_dir() else path
    if not found.is_file():
        raise CorpusError(f"no tokenizer {found} (looked for from {Path.cwd()})")
    return found


def end_token(tokenizer: Path) -> str | None:
    """What closes a document: `eos_token` of the `tokenizer_config.json` beside it."""
    path = tokenizer.with_name("tokenizer_config.json")
    if not path.is_file():
        return None
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))["eos_token"]
    except (ValueError, KeyError, TypeError):
        return None
    found = found.get("content") if isinstance(found, dict) else found
    return found if isinstance(found, str) else None


def prepared(path: Path, tokenizer: Path) -> Path:
    """Where the tokens of a corpus are: beside it, by a name that is another's where the tokenizer
    is, or the names or sizes of files are."""
    said = {
        "version": VERSION,
        "tokenizer": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        "end": end_token(tokenizer),
        "files": [[file.name, file.size] for file in files(path)],
    }
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    path = path.resolve()
    return path.with_name(f"{path.name}.{digest[:12]}.bin")


# ── Pieces ────────────────────────────────────────────────────────────────────


def pieces(file: File) -> Iterator[Piece]:
    """A file cut into pieces, each of which is read by itself."""
    start = 0
    with file.path.open("rb") as opened:
        while start < file.size:
            stop = file.size
            beyond = (start // PIECE + 1) * PIECE
            if beyond < file.size:
                stop = (_line if file.lines else _place)(opened, beyond, file.size)
            yield Piece(file, start, stop)
            start = stop


def _line(opened: BinaryIO, at: int, size: int) -> int:
    """Where the first line begins that starts at `at` or later."""
    opened.seek(at - 1)
    opened.readline()
    return opened.tell()


def _place(opened: BinaryIO, at: int, size: int) -> int:
    """The first place to cut a text from `at` on; `size` where there is none."""
    base = max(0, at - _SEEN)
    opened.seek(base)
    data = b""
    while block := opened.read(READ):
        data += block
        whole = base + len(data) >= size
        if (found := _cut(data, at - base, whole=whole)) is not None:
            return base + found
        if len(data) > 2 * _SEEN:
            base, data = base + len(data) - 2 * _SEEN, data[-2 * _SEEN :]
            at = max(at, base + _SEEN)
    return size


def _cut(data: bytes, at: int, *, whole: bool) -> int | None:
    """The first place of `data` from `at` on; unless it is the whole rest, its last bytes are not
    looked at."""
    for match in _PLACE.finditer(data, max(0, at - 1)):
        found = match.end()
        if found + _SEEN > len(data) and not whole:
            return None
        if found >= at and (match.start() == found or _stands_alone(data, found)):
            return found
    return None


def _stands_alone(data: bytes, behind: int) -> bool:
    """Whether the line break before `behind` is the only white space there."""
    before = data[max(0, behind - _SEEN) : behind - 1].decode("utf-8", "ignore")[-1:]
    after = data[behind : behind + _SEEN - 1].decode("utf-8", "ignore")[:1]
    return all(character and not character.isspace() for character in (before, after))


def parts(piece: Piece) -> Iterator[Part]:
    """The texts of a piece, in order; empty documents are left out."""
    with piece.file.path.open("rb") as opened:
        opened.seek(piece.start)
        if piece.file.lines:
            yield from _of_lines(opened, piece)
        else:
            yield from _of_text(opened, piece)


def _of_lines(opened: BinaryIO, piece: Piece) -> Iterator[Part]:
    at = piece.start
    while at < piece.stop:
        line = opened.readline()
        if not line:
            raise CorpusError(f"{piece.file.path} became shorter while it was read")
        text = _document(line, piece.file, at)
        at += len(line)
        whole = text.encode()
        cuts = [0, *_cuts(whole), len(whole)]
        for start, stop in pairwise(cuts):
            if start < stop:
                yield Part(whole[start:stop].decode(), start == 0, stop == len(whole))


def _document(line: bytes, file: File, at: int) -> str:
    """The text of a line; empty of an empty one."""
    if not line.strip():
        return ""
    if at == 0:
        line = line.removeprefix(_MARK)
    try:
        found = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{file.path}: the line at byte {at} is no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get(KEY), str):
        raise CorpusError(f'{file.path}: the line at byte {at} has no text under "{KEY}"')
    # Halves of pairs, which JSON may spell out and UTF-8 has no bytes for.
    return str(found[KEY]).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _of_text(opened: BinaryIO, piece: Piece) -> Iterator[Part]:
    data = opened.read(piece.stop - piece.start)
    if len(data) < piece.stop - piece.start:
        raise CorpusError(f"{piece.file.path} became shorter while it was read")
    cuts = [0, *_cuts(data, base=piece.start), len(data)]
    for start, stop in pairwise(cuts):
        try:
            text = data[start:stop].decode()
        except UnicodeDecodeError as error:
            at = piece.start + start + error.start
            raise CorpusError(f"{piece.file.path} is not UTF-8 at byte {at}") from error
        at = piece.start + start
        if at == 0:
            text = text.removeprefix("\ufeff")
        yield Part(text, at == 0, piece.start + stop == piece.file.size)


def _cuts(data: bytes, base: int = 0) -> Iterator[int]:
    """Where further parts of a text begin; its bytes from `base` on are `data`."""
    at = 0
    while (beyond := ((base + at) // PART + 1) * PART - base) < len(data):
        found = _cut(data, beyond, whole=True)
        at = len(data) if found is None else found
        if at < len(data):
            yield at
