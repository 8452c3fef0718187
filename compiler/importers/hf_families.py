"""One function for each family of `model_type`: a `config.json` to the fields of `model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from parlay.compiler.importers import hf_dense, hf_experts
from parlay.compiler.importers.hf_fields import Config, Values

FAMILIES: Final[Mapping[str, Callable[[Config], Values]]] = {
    "llama": hf_dense.llama,
    "mistral": hf_dense.windowed,
    "mixtral": hf_experts.mixtral,
    "qwen2": hf_dense.qwen2,
    "qwen3": hf_dense.qwen3,
    "qwen3_moe": hf_experts.qwen3_moe,
    "gemma": hf_dense.gemma,
    "gemma2": hf_dense.gemma2,
    "gemma3_text": hf_dense.gemma3,
    "deepseek_v2": hf_experts.deepseek_v2,
    "deepseek_v3": hf_experts.deepseek_v3,
    "glm4_moe": hf_experts.glm4_moe,
    "gpt2": hf_dense.gpt2,
    "gpt_neox": hf_dense.gpt_neox,
    "gpt_oss": hf_experts.gpt_oss,
    "olmo2": hf_dense.olmo2,
    "phi3": hf_dense.phi3,
    "qwen2_moe": hf_experts.qwen2_moe,
    "starcoder2": hf_dense.starcoder2,
}
