"""`parlay schema` and what a shell completes, held against the one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from parlay.compiler import catalog
from parlay.compiler.commands.schema import schema
from parlay.compiler.spec.resolve import schemas

jsonschema = pytest.importorskip("jsonschema")


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def test_it_is_a_schema(parlay: Callable[..., Any]) -> None:
    ended = parlay("schema")
    document = json.loads(ended.out)
    assert document["$schema"].endswith("2020-12/schema")
    jsonschema.Draft202012Validator.check_schema(document)


def test_every_field_is_in_it() -> None:
    document = schema()

    def at(path: str) -> Any:
        found: Any = document
        for name in path.split("."):
            if "$ref" in found:
                found = document["$defs"][found["$ref"].rpartition("/")[2]]
            found = found["properties"][name]
        return found

    for path, field in schemas().items():
        assert at(path)["description"] == field.doc


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_every_preset_is_valid(kind: str) -> None:
    document = schema()
    validator = jsonschema.Draft202012Validator(
        {**document["$defs"][kind], "$defs": document["$defs"]}
    )
    for name in catalog.names(kind):
        preset = catalog.load(kind, name)
        assert preset is not None
        assert list(validator.iter_errors(plain(preset.values[kind]))) == [], name


@pytest.mark.parametrize(
    "document",
    [
        {"modle": {}},
        {"parallel": {"tq": 8}},
        {"parallel": {"tp": 0}},
        {"parallel": {"tp": [8]}},
        {"parallel": {"sequence_parallel": "maybe"}},
        {"parallel": {"schedule": "zigzag"}},
        {"model": {"activation": "tanh"}},
        {"cluster": {"node": {"gpu": {"memory": -1}}}},
    ],
)
def test_what_is_wrong_is_invalid(document: dict[str, Any]) -> None:
    assert not jsonschema.Draft202012Validator(schema()).is_valid(document)


def test_what_is_right_is_valid() -> None:
    document = {
        "model": {"from": "llama3-8b", "layers": 8},
        "parallel": {"tp": "auto <= 8", "schedule": "interleaved(chunks = 2)", "order": ["tp"]},
        "train": {"seq": "8Ki"},
        "target": {"megatron": {"version": "0.19", "options": {"any": 1}}},
    }
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)


# ── The shell ─────────────────────────────────────────────────────────────────


def completed(line: str) -> list[str]:
    words = line.split(" ")
    code = "import sys; sys.argv = ['parlay']; from parlay.compiler.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "_PARLAY_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("parlay che", "check"),
        ("parlay init --model llama3-7", "llama3-70b"),
        ("parlay init --cluster dgx-h1", "dgx-h100"),
        ("parlay catalog mo", "model"),
        ("parlay catalog node dgx-h2", "dgx-h200"),
        ("parlay explain L20", "L203"),
        ("parlay check --target t", "torch"),
        ("parlay explain --field parallel.t", "parallel.tp"),
    ],
)
@pytest.mark.slow
def test_completion_by_the_shell(line: str, offered: str) -> None:
    assert offered in completed(line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_of_the_shells(process: Callable[..., Any], shell: str) -> None:
    ended = process(
        "--show-completion",
        shell,
        SHELL=f"/bin/{shell}",
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert ended.returncode == 0 and "_PARLAY_COMPLETE" in ended.stdout
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=ended.stdout, text=True)
        assert checked.returncode == 0
