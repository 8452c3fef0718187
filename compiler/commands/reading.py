"""Reading a file that another program made: nothing blocks, and nothing is read without end."""

from __future__ import annotations

import stat
from pathlib import Path


def text_of(path: Path, *, most: int) -> tuple[str, str]:
    """The text of a file of at most so many bytes, and why there is none; one of them is empty.

    Bytes that are no UTF-8 are replaced.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            return "", f"{path} is no plain file"
        if found.st_size > most:
            return "", f"{path} is larger than {most >> 20} MiB"
        return path.read_text("utf-8", errors="replace"), ""
    except OSError as failure:
        return "", f"{path} cannot be read: {failure.strerror}"
    except ValueError as failure:
        return "", f"{path} cannot be read: {failure}"
