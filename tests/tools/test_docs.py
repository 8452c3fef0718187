"""Pages that follow from the code, held against it; the extension, the hooks and the action."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from parlay.compiler.reference_docs.grammar import blocks, grammar
from parlay.compiler.reference_docs.language import reference
from parlay.compiler.reference_docs.pictures import pipeline_picture
from parlay.compiler.reference_docs.shown import refreshed
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import schemas
from parlay.compiler.spec.schema import fields_of
from parlay.dsl.tokens import KEYWORDS
from parlay.dsl.units import UNITS

ROOT = Path(__file__).resolve().parents[2]
VSCODE = ROOT / "editors" / "vscode"
STALE = "`make docs` writes it anew"


def test_the_language_reference() -> None:
    assert (ROOT / "docs" / "language.md").read_text() == reference(), STALE


def test_the_picture() -> None:
    text = (ROOT / "docs" / "pipeline.svg").read_text()
    assert text == pipeline_picture(ROOT / "examples"), STALE
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall("{*}path")) >= 2


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text()
    assert refreshed(page, tmp_path) == page, STALE


def test_every_link_within_the_reference_leads_somewhere() -> None:
    page = reference()
    targets = set(re.findall(r'<a id="([^"]+)">', page))
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) == targets


def test_tables_are_tables() -> None:
    """No cell breaks its row: unescaped bars are as many as in the head."""
    columns = 0
    for line in reference().splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert bars in (0, columns) or columns == 0, line
        columns = bars


# ── The extension ─────────────────────────────────────────────────────────────


def test_the_grammar_is_of_the_schema() -> None:
    written = (VSCODE / "syntaxes" / "par.tmLanguage.json").read_text()
    assert written == grammar(), STALE
    known = {part for path in schemas() for part in path.split(".")[:-1]}
    assert known | {field.name for field in fields_of(Spec)} <= set(blocks())


def matches(text: str, scope: str) -> list[str]:
    """What the patterns of a scope take of `text`, by Python's own expressions."""
    found = []
    for pattern in json.loads(grammar())["patterns"]:
        names = {"0": pattern.get("name", "")} | {
            number: each["name"] for number, each in pattern.get("captures", {}).items()
        }
        for number, name in names.items():
            if name.startswith(scope) and "match" in pattern:
                found += [m.group(int(number)) for m in re.finditer(pattern["match"], text)]
    return [each for each in found if each]


def test_the_grammar_takes_every_keyword_block_and_unit() -> None:
    words = matches(" ".join(sorted(KEYWORDS)), "keyword.control")
    constants = matches(" ".join(sorted(KEYWORDS)), "constant.language")
    assert sorted([*words, *constants]) == sorted(KEYWORDS)
    for block in blocks():
        assert matches(f"{block} {{", "entity.name.type") == [block]
    assert matches("model tiny {", "entity.name.type") == ["model"]
    for unit in UNITS:
        if unit:
            assert matches(f"x = 8{unit}, ", "keyword.other.unit") == [unit]
    assert matches("layers_8Ki", "constant.numeric") == []


def test_the_manifest_names_files_that_are_there() -> None:
    manifest = json.loads((VSCODE / "package.json").read_text())
    assert (VSCODE / manifest["main"]).is_file()
    given = manifest["contributes"]
    assert [language["extensions"] for language in given["languages"]] == [[".par"]]
    for path in (given["languages"][0]["configuration"], given["grammars"][0]["path"]):
        json.loads((VSCODE / path).read_text())
    source = (VSCODE / manifest["main"]).read_text()
    for name in given["configuration"]["properties"]:
        assert f'"{name.removeprefix("parlay.")}"' in source
    for command in given["commands"]:
        assert f'"{command["command"]}"' in source


# ── Hooks and the action ──────────────────────────────────────────────────────


def test_hooks_run_commands_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["entry"] for hook in hooks] == ["parlay check", "parlay fmt"]
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert "${{ inputs" not in step.get("run", ""), "an input is no code"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "good one.par").write_text('cluster { node from "dgx-h100" }\n')
    (tmp_path / "jobs" / "bad.par").write_text("parallel { tq = 8 }\n")
    return tmp_path


def act(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(ROOT / ".ci" / "action.sh")],
        cwd=folder,
        env={**os.environ, "PATH": path, **inputs},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_the_action_annotates(workspace: Path) -> None:
    ended = act(workspace, PARLAY_FILES="**/*.par", PARLAY_TARGETS="torch")
    assert ended.returncode == 1
    assert "::error file=" in ended.stdout and "bad.par" in ended.stdout
    ended = act(workspace, PARLAY_FILES="jobs/good*.par", PARLAY_FORMAT_CHECK="true")
    assert ended.returncode == 0, ended.stderr
    assert "::warning::" in act(workspace, PARLAY_FILES="none/*.par").stdout


def test_inputs_of_the_action_are_no_code(workspace: Path) -> None:
    ended = act(workspace, PARLAY_FILES="$(touch owned) `touch owned` ; touch owned")
    assert not (workspace / "owned").exists() and ended.returncode == 0
    assert act(workspace, PARLAY_FILES="**/*.par", PARLAY_TARGETS="$(touch owned)").returncode == 2
    assert not (workspace / "owned").exists()
