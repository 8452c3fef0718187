"""Whatever one field is given, `check` answers with diagnostics: no rule trips over a gap."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.spec.resolve import schemas

pytestmark = pytest.mark.slow

WRONG = {"mixtral-8x7b": ('"x"',), "deepseek-v3": ("auto",), "gpt2-xl": ("-1",)}
NODE = 'node from "dgx-h100"'
PLAIN = {
    "model": {},
    "cluster": {"nodes": "8"},
    "parallel": {"tp": "2", "dp": "auto"},
    "train": {"seq": "4Ki", "micro_batch": "1", "global_batch": "1024", "steps": "10"},
}


def text(path: str, value: str, model: str) -> str:
    """A job in which the field at `path` is `value`."""
    block, *inner, name = path.split(".")
    blocks = {key: dict(fields) for key, fields in PLAIN.items()}
    extra = ""
    if inner:
        extra = f"{name} = {value}"
        for nested in reversed(inner[1:] if inner[:1] == ["node"] else inner):
            extra = f"{nested} {{ {extra} }}"
    else:
        blocks.setdefault(block, {})[name] = value
    written = []
    for key, fields in blocks.items():
        body = " ".join(f"{field} = {given}" for field, given in fields.items())
        if key == "cluster":
            body += f" {NODE}" + (f" {{ {extra} }}" if inner[:1] == ["node"] else "")
        if key == block and inner and inner[0] != "node":
            body += f" {extra}"
        head = f'model from "{model}"' if key == "model" else key
        written.append(f"{head} {{ {body} }}")
    if block not in blocks:
        written.append(f"{block} {{ {extra} }}")
    return "\n".join(written)


@pytest.mark.parametrize("model", WRONG)
def test_any_field_may_be_wrong(model: str, tmp_path: Path) -> None:
    faults = []
    for path in schemas():
        for value in WRONG[model]:
            file = tmp_path / "job.par"
            file.write_text(text(path, value, model))
            try:
                job = pipeline.check(file, ["torch"])
            except Exception as fault:
                where = traceback.extract_tb(fault.__traceback__)[-1]
                faults.append(f"{path} = {value}: {fault!r} at {where.filename}:{where.lineno}")
            else:
                assert all(said.message for said in job.diagnostics)
    assert faults == []
