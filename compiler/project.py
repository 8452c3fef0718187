"""Which files a job may be made of: imports inside the project's folder, without rings."""

from __future__ import annotations

from pathlib import Path

from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.parse import parse
from parlay.dsl.read import read
from parlay.dsl.source import Source

MOST_FILES = 256


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

    def __init__(self, path: Path, root: Path) -> None:
        self.sources: dict[str, Source] = {}
        self._root = root
        self._files = {str(path): path.resolve()}
        self._chains: dict[str, tuple[str, ...]] = {str(path): (str(path),)}

    def __call__(
        self, statement: syntax.Import
    ) -> tuple[syntax.File | None, tuple[Diagnostic, ...]]:
        importer = statement.span.file
        span = statement.path.span
        written = Path(statement.path.value)
        target = (self._files[importer].parent / written).resolve()
        chain = self._chains[importer]
        if written.is_absolute() or not target.is_relative_to(self._root):
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
        source, told = read(target, shown=shown)
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


def _with_note(diagnostic: Diagnostic, words: str) -> Diagnostic:
    from dataclasses import replace

    return replace(diagnostic, notes=(*diagnostic.notes, words))
