"""The config.json of a model, read back: the importer finds the model that it was made of."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.torch import hugging_face
from parlay.compiler.spec.blocks import Experts, Model

from .hf_published import PUBLISHED

JOB = """
model from "{model}" {{ {more} }}
cluster {{ node from "laptop" }}
train {{ seq = 64, micro_batch = 1, global_batch = 8, steps = 1 }}
"""


def model_of(folder: Path, model: str, more: str = "") -> Model:
    (folder / "job.par").write_text(JOB.format(model=model, more=more))
    (phase,) = pipeline.check(folder / "job.par", []).phases
    assert phase.spec.model is not None
    return phase.spec.model


NAMED = {
    "llama3.1-405b": "llama",
    "mistral-7b": "mistral",
    "qwen2.5-7b": "qwen2",
    "qwen3-8b": "qwen3",
    "gemma2-9b": "gemma2",
    "gemma3-27b-text": "gemma3_text",
    "olmo2-7b": "olmo2",
    "gpt2-xl": "gpt2",
    "gpt-neox-20b": "gpt_neox",
    "mixtral-8x22b": "mixtral",
    "qwen2-57b-a14b": "qwen2_moe",
    "qwen3-30b-a3b": "qwen3_moe",
    "deepseek-v2-lite": "deepseek_v2",
    "deepseek-v3": "deepseek_v3",
    "glm-4.5": "glm4_moe",
    "gpt-oss-20b": "gpt_oss",
}


@pytest.mark.parametrize("preset", NAMED)
def test_read_back(preset: str, tmp_path: Path) -> None:
    model = model_of(tmp_path, preset)
    config = hugging_face.config_of(model)
    assert config["model_type"] == NAMED[preset]
    (tmp_path / "config.json").write_text(json.dumps(config))
    if model.experts is not None:  # nodes that a token may visit are the cluster's, not the model's
        model = replace(model, experts=replace(model.experts, node_limit=None))
    assert model_of(tmp_path, "config.json") == model


UNNAMED = {
    "llama3-8b": {
        "embedding_norm = on": "model.embedding_norm",
        "sinks = on": "model.sinks",
        "position = alibi": "model.position",
        "qk_norm = full": "model.qk_norm",
        "activation = relu": "model.activation",
        "bias = [qkv, mlp]": "model.bias",
        "window(size = 8, every = 2)": "model.window",
        "window(size = 8, every = 2, theta = 10), norm_placement = both, activation = geglu": (
            "model.window"
        ),
        "parallel_blocks = on": "model.parallel_blocks",
    },
    "mixtral-8x22b": {
        "experts { normalize = off }": "model.experts.normalize",
        "experts { top_k = 1 }": "model.experts.top_k",
        "experts { every = 2 }": "model.experts.every",
        "experts { scale = 2 }": "model.experts.groups",
    },
    "deepseek-v3": {
        "norm_eps = 1e-5": "model.norm_eps",
        "experts { top_k = 4 }": "model.experts.top_groups",
        "experts { shared = 0 }": "model.experts.shared",
        "experts { router_bias = off }": "model.experts.router_bias",
    },
    "deepseek-v2": {"": "model.experts.top_groups"},
    "gpt2-xl": {"kv_heads = 5": "model.kv_heads", "activation = swiglu": "model.activation"},
    "gemma3-12b-text": {
        "window(size = 8, every = 6)": "model.window",
        "qk_norm = none": "model.window",
        "bias = [qkv]": "model.bias",
    },
    "gpt-oss-20b": {
        "glu_offset = 0": "model.glu_offset",
        "bias = all": "model.bias",
        "experts { shared = 1 }": "model.experts",
        "softcap(logits = 5)": "model.softcap",
    },
    "bloom-176b": {"": "model.embedding_norm"},
}


def test_every_field_is_looked_at() -> None:
    """A field that is new to the model has to be in a config, or to have no family."""
    looked_at = {
        *("params", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"),
        *("context", "activation", "glu_clamp", "glu_offset", "norm", "norm_placement"),
        *("norm_bias", "norm_eps", "embedding_norm", "final_norm", "position", "rope"),
        *("rope_scaling", "tied_embeddings", "bias", "dropout", "qk_norm", "sinks", "window"),
        *("softcap", "parallel_blocks", "shared_norm", "mtp_layers", "init_std", "mla", "experts"),
    }
    of_experts = {
        *("count", "top_k", "ffn", "shared", "shared_ffn", "shared_gate", "dense_layers", "every"),
        *("router", "router_bias", "normalize", "scale", "groups", "top_groups", "aux_loss"),
        # of training alone, or of machines
        *("z_loss", "capacity", "imbalance", "node_limit"),
    }
    assert {one.name for one in fields(Model)} == looked_at
    assert {one.name for one in fields(Experts)} == of_experts


@pytest.mark.parametrize("preset", UNNAMED)
def test_unnamed(preset: str, tmp_path: Path) -> None:
    for more, path in UNNAMED[preset].items():
        reason = hugging_face.unnamed(model_of(tmp_path, preset, more))
        assert reason is not None and reason.path == path, more


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_published(name: str, tmp_path: Path) -> None:
    """A folder's own config says what the job does that it describes, with another dropout too."""
    pytest.importorskip("torch")
    from parlay.runtime.hf_folder import differences

    theirs = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(theirs))
    ours = hugging_face.config_of(model_of(tmp_path, "config.json", "dropout = 0"))
    assert differences(ours, theirs) == []
