"""Every dense shape computes what one process does, cut over tp and pp, and sends what was said."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import par, prove
from .shapes import model

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

OFF = "sequence_parallel = off"

LAYOUTS = {
    "gpt2, one process": ("gpt2", "", 1),
    "gpt2, tied on one stage, cut": ("gpt2", "tp = 2", 2),
    "gpt2, whole sequences": ("gpt2", f"tp = 2, pp = 2, {OFF}", 4),
    "gpt2, tied over stages": ("gpt2", "tp = 2, pp = 2, dp = 2", 8),
    "gpt2, tied over four stages": ("gpt2", "pp = 4", 4),
    "gpt2, uneven stages": ("gpt2", "pp = 3, stages = [1, 1, 2]", 3),
    "gpt2, the vocabulary padded": ("gpt2", "tp = 2, vocab_multiple = 128", 2),
    "neox": ("neox", "tp = 2, pp = 2", 4),
    "neox, one process": ("neox", "", 1),
    "falcon, one key/value head for all": ("falcon", "tp = 4", 4),
    "falcon, dp": ("falcon", f"tp = 2, dp = 2, {OFF}", 4),
    "mpt": ("mpt", "tp = 2, pp = 2", 4),
    "qwen2.5, key/value heads on two ranks each": ("qwen2.5", "tp = 4, pp = 2", 8),
    "qwen2.5, whole sequences": ("qwen2.5", f"tp = 4, {OFF}", 4),
    "qwen3, one process": ("qwen3", "", 1),
    "qwen3, norms in heads": ("qwen3", "tp = 2, pp = 2", 4),
    "qwen3, norms in heads, whole sequences": ("qwen3", f"tp = 4, pp = 2, {OFF}", 8),
    "gemma": ("gemma", "tp = 2, pp = 2", 4),
    "gemma, one process": ("gemma", "", 1),
    "gemma3, two bases": ("gemma3", "tp = 2, pp = 2", 4),
    "gemma3, two bases, sequences cut": ("gemma3", "cp = 2", 2),
    "olmo3, two bases in windows that hide nothing": ("olmo3", "", 1),
    "phi3": ("phi3", "tp = 2", 2),
    "olmo": ("olmo", f"tp = 2, {OFF}", 2),
    "olmo2, one process": ("olmo2", "", 1),
    "olmo2, a norm over ranks": ("olmo2", "tp = 2, pp = 2", 4),
    "olmo2, key/value heads on two ranks each": ("olmo2", f"tp = 4, {OFF}", 4),
    "nemotron": ("nemotron", "tp = 2, dp = 2", 4),
    "opt": ("opt", "tp = 2, pp = 2", 4),
    "odd, one process": ("odd", "", 1),
    "odd": ("odd", f"tp = 2, pp = 2, {OFF}", 4),
    "mistral, a window that hides": ("mistral", f"tp = 2, {OFF}", 2),
    "gpt-oss, sinks of heads on two ranks each": ("gpt-oss", "tp = 4", 4),
    "bloom, slopes of own heads": ("bloom", "tp = 2, pp = 2", 4),
}


def test_attention_written_out(tmp_path: Path) -> None:
    """Of which nothing is kept."""
    block = model("gemma").replace(" }", ", position = alibi, sinks = on }")
    train = "attention = math, recompute = selective(core_attention)"
    result = prove(par(model=block, train=train), tmp_path)
    assert result["passed"], (result["failures"], result["detail"])


@pytest.mark.parametrize("name", LAYOUTS)
def test_shape(name: str, tmp_path: Path) -> None:
    shape, parallel, gpus = LAYOUTS[name]
    result = prove(par(parallel, gpus=gpus, model=model(shape)), tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    for part in ("loss", "gradients", "norm", "initial", "weights"):
        assert result[part]["compared"] > 0 and result[part]["max_relative_error"] <= 1e-10
    assert result["collectives"]["match"]
    groups = {row["group"] for row in result["collectives"]["rows"]}
    assert ("embedding" in groups) == ("pp" in parallel and "tied" in model(shape))
    # With one head for all, the ranks of `kv` are those of tp.
    assert ("kv" in groups) == (
        shape in ("qwen2.5", "qwen3", "olmo2", "gpt-oss") and "tp = 4" in parallel
    )
