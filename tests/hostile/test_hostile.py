"""Names that would do harm, through every field that takes one, into everything that is printed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay import compiler
from parlay.compiler import pipeline
from parlay.compiler.reference_docs.language import _row
from parlay.compiler.server.hover import code
from parlay.dsl.diagnostics.github import to_github
from parlay.dsl.diagnostics.sarif import to_sarif
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.diagnostics.to_json import to_json

pytestmark = pytest.mark.slow

NAMES = (
    "$(touch owned)",
    "`touch owned`",
    '"; import os; os.system("touch owned"); "',
    '""" + __import__("os") + """',
    "'; touch owned; '",
    "{{ 7*7 }}",
    "{% include 'x' %}{# y",
    "one\ntwo",
    "one\\ntwo\\",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\x1b[2J\x1b]0;owned\x07",
    "a\rb",
    "..",
    "../..",
    "../../etc/passwd",
    "/etc/passwd",
    "~root",
    "-rf",
    "--help",
    "[bold red]x[/]",
    "[/]",
    "::error::x%0A",
    "</script><b>",
    "| a | b |",
    "````",
    "%s%n%x",
    "$HOME ${HOME}",
    "a" * 300,
    "#!/bin/sh",
    "nul",
    "=1+1",
    "\u2028x",
    "\ud7ff\U0001f600é",
)
HARM = re.compile("[\x00-\x09\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")

TINY = """model tiny {
  layers = 4, hidden = 128, heads = 8, kv_heads = 4, ffn = 344, vocab = 258
  rope(theta = 10000)
}
cluster { node from "laptop" }
parallel { tp = 2, pp = 2, dp = auto, order = [tp, dp, pp] }
train {
  seq = 128, micro_batch = 4, global_batch = 16, precision = fp32, steps = 100
  optimizer = adamw(lr = 3e-3, betas = [0.9, 0.95], weight_decay = 0.1)
  lr_schedule = cosine(warmup = 10, min_lr = 3e-4)
}
"""
FIELDS = {
    "phase": "phase {0} {{ train {{ steps = 50 }} }}",
    "twice": "phase {0} {{ train {{ steps = 50 }} }}\nphase {0} {{ train {{ steps = 60 }} }}",
    "data": "data {{ path = {0}, tokenizer = {0} }}",
    "checkpoint": "checkpoint {{ path = {0} }}",
    "reason": "allow N201 {0}",
    "target": "target {0} {{ version = {0}, options {{ x = {0} }} }}",
    "preset": 'phase "p" {{ model from {0} }}',
    "gpu": 'phase "p" {{ cluster {{ node {{ gpu from {0} }} }} }}',
    "import": "import {0}",
    "let": "let named = {0}\ncheckpoint {{ path = named }}",
    "misplaced": "parallel {{ cp = {0} }}",
    "label": "budget {0} {{ memory = 90% }}",
    "comment": "budget {{ memory = 90% }} # {1}",
    "bare": "{1}",
}


def quoted(name: str) -> str:
    """A string of the language with that value, hidden characters as they are."""
    plain = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


LAYOUTS = {"torch": "tp = 2, pp = 2", "deepspeed": "pp = 2"}
"""The degrees of a target that emits code."""


def tiny(target: str) -> str:
    return TINY.replace(LAYOUTS["torch"], LAYOUTS[target])


def written(folder: Path, field: str, name: str, target: str = "torch") -> Path:
    path = folder / "run.par"
    text = tiny(target) + FIELDS[field].format(quoted(name), name) + "\n"
    path.write_bytes(text.encode())
    return path


def unharmed(folder: Path, *texts: str) -> None:
    for text in texts:
        assert HARM.search(text) is None, ascii(text)
    assert not list(folder.rglob("owned"))


@pytest.mark.parametrize("field", FIELDS)
def test_every_output_of_a_check(tmp_path: Path, field: str) -> None:
    for name in NAMES:
        job = pipeline.check(written(tmp_path, field, name))
        told, sources = job.diagnostics, job.sources
        unharmed(tmp_path, render(told, sources, color=False, width=100, summary=True))
        document = to_json([(str(job.path), told)], sources)
        entries = document["files"][0]["diagnostics"]
        assert json.loads(json.dumps(document)) == document
        assert len(to_sarif(told, sources)["runs"][0]["results"]) == len(entries)
        lines = to_github(told, sources).splitlines()
        assert len(lines) == len(entries), "a line of its own is a command to GitHub"
        for line in lines:
            assert re.match(r"::(error|warning|notice) ", line)
            unharmed(tmp_path, line)


@pytest.mark.slow
@pytest.mark.parametrize("field", ["phase", "data", "let"])
def test_the_other_commands(
    parlay: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES[::3]:
        path = written(tmp_path, field, name)
        for arguments in (
            ("layout", path),
            ("ledger", path),
            ("explain", "--field", "checkpoint.path", path),
            ("explain", "--field", "train.steps", path),
            ("fmt", "--check", path),
            ("fmt", "--diff", path),
        ):
            ended = parlay(*arguments)
            assert ended.status in (0, 1), ended.err
            if arguments[1] != "--diff":  # a patch has to hold what the file holds
                unharmed(tmp_path, ended.out, ended.err)
        json.loads(parlay("layout", "--json", path).out or "{}")


def test_phases_of_odd_names_are_told_as_they_are(tmp_path: Path) -> None:
    for name in ("[bold red]x[/]", "{{ 7*7 }}", "$(touch owned)", "../.."):
        document = compiler.layout(written(tmp_path, "phase", name))
        assert [phase["name"] for phase in document["phases"]] == ["main", name]


def test_markup_is_printed_not_obeyed(
    parlay: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    path = written(tmp_path, "phase", "[bold red]x[/]")
    for command in ("layout", "ledger"):
        assert "[bold red]x[/]" in parlay(command, path).out


# ── Files of odd names ────────────────────────────────────────────────────────


@pytest.mark.slow
def test_file_names(parlay: Callable[..., Any], tmp_path: Path) -> None:
    for name in NAMES:
        if "/" in name or name in ("..",) or len(name.encode()) > 250:
            continue
        path = tmp_path / f"{name}.par"
        path.write_text(TINY + "parallel { tq = 2 }\n")
        for arguments in (("check", path), ("layout", path), ("ledger", path), ("fmt", path)):
            ended = parlay(*arguments)
            assert ended.status in (0, 1), ended.err
            unharmed(tmp_path, ended.out, ended.err)
        lines = parlay("check", "--format", "github", path).out.splitlines()
        assert all(line.startswith("::") for line in lines)
        json.loads(parlay("check", "--format", "sarif", path).out)


@pytest.mark.slow
def test_init_takes_any_name(
    parlay: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        if name.startswith("-") or "/" in name:
            continue
        ended = parlay("init", name)
        assert ended.status in (0, 1, 2)
        unharmed(tmp_path, ended.out, ended.err)


# ── What is emitted ───────────────────────────────────────────────────────────


def shape(text: str) -> str:
    """A Python file's tree with every constant taken out: what it does, whatever it names."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = None
    return ast.dump(tree)


@pytest.mark.slow
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("field", ["phase", "data", "checkpoint", "reason", "let"])
def test_emitted_code_does_the_same_whatever_the_names(
    tmp_path: Path, field: str, target: str
) -> None:
    try:
        plain = compiler.emit(written(tmp_path, field, "plain", target), target)
    except compiler.Refused:
        pytest.skip("the back end does not express it yet")
    usual = {Path(path).name: text for path, text in plain.items()}
    emitted = 0
    for name in NAMES:
        try:
            files = compiler.emit(written(tmp_path, field, name, target), target)
        except compiler.Refused:
            continue
        emitted += 1
        for path, text in files.items():
            assert not Path(path).is_absolute() and ".." not in Path(path).parts
            assert re.fullmatch(r"[A-Za-z0-9_./-]+", path), path
            own = Path(path).name
            if own.endswith(".py"):
                assert shape(text) == shape(usual[own])
            elif own.endswith((".sh", ".sbatch")):
                assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
                assert len(text.splitlines()) == len(usual[own].splitlines())
            elif own.endswith(".json"):
                json.loads(text)
        assert len(files) == len(plain)
    assert emitted > 5


@pytest.mark.slow
@pytest.mark.parametrize("target", LAYOUTS)
def test_a_hostile_file_name_in_what_is_emitted(tmp_path: Path, target: str) -> None:
    usual = None
    for name in ("plain", *NAMES):
        if "/" in name or name in (".", "..") or len(name.encode()) > 250:
            continue
        path = tmp_path / f"{name}.par"
        path.write_text(tiny(target))
        files = compiler.emit(path, target)
        usual = usual or files
        for own, text in files.items():
            if own.endswith(".py"):
                assert shape(text) == shape(usual[own])
            elif own.endswith((".sh", ".sbatch")):
                assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
                assert len(text.splitlines()) == len(usual[own].splitlines())
            elif own.endswith(".json"):
                json.loads(text)


@pytest.mark.parametrize("name", ["phase", "twice"])
def test_compile_stays_in_its_folder(
    parlay: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for each in ("../..", "..", "/etc/passwd", "$(touch owned)", "one\ntwo"):
        path = written(tmp_path, name, each)
        ended = parlay("compile", path, "--target", "torch", "-o", "out", "--force")
        unharmed(tmp_path, ended.out, ended.err)
        assert {child.name for child in tmp_path.iterdir()} <= {"run.par", "out"}


# ── Markdown ──────────────────────────────────────────────────────────────────


def test_nothing_ends_its_cell_or_its_code() -> None:
    for name in NAMES:
        assert len(re.findall(r"(?<!\\)\|", _row([name, "x"]))) == 3
        said = code(name)
        ticks = re.match("`+", said)
        assert ticks is not None and said.endswith(ticks.group())
        assert ticks.group() not in said[len(ticks.group()) : -len(ticks.group())]
        assert "\n" not in said and HARM.search(said) is None
