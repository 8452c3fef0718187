"""A file to its text: everything that can be wrong before the first character is looked at."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from parlay.dsl.diagnostics.record import Diagnostic, Severity
from parlay.dsl.source import Source

LARGEST = 1 << 20
"""A `.par` file has at most so many bytes: 1 MiB."""


def read(
    path: Path, *, root: Path | None = None, shown: str | None = None
) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    """The text of the file at `path`, or None and why there is none.

    With `root`, a file that lies outside that folder, links followed, is refused, and the file is
    named relative to it; `shown` gives another name. Nothing is raised, nothing blocks, and never
    more than 1 MiB is read. A byte-order mark is taken off. An empty file is a `Source` of nothing;
    `parse` tells of it.
    """
    name = shown if shown is not None else _shown(path, root)
    try:
        if root is not None and not _inside(path, root):
            return _no(name, "P008", "the file lies outside the project", f"its root is {root}")
        data = _bytes(path, name)
    except (OSError, ValueError) as problem:
        return None, (_unreadable(path, name, problem),)
    if isinstance(data, Diagnostic):
        return None, (data,)
    return _text(name, data)


def decode(name: str, data: bytes) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    """The text of `data` under `name`, or None and why it is none: as `read`, without a file."""
    if len(data) > LARGEST:
        return None, (_too_large(name, f"{len(data):,} bytes"),)
    return _text(name, data)


def _no(name: str, code: str, message: str, help: str = "") -> tuple[None, tuple[Diagnostic, ...]]:
    return None, (_fault(name, code, message, help),)


def _fault(name: str, code: str, message: str, help: str = "") -> Diagnostic:
    return Diagnostic(code, Severity.ERROR, message, name, help=(help,) if help else ())


def _shown(path: Path, root: Path | None) -> str:
    if root is not None:
        try:
            return path.relative_to(root).as_posix()
        except ValueError:
            pass
    return str(path)


def _inside(path: Path, root: Path) -> bool:
    # realpath, unlike Path.resolve, does not raise on a ring of links.
    top = os.path.realpath(root)
    return os.path.commonpath([top, os.path.realpath(path)]) == top


def _unreadable(path: Path, name: str, problem: OSError | ValueError) -> Diagnostic:
    if isinstance(problem, FileNotFoundError):
        help = ""
        if not name.endswith(".par") and _exists(path.with_name(path.name + ".par")):
            help = f"`{name}.par` is there"
        return _fault(name, "P001", "no such file", help)
    if isinstance(problem, NotADirectoryError):
        return _fault(name, "P001", "no such file: a part of its path is not a folder")
    if isinstance(problem, IsADirectoryError):
        return _fault(name, "P002", "this is a folder, not a file")
    reason = problem.strerror if isinstance(problem, OSError) else str(problem)
    return _fault(name, "P003", f"the file cannot be read: {(reason or 'unknown').lower()}")


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _bytes(path: Path, name: str) -> bytes | Diagnostic:
    """The content; kind and size are looked at before anything is opened."""
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        inside = sorted(entry.name for entry in path.glob("*.par"))[:3]
        help = f"it holds {', '.join(f'`{entry}`' for entry in inside)}" if inside else ""
        return _fault(name, "P002", "this is a folder, not a file", help)
    if not stat.S_ISREG(found.st_mode):
        return _fault(name, "P002", f"this is {_kind(found.st_mode)}, not a regular file")
    if found.st_size > LARGEST:
        return _too_large(name, f"{found.st_size:,} bytes")
    # Between stat and open the file may have become a pipe: opening must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return _fault(name, "P002", "this is not a regular file")
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else _too_large(name, f"more than {LARGEST:,} bytes")


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


def _too_large(name: str, size: str) -> Diagnostic:
    return _fault(
        name,
        "P004",
        f"the file has {size}; at most {LARGEST:,} (1 MiB) are read",
        "`import` brings in the blocks of other files",
    )


def _text(name: str, data: bytes) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _no(name, "P005", "the file is UTF-16, not UTF-8", "it needs to be saved as UTF-8")
    zero = data.find(0)
    if zero >= 0:
        message = f"the file is not text: byte {zero:,} (counted from 0) is zero"
        return _no(name, "P006", message)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        message = (
            f"the file is not UTF-8: byte {problem.start:,} (counted from 0, in line {line:,})"
            f" is 0x{data[problem.start]:02x}"
        )
        return _no(name, "P005", message, "it needs to be saved as UTF-8")
    return Source(name, text.removeprefix("\ufeff")), ()
