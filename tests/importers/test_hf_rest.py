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
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0}},
            [],
        ),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, []),
        (
            {"rope_scaling": {"type": "proportional", "factor": 2.0}},
            ["rope_scaling.type = proportional", "rope_scaling.factor = 2.0"],
        ),
        (
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4, "x": 1}},
            ["rope_parameters.x = 1"],
        ),
        (
            {
                "model_type": "gemma3_text",
                "sliding_window": 8,
                "rope_local_base_freq": 10000,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            [],
        ),
        (
            {
                "model_type": "gemma3_text",
                "sliding_window": 8,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "x": 3},
                },
            },
            ["rope_parameters.sliding_attention.x = 3"],
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


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ({"type": "linear", "factor": 4.0}, "rope(theta = 10000, scaling = 4)"),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0},
            "rope_scaling = llama3(factor = 8, original = 512, low_freq = 2)",
        ),
        (
            {"type": "yarn", "factor": 4, "truncate": False, "original_max_position_embeddings": 9},
            "rope_scaling = yarn(factor = 4, original = 9, truncate = off)",
        ),
        ({"type": "dynamic", "factor": 2.0}, "rope_scaling = dynamic(factor = 2)"),
    ],
)
def test_stretched_positions(tmp_path: Path, asked: dict[str, Any], written: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "rope_scaling": asked}))
    assert written in hf_job.read(path).text


@pytest.mark.parametrize("factor", ["4", 0.5, None])
def test_a_factor_that_stretches_nothing(tmp_path: Path, factor: object) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "rope_scaling": {"type": "linear", "factor": factor}}))
    with pytest.raises(hf.Unreadable):
        hf.read(path)


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
