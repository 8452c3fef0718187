"""The wheel in an environment that has its dependencies and no torch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "examples" / "tiny" / "tiny.par"
pytestmark = pytest.mark.slow


def ran(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left beside the sources."""
    source = tmp_path_factory.mktemp("source")
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-dir"
    ]
    for room in rooms.values():
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    built = ran(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", source / "dist", "."),
        cwd=source,
    )
    assert built.returncode == 0, built.stderr
    (path,) = (source / "dist").glob("*.whl")
    return path


def needed(name: str, found: dict[str, Distribution]) -> None:
    """The dependencies of an installed distribution, those of its extras left out."""
    for line in distribution(name).requires or ():
        requirement = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        if ";" in line and ("extra" in line or "platform" in line or "version" in line):
            continue
        if requirement.lower() not in found:
            try:
                found[requirement.lower()] = distribution(requirement)
            except PackageNotFoundError:
                continue
            needed(requirement, found)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `parlay` of a new environment: the wheel and copies of what it declares, no more."""
    home = tmp_path_factory.mktemp("installed")
    environment = home / ".venv"
    made = ran(sys.executable, "-m", "venv", "--without-pip", environment, cwd=home)
    assert made.returncode == 0, made.stderr
    python = environment / "bin" / "python"
    scheme = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    found: dict[str, Distribution] = {}
    needed("parlay", found)
    assert {"typer", "rich", "jinja2"} <= set(found)
    assert "torch" not in found
    for dependency in found.values():
        for file in dependency.files or ():
            if ".." not in file.parts:  # scripts
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), target)
    put = ran(
        *(sys.executable, "-m", "pip", "--quiet", "--python", python),
        *("install", "--no-deps", "--no-index", wheel),
        cwd=home,
    )
    assert put.returncode == 0, put.stderr
    return environment / "bin" / "parlay"


def test_the_wheel_holds_every_file(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("parlay/")}
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-dir"
    ]
    expected = {
        f"parlay/{path.relative_to(ROOT)}"
        for room in rooms.values()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == expected


def test_no_torch_is_there(installed: Path, tmp_path: Path) -> None:
    python = installed.with_name("python")
    assert ran(python, "-c", "import torch", cwd=tmp_path).returncode == 1
    assert ran(python, "-c", "import numpy", cwd=tmp_path).returncode == 1
    where = ran(python, "-c", "import parlay.dsl; print(parlay.dsl.__file__)", cwd=tmp_path)
    assert str(ROOT) not in where.stdout


def test_the_commands_that_need_no_torch(installed: Path, tmp_path: Path) -> None:
    shutil.copy(TINY, tmp_path / "tiny.par")
    for arguments, said in (
        (["check", "tiny.par"], ""),
        (["check", "tiny.par", "--target", "torch", "--json"], '"errors": 0'),
        (["layout", "tiny.par"], "8 ranks"),
        (["layout", "tiny.par", "--groups", "--json"], '"groups"'),
        (["explain", "L201"], "L201"),
        (["explain", "P010"], "P010"),
        (["explain", "--field", "parallel.dp", "tiny.par"], "parallel.dp = 2"),
        (["catalog", "model"], "llama3-70b"),
        (["compile", "tiny.par", "--target", "torch", "-o", "out"], "train.py"),
    ):
        ended = ran(installed, *arguments, cwd=tmp_path)
        assert ended.returncode == 0, (arguments, ended.stderr)
        assert said in ended.stdout, (arguments, ended.stdout)
    assert (tmp_path / "out" / "torch" / "train.py").is_file()


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_command_that_needs_torch_says_so(installed: Path, tmp_path: Path, command: str) -> None:
    ended = ran(installed, command, TINY, cwd=tmp_path)
    assert ended.returncode == 1
    assert "needs torch, 2.10 or later: pip install '.[torch]'" in ended.stderr
    assert "Traceback" not in ended.stderr
