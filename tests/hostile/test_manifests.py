"""Names that would do harm, through every field, into YAML, whose shape is the same for all."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from parlay import compiler

from .test_hostile import HARM, NAMES, TINY, quoted, shape

pytestmark = pytest.mark.slow

JOB = {
    "kubernetes": TINY,
    "accelerate": """model from "llama3-8b"
cluster { node from "dgx-h100" }
parallel { zero = 3 }
train { seq = 4Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
""",
}
FIELDS = {
    "phase": "phase {0} {{ train {{ steps = 50 }} }}",
    "data": "data {{ path = {0} }}",
    "tokenizer": "data {{ tokenizer = {0} }}",
    "checkpoint": "checkpoint {{ path = {0}, every = 5 }}",
    "reason": "allow N201 {0}",
    "let": "let named = {0}\ncheckpoint {{ path = named, every = 5 }}",
    "comment": "budget {{ memory = 90% }} # {1}",
}
OPTIONS = {
    "kubernetes": (
        "image",
        "namespace",
        "runtime",
        "runtime_kind",
        "claim",
        "workspace",
        "deadline",
        "queue",
        "gpu",
        "resources",
        "env",
        "node_selector",
        "tolerations",
        "service_account",
        "pull_secret",
        "entry",
    ),
    "accelerate": (
        "main_process_ip",
        "main_training_function",
        "gpu_ids",
        "rdzv_backend",
        "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_state_dict_type",
        "fsdp_version",
        "distributed_type",
        "no_such_key",
    ),
}


def forms(value: Any) -> Any:
    """A document with every string taken out: what it says, whatever it names."""
    if isinstance(value, dict):
        return {name: forms(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [forms(inner) for inner in value]
    return "" if isinstance(value, str) else value


def manifests(path: Path, target: str) -> Iterator[tuple[str, list[Any]]]:
    """The text and the documents of every manifest that a file compiles to; none where refused."""
    try:
        files = compiler.emit(path, target)
    except compiler.Refused:
        return
    for name, text in files.items():
        assert re.fullmatch(r"[A-Za-z0-9_./-]+", name) and ".." not in Path(name).parts
        assert HARM.search(text) is None, ascii(text)
        yield text, list(yaml.safe_load_all(text))


def code_is_the_same(ours: Any, usual: Any) -> None:
    """The code in a ConfigMap does the same, and its scripts parse."""
    for name, text in (ours.get("data") or {}).items():
        if name.endswith(".py"):
            assert shape(text) == shape(usual["data"][name])
        elif name.endswith(".sh"):
            assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize("target", JOB)
@pytest.mark.parametrize("field", FIELDS)
def test_fields(tmp_path: Path, field: str, target: str) -> None:
    path, emitted = tmp_path / "run.par", 0

    def compiled(name: str) -> list[tuple[str, list[Any]]]:
        text = JOB[target] + FIELDS[field].format(quoted(name), name.replace("\n", " ")) + "\n"
        path.write_bytes(text.encode())
        return list(manifests(path, target))

    usual = compiled("/plain")
    for name in NAMES[::2]:
        for (text, ours), (plain, theirs) in zip(found := compiled(name), usual, strict=False):
            emitted += 1
            if field not in ("data", "checkpoint", "let", "phase"):
                assert len(text.splitlines()) == len(plain.splitlines())
            for one, other in zip(ours, theirs, strict=True):
                code_is_the_same(one, other)
                if field not in ("data", "checkpoint", "let"):  # a claim is there, or is not
                    assert forms(one) == forms(other)
        assert not found or len(found) == len(usual)
    assert emitted > 5 or (target == "kubernetes" and field == "tokenizer")
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize(("target", "option"), [(t, o) for t in JOB for o in OPTIONS[t]])
def test_options(tmp_path: Path, target: str, option: str) -> None:
    """An option is refused at its value, or stands in the manifest as it was given."""
    path = tmp_path / "run.par"
    for name in NAMES[::3]:
        for given, value in ((quoted(name), name), (f"[{quoted('A=' + name)}]", f"A={name}")):
            line = f'target "{target}" {{ options {{ {option} = {given} }} }}\n'
            path.write_bytes((JOB[target] + line).encode())
            for text, documents in manifests(path, target):
                assert any(value.removeprefix("A=") in each for each in strings(documents)), text


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
        yield from map(str, value)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


@pytest.mark.parametrize("target", JOB)
def test_file_names(tmp_path: Path, target: str) -> None:
    usual = None
    for name in ("plain", *NAMES):
        if "/" in name or name in (".", "..") or len(name.encode()) > 250:
            continue
        path = tmp_path / f"{name}.par"
        path.write_text(JOB[target])
        [(text, documents)] = manifests(path, target)
        usual = usual or (text, documents)
        for one, other in zip(documents, usual[1], strict=True):
            code_is_the_same(one, other)
            assert forms(one) == forms(other)
            called = one.get("metadata", {}).get("name", "a")
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", called) and len(called) <= 50


def test_the_shape_of_a_file_is_seen() -> None:
    assert forms(yaml.safe_load("a: b")) != forms(yaml.safe_load("a: [b]"))
    assert ast.dump(ast.parse("a")) != ast.dump(ast.parse("b"))
