"""`parlay check --watch`: checks again whenever a file that took part has changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 0.25

State = tuple[int, int] | None
"""Time of the last change and size; None where there is no such file."""


def watch(
    files: Iterable[Path],
    once: Callable[[], Iterable[Path]],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Runs `once` for `files`, again after each change of a file it says it read; 0 on Ctrl-C."""
    known = list(files)
    try:
        while True:
            # Taken before the check, so that a change during it is seen.
            before = {path: _state(path) for path in known}
            if sys.stdout.isatty():
                sys.stdout.write("\x1b[2J\x1b[H")
            known = list(once())
            sys.stdout.flush()
            before = {path: before.get(path) or _state(path) for path in known}
            while {path: _state(path) for path in known} == before:
                sleep(INTERVAL_S)
    except KeyboardInterrupt:
        return 0


def _state(path: Path) -> State:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size
