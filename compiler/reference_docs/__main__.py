"""Writes the pages that follow from the code, or with `--check` says which of them differ."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from parlay.compiler.reference_docs.grammar import grammar
from parlay.compiler.reference_docs.language import reference
from parlay.compiler.reference_docs.pictures import pipeline_picture
from parlay.compiler.reference_docs.shown import refreshed

GRAMMAR = "editors/vscode/syntaxes/par.tmLanguage.json"
PICTURE = "pipeline.svg"
PAGES = ("tutorial.md",)
"""Pages by hand whose commands are run."""


def pages(docs: Path) -> Iterator[tuple[Path, str]]:
    """Every page that follows from the code, and what it should hold."""
    yield docs / "language.md", reference()
    yield docs.parent / GRAMMAR, grammar()
    yield docs / PICTURE, pipeline_picture(docs.parent / "examples")
    for name in PAGES:
        with TemporaryDirectory() as folder:
            page = (docs / name).read_text(encoding="utf-8")
            yield docs / name, refreshed(page, Path(folder))


def main() -> int:
    """0 where every page is as it should be, or has been written."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("docs", nargs="?", type=Path, default=Path("docs"))
    reader.add_argument("--check", action="store_true", help="change nothing")
    given = reader.parse_args()
    differ = 0
    for path, text in pages(given.docs):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        differ += 1
        print(f"{path} {'differs: make docs writes it' if given.check else 'written'}")
        if not given.check:
            path.write_text(text, encoding="utf-8")
    return 1 if differ and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
