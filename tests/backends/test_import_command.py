"""`parlay import`: models of Hugging Face, and what every format has in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline

LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "attention_bias": True,
    "tie_word_embeddings": True,
}


def test_a_model_of_hugging_face(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    out = tmp_path / "job.par"
    ended = parlay("import", "hf", tmp_path, "-o", out, "--gpus", "16")
    assert ended.status == 0, ended.err
    job = pipeline.check(out)
    assert [said.message for said in job.errors] == []
    [phase] = job.phases
    assert phase.spec.model is not None and phase.spec.cluster is not None
    assert (phase.spec.model.layers, phase.spec.model.bias) == (16, ("qkv", "out"))
    assert phase.spec.cluster.gpus == 16


def test_a_format_that_is_not_known(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    assert parlay("import", "nanotron", tmp_path).status == 2
