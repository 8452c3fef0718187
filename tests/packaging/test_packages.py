"""What is installed: every package and every file, and what each room imports."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS: dict[str, Any] = SETTINGS["tool"]["setuptools"]
ROOMS: dict[str, str] = SETUPTOOLS["package-dir"]


def package_of(folder: Path) -> str:
    return "parlay." + ".".join(folder.relative_to(ROOT).parts)


def folders() -> list[Path]:
    return sorted(
        init.parent for room in ROOMS.values() for init in (ROOT / room).rglob("__init__.py")
    )


# ── The wheel ─────────────────────────────────────────────────────────────────


def test_every_folder_is_a_package() -> None:
    """A package missing from the list works in an editable install and is absent from the wheel."""
    assert sorted(SETUPTOOLS["packages"]) == [package_of(folder) for folder in folders()]
    assert sorted(set(SETUPTOOLS["packages"])) == sorted(SETUPTOOLS["packages"])


def test_every_folder_with_python_has_an_init() -> None:
    for room in ROOMS.values():
        for path in (ROOT / room).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), path


def test_every_other_file_is_package_data() -> None:
    patterns: dict[str, list[str]] = SETUPTOOLS["package-data"]
    packages = set(SETUPTOOLS["packages"])
    left_out = []
    for room in ROOMS.values():
        for path in sorted((ROOT / room).rglob("*")):
            if path.is_dir() or path.suffix == ".py" or "__pycache__" in path.parts:
                continue
            holder = next(folder for folder in path.parents if package_of(folder) in packages)
            name = path.relative_to(holder)
            # setuptools' `*` stops at a slash.
            if not any(
                len(Path(pattern).parts) == len(name.parts) and fnmatch.fnmatch(str(name), pattern)
                for pattern in patterns.get(package_of(holder), [])
            ):
                left_out.append(str(path.relative_to(ROOT)))
    assert left_out == []


def test_every_pattern_finds_a_file() -> None:
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for pattern in patterns:
            assert list(folder.glob(pattern)), (package, pattern)


def test_the_rooms_the_linter_and_the_links_agree() -> None:
    rooms = sorted(ROOMS)
    assert sorted(SETTINGS["tool"]["importlinter"]["root_packages"]) == rooms
    links = ROOT / ".links" / "parlay"
    assert sorted(f"parlay.{link.name}" for link in links.iterdir()) == rooms
    for link in links.iterdir():
        assert link.resolve() == ROOT / link.name


# ── Imports ───────────────────────────────────────────────────────────────────

BLOCK = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocked())
for name in {modules!r}:
    importlib.import_module(name)
"""


def modules(*rooms: str) -> list[str]:
    found = []
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = package_of(path.with_suffix(""))
            found.append(name.removesuffix(".__init__"))
    return [name for name in found if not name.endswith("__main__")]


def imported_without(blocked: set[str], names: list[str]) -> None:
    code = BLOCK.format(blocked=blocked, modules=names)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr


def test_language_and_compiler_import_neither_torch_nor_numpy() -> None:
    imported_without({"torch", "numpy", "transformers"}, modules("dsl", "compiler"))


def test_the_language_needs_the_standard_library_alone() -> None:
    blocked = {"typer", "rich", "jinja2", "lark", "pydantic", "torch", "numpy"}
    imported_without(blocked, modules("dsl"))


def test_grid_and_timelines_are_pure() -> None:
    imported_without({"torch", "numpy"}, ["parlay.runtime.axes", "parlay.runtime.timeline_split"])


@pytest.mark.slow
def test_the_runtime_imports_none_of_the_compilers_packages() -> None:
    pytest.importorskip("torch")
    blocked = {"typer", "rich", "jinja2", "lark", "pydantic"}
    imported_without(
        blocked, ["parlay.runtime.plan", "parlay.runtime.verify", "parlay.runtime.local"]
    )
