"""What of a `config.json` no field of the language says, and what in it is no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.importers import hf, hf_job

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 99,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "torch_dtype": "bfloat16",
    "mlp_bias": False,
    "rope_scaling": None,
}


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, []),
        ({"sliding_window": None, "use_sliding_window": False, "max_window_layers": 2}, []),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, []),
        ({"layer_types": ["full_attention"] * 4}, []),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            ["rope_scaling = {'rope_type': 'llama3', 'factor': 8.0}"],
        ),
        (
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4}},
            ["rope_parameters.rope_type = yarn", "rope_parameters.factor = 4"],
        ),
        ({"layer_types": ["linear_attention"] * 4}, [f"layer_types = {['linear_attention'] * 4}"]),
        ({"logits_scaling": 16.0}, ["logits_scaling = 16.0"]),
    ],
)
def test_what_no_field_says_is_told(
    tmp_path: Path, changed: dict[str, Any], lost: list[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **changed}))
    assert list(hf_job.read(path).lost) == lost


def test_windows_spelled_out_by_layer(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    kinds = ["sliding_attention", "full_attention"] * 2
    window = {"model_type": "gemma2", "sliding_window": 8, "layer_types": kinds}
    path.write_text(json.dumps({**LLAMA, **window}))
    assert hf_job.read(path).lost == ()
    path.write_text(json.dumps({**LLAMA, **window, "layer_types": kinds[::-1]}))
    assert hf_job.read(path).lost == (f"layer_types = {kinds[::-1]}",)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", '"1"', "true"])
def test_what_is_no_number(tmp_path: Path, value: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA).replace("{", f'{{"rms_norm_eps": {value}, ', 1))
    with pytest.raises(hf.Unreadable, match="is no number"):
        hf.read(path)
