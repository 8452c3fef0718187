"""The runtime beside the code that calls it, so that a folder runs with torch and numpy alone."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGE: Final = "parlay.runtime"
FOLDER: Final = "parlay/runtime"
"""Where the copy stands in an emitted folder: Python finds it beside train.py before all else.
`parlay` itself is a namespace and has no file."""


def vendored(files: Mapping[str, str]) -> dict[str, str]:
    """The runtime's modules that `files` import, those that their data and their saves are
    converted by, and those that these import, by their paths.

    Empty where none is imported: arguments and configurations of other frameworks run as they are.
    """
    texts = dict(files)
    wanted = _imported(text for name, text in files.items() if name.endswith(".py"))
    wanted |= _commands(files) if wanted else set()
    found: dict[str, str] = {}
    while wanted:
        for name in wanted:
            found[name] = (source() / f"{name}.py").read_text(encoding="utf-8")
        wanted = _imported(found[name] for name in wanted) - set(found)
    if not found:
        return texts
    found["__init__"] = (source() / "__init__.py").read_text(encoding="utf-8")
    return {**texts, **{f"{FOLDER}/{name}.py": text for name, text in sorted(found.items())}}


COMMANDS: Final = {"lora": "merge", "hugging_face": "export"}
"""What is started on a run's saves, by the section of plan.json that they are for."""
PREPARES: Final = "prepare"
"""What is started before training, where text is to be tokens."""


def _commands(files: Mapping[str, str]) -> set[str]:
    sections = json.loads(files.get("plan.json", "{}"))
    found = {name for section, name in COMMANDS.items() if section in sections}
    return found | ({PREPARES} if "tokenizer" in sections.get("data", {}) else set())


def source() -> Path:
    """The folder of the installed runtime, found without importing it."""
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def differing(folder: Path) -> list[str]:
    """What of the copy in an emitted folder is not as the installed runtime has it, by name."""
    here = folder / FOLDER
    return [path.name for path in sorted(here.glob("*.py")) if not _same(path)]


def _same(path: Path) -> bool:
    installed = source() / path.name
    return installed.is_file() and installed.read_bytes() == path.read_bytes()


def _imported(texts: Iterator[str]) -> set[str]:
    """The modules of the runtime that any of `texts` imports."""
    return {name for text in texts for name in _names(ast.parse(text))}


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from _below(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _below(alias.name)


def _below(module: str) -> Iterator[str]:
    if module.startswith(f"{PACKAGE}."):
        yield module.removeprefix(f"{PACKAGE}.").partition(".")[0]
