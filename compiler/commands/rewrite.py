"""Changing a file that a person wrote, and writing one for tools: all of it or nothing."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from parlay.compiler.output import write_document
from parlay.dsl.diagnostics.cells import harmless


def rewrite(path: Path, text: str) -> None:
    """`path` holds `text` afterwards, or, where `OSError` is raised, what it held before.

    Permissions and, where allowed, the owner stay. Through a link the file it names is changed.
    """
    from tempfile import mkstemp

    target = Path(os.path.realpath(path))
    before = target.stat()
    if not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    handle, name = mkstemp(prefix=f".{target.name}-"[:60], dir=target.parent)
    staged = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        # Others may not be allowed to give a file away; it then belongs to whoever changed it.
        with suppress(OSError, AttributeError):
            os.chown(staged, before.st_uid, before.st_gid)
        staged.chmod(stat.S_IMODE(before.st_mode))
        staged.replace(target)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


def create(path: Path, text: str) -> None:
    """A new file with `text`; where `OSError` is raised, none, or the one that was there."""
    with path.open("x", encoding="utf-8", newline="\n") as file:
        try:
            file.write(text)
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def reason(failure: OSError) -> str:
    """Why a file could not be written, in a few words."""
    return (failure.strerror or str(failure)).lower()


def written(out: Path, text: str, *, by: str, force: bool) -> bool:
    """Whether a JSON document now stands at `out`; why not is told on stderr, nothing changed."""
    shown = harmless(str(out))
    try:
        if write_document(out, text, by=by, force=force):
            return True
    except OSError as failure:
        print(f"parlay: {shown} cannot be written: {harmless(reason(failure))}", file=sys.stderr)
        return False
    print(
        f"parlay: {shown} was not written by `{by}`. Nothing was changed; --force replaces it.",
        file=sys.stderr,
    )
    return False
