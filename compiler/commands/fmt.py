"""`parlay fmt`: canonical text."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from parlay.compiler.commands.printing import colored
from parlay.compiler.commands.rewrite import reason, rewrite
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.read import LARGEST, decode, read
from parlay.dsl.source import Source

STDIN: Final = Path("-")


def run(files: Sequence[Path], *, check: bool, diff: bool) -> int:
    """Formats every file, `-` from stdin to stdout; 1 where one has errors or `check` finds one.

    With `check` or `diff` nothing is written. A file with errors of its syntax stays as it is.
    """
    failed = False
    changed = 0
    for path in dict.fromkeys(files):
        source, told = _read(path)
        after = None
        if source is not None:
            after, told = formatted(source)
        if after is None or source is None:
            failed = True
            _tell(told, source)
            continue
        if path == STDIN and not check and not diff:
            sys.stdout.write(after)
            continue
        if after == source.text:
            continue
        changed += 1
        if diff:
            _print_diff(source, after)
        elif not check:
            try:
                rewrite(path, after)
            except OSError as failure:
                print(
                    f"parlay: {harmless(str(path))} cannot be written: {reason(failure)}",
                    file=sys.stderr,
                )
                failed = True
                continue
        if not diff:
            said = "would be formatted" if check else "formatted"
            print(f"{said} {harmless(source.name)}")
    return 1 if failed or (check and changed) else 0


def formatted(source: Source) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """The canonical text, or None with the errors that stand in its way."""
    tree, told = parse(source)
    if any(one.severity is Severity.ERROR for one in told):
        return None, told
    return format(tree, source), told


def _read(path: Path) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    if path == STDIN:
        return decode("<stdin>", sys.stdin.buffer.read(LARGEST + 1))
    return read(path)


def _tell(told: Sequence[Diagnostic], source: Source | None) -> None:
    sources = {source.name: source} if source else {}
    sys.stderr.write(render(told, sources, color=colored(sys.stderr), width=100, summary=True))


def _print_diff(source: Source, after: str) -> None:
    """A unified diff: as it is into a file or pipe, without what a terminal obeys on one."""
    color = colored(sys.stdout)
    for line in difflib.unified_diff(
        source.text.splitlines(keepends=True),
        after.splitlines(keepends=True),
        harmless(source.name),
        harmless(source.name),
    ):
        ended = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        if not sys.stdout.isatty():
            sys.stdout.write(ended)
            continue
        code = {"+": "32", "-": "31", "@": "36"}.get(line[:1]) if color else None
        for part in ended.rstrip("\n").split("\n"):
            print(f"\x1b[{code}m{harmless(part)}\x1b[0m" if code else harmless(part))
