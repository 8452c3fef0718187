"""`from "config.json"`: parameter totals equal those of `transformers`' own modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.ledger import parameters

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"num_hidden_layers": 3, "vocab_size": 1000}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {**SMALL, "num_key_value_heads": 8}),
    "llama with biases": ("LlamaConfig", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    "llama, tied": ("LlamaConfig", {**SMALL, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", SMALL),
    "mixtral": ("MixtralConfig", {**SMALL, "num_local_experts": 4}),
    "qwen2": ("Qwen2Config", {**SMALL, "num_key_value_heads": 4}),
    "qwen3": ("Qwen3Config", {**SMALL, "num_key_value_heads": 4}),
    "qwen3 moe": ("Qwen3MoeConfig", {**SMALL, "num_experts": 8, "head_dim": 64}),
    "gemma": ("GemmaConfig", {**SMALL, "num_key_value_heads": 1}),
    "gemma2": ("Gemma2Config", {**SMALL, "num_hidden_layers": 4}),
    "gemma3": ("Gemma3TextConfig", {**SMALL, "num_hidden_layers": 6}),
    "deepseek v2": (
        "DeepseekV2Config",
        {**SMALL, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 2},
    ),
    "deepseek v3": (
        "DeepseekV3Config",
        {**SMALL, "first_k_dense_replace": 1, "n_routed_experts": 16},
    ),
    "gpt2": ("GPT2Config", {"n_layer": 3, "vocab_size": 1000}),
    "gpt neox": ("GPTNeoXConfig", SMALL),
    "phi3": ("Phi3Config", {**SMALL, "num_key_value_heads": 8, "pad_token_id": 0}),
    "olmo2": ("Olmo2Config", {**SMALL, "num_key_value_heads": 8}),
    "qwen2 moe": ("Qwen2MoeConfig", {**SMALL, "num_experts": 8}),
    "glm4 moe": (
        "Glm4MoeConfig",
        {**SMALL, "n_routed_experts": 8, "use_qk_norm": True, "head_dim": 64},
    ),
    "glm4 moe with biases": (
        "Glm4MoeConfig",
        {**SMALL, "n_routed_experts": 8, "attention_bias": True, "head_dim": 64},
    ),
    "gpt oss": ("GptOssConfig", {**SMALL, "num_hidden_layers": 4, "num_local_experts": 8}),
    "starcoder2": ("Starcoder2Config", {**SMALL, "num_key_value_heads": 2}),
    "starcoder2 without biases": ("Starcoder2Config", {**SMALL, "use_bias": False}),
}

PAR = """
model from "config.json"
cluster { node from "dgx-h100" }
"""


def loaded(folder: Path, config: object) -> pipeline.Job:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "job.par").write_text(PAR)
    return pipeline.load(folder / "job.par")


@pytest.mark.parametrize("name", CONFIGS)
def test_totals(name: str, tmp_path: Path) -> None:
    kind, options = CONFIGS[name]
    config = getattr(transformers, kind)(**options)
    job = loaded(tmp_path, json.loads(config.to_json_string(use_diff=False)))
    assert not job.diagnostics, [said.message for said in job.diagnostics]
    model = job.phases[0].spec.model
    assert model is not None
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(config)
    held = sum(weight.numel() for weight in theirs.parameters())
    # The bias that corrects the choice of experts is a buffer there, and a weight of checkpoints.
    held += sum(
        buffer.numel() for name, buffer in theirs.named_buffers() if "correction_bias" in name
    )
    assert parameters.total(model) == held


BROKEN: dict[str, tuple[object, str]] = {
    "no object": ([1, 2], "no JSON object"),
    "no type": ({}, "model_type None is not known"),
    "unknown type": ({"model_type": "mamba"}, "'mamba' is not known"),
    "a lack": ({"model_type": "llama"}, "lacks 'hidden_size'"),
    "a word for a number": ({"model_type": "llama", "hidden_size": "big"}, "is no whole number"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str, tmp_path: Path) -> None:
    config, words = BROKEN[name]
    job = loaded(tmp_path, config)
    assert [said.code for said in job.diagnostics] == ["T015"]
    assert words in job.diagnostics[0].notes[0]


def test_deep_and_outside(tmp_path: Path) -> None:
    job = loaded(tmp_path, {})
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert [said.code for said in pipeline.load(job.path).diagnostics] == ["T015"]
    (tmp_path / "config.json").unlink()
    assert [said.code for said in pipeline.load(job.path).diagnostics] == ["T015"]
    (tmp_path / "job.par").write_text(PAR.replace("config.json", "../../etc/config.json"))
    (told,) = pipeline.load(job.path).diagnostics
    assert "outside" in told.notes[0]
