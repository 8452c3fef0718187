"""Which files a job may be made of: imports inside the project's folder, without rings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from parlay.compiler import catalog
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.parse import parse
from parlay.dsl.read import LARGEST, decode, read
from parlay.dsl.source import Source

MOST_FILES = 256
DASH: Final = Path("-")
"""What a command line says for stdin."""
STDIN: Final = Path("<stdin>")
"""The name of a job that came over stdin; what it imports counts from the current folder."""

Read = Callable[[Path, str], "tuple[Source | None, tuple[Diagnostic, ...]]"]
"""Reads the file at a path under the name that diagnostics print."""


def reader(texts: Mapping[Path, str]) -> Read:
    """Reads files, but for those of `texts`, by their resolved paths: texts not saved yet."""

    def read_one(path: Path, shown: str) -> tuple[Source | None, tuple[Diagnostic, ...]]:
        text = texts.get(Path(os.path.realpath(path))) if texts else None
        if text is None:
            return decode(shown, _stdin()) if path == STDIN else read(path, shown=shown)
        return decode(shown, text.encode("utf-8", "surrogatepass"))

    return read_one


_taken: tuple[object, bytes] | None = None
"""A stream that was read to its end, and what it had: a command may ask for its file again."""


def _stdin() -> bytes:
    """What comes over stdin, read once; never more than a file may have, and a byte."""
    global _taken
    if _taken is None or _taken[0] is not sys.stdin:
        stream = sys.stdin
        _taken = stream, stream.buffer.read(LARGEST + 1) if stream is not None else b""
    return _taken[1]


def project_root(path: Path) -> Path:
    """The folder that imports may not leave: the nearest one with `.git`, else the file's own."""
    folder = path.resolve().parent
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder


class Imports:
    """Reads imported files, each once on a path; tells rings and escapes with the chain.

    Calling it with an `import` statement gives the imported tree, or None with the reasons.
    """

    def __init__(self, path: Path, root: Path, read_one: Read) -> None:
        self.sources: dict[str, Source] = {}
        self._read = read_one
        self._root = root
        self._files = {str(path): path.resolve()}
        self._chains: dict[str, tuple[str, ...]] = {str(path): (str(path),)}

    def beside(self, importer: str, written: str) -> Path | None:
        """A path written in the file called `importer`; None where it leaves the project."""
        if "\0" in written or Path(written).is_absolute():
            return None
        try:
            target = (self._files[importer].parent / written).resolve()
        except (OSError, RuntimeError):
            return None
        return target if target.is_relative_to(self._root) else None

    def __call__(
        self, statement: syntax.Import
    ) -> tuple[syntax.File | None, tuple[Diagnostic, ...]]:
        importer = statement.span.file
        span = statement.path.span
        written = Path(statement.path.value)
        target = self.beside(importer, statement.path.value)
        chain = self._chains[importer]
        if target is None:
            return None, (
                error(
                    "P101",
                    f'import "{statement.path.value}" leaves the project',
                    span,
                    "outside the project's folder",
                    notes=[f"the project's folder is {self._root.name}/"],
                ),
            )
        shown = str(Path(importer).parent / written)
        ring = [name for name in chain if self._files[name] == target]
        if ring:
            arrows = " -> ".join([*chain[chain.index(ring[0]) :], ring[0]])
            return None, (
                error("P102", "imports go round", span, "closes the ring", notes=[arrows]),
            )
        if len(self._files) >= MOST_FILES:
            return None, (error("P103", f"more than {MOST_FILES} imports", span),)
        source, told = self._read(target, shown)
        if source is None:
            reason = told[0].message if told else "cannot be read"
            notes = [*(told[0].notes if told else ())]
            if len(chain) > 1:
                notes.append("import chain: " + " -> ".join(chain))
            return None, (error("P104", reason, span, "imported here", notes=notes),)
        self.sources[shown] = source
        self._files[shown] = target
        self._chains[shown] = (*chain, shown)
        tree, wrong = parse(source)
        if len(chain) > 0 and wrong:
            arrows = "import chain: " + " -> ".join(self._chains[shown])
            wrong = tuple(_with_note(diagnostic, arrows) for diagnostic in wrong)
        return tree, wrong


class FilePresets:
    """Presets of the catalog; from files inside the project's folder, models of `"config.json"`
    and calibrations."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports

    def __call__(self, kind: str, name: syntax.String) -> catalog.Preset | str | None:
        measured = kind == "calibration"
        if not measured and (kind != "model" or not name.value.endswith(".json")):
            return catalog.load(kind, name.value)
        path = self._imports.beside(name.span.file, name.value)
        if path is None:
            return "the file lies outside the project's folder"
        from parlay.compiler.importers import calibration, hf

        try:
            return calibration.read(path, name.value) if measured else hf.read(path)
        except hf.Unreadable as why:
            return str(why)


def _with_note(diagnostic: Diagnostic, words: str) -> Diagnostic:
    from dataclasses import replace

    return replace(diagnostic, notes=(*diagnostic.notes, words))
