"""What the torch target refuses where sequences are cut, and at which field."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline

TEXT = """
model {{ layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1000, dropout = 0, {model} }}
cluster {{ node from "laptop" {{ gpus = 4 }} }}
parallel {{ cp = 4, cp_method = {method} }}
train {{ seq = 64, micro_batch = 1, global_batch = 8, steps = 3, precision = fp32, {train} }}
"""
RINGS = ("ring", "ulysses_ring(inner = 2, outer = 2)")
ALL = (*RINGS, "allgather", "ulysses")

CASES = {
    "a window": ("window(size = 16)", "", "", ()),
    "a cap on scores": ("softcap(attention = 30)", "", "", ()),
    "slopes": ("position = alibi", "", "", ()),
    "sinks": ("sinks = on", "", "", ()),
    "written out": ("", "attention = math", "math", (*RINGS, "allgather")),
}


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, method: str, tmp_path: Path) -> None:
    model, train, field, refused = CASES[name]
    path = tmp_path / "job.par"
    path.write_text(TEXT.format(model=model, train=train, method=method))
    told = [one for one in pipeline.check(path, ["torch"]).diagnostics if one.code == "B301"]
    assert len(told) == (method in refused)
    for one in told:
        assert one.span is not None
        assert path.read_text()[one.span.start : one.span.end] == field
        assert f"under `cp_method = {method.partition('(')[0]}`" in one.message
        assert one.help
