"""Shapes of models as text, each after one that people train."""

from __future__ import annotations

SIZES = "layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1001"

SHAPES = {
    "gpt2": "activation = gelu_tanh, norm = layernorm, position = learned, context = 64, "
    "bias = all, tied_embeddings = on",
    "neox": "activation = gelu_tanh, norm = layernorm, bias = all, parallel_blocks = on, "
    "rope(theta = 10000, partial = 0.25)",
    "falcon": "kv_heads = 1, activation = gelu, norm = layernorm, parallel_blocks = on, "
    "shared_norm = on, tied_embeddings = on",
    "mpt": "activation = gelu, norm = layernorm, norm_bias = off, position = none, "
    "embedding_norm = on, tied_embeddings = on",
    "qwen2.5": "kv_heads = 2, bias = [qkv]",
    "qwen3": "kv_heads = 2, qk_norm = per_head, tied_embeddings = on, "
    "rope_scaling = llama3(factor = 8)",
    "gemma": "kv_heads = 4, head_dim = 16, activation = geglu_tanh, norm_placement = both, "
    "softcap(attention = 50, logits = 30), window(size = 16, every = 2), tied_embeddings = on",
    "gemma3": "kv_heads = 4, head_dim = 16, activation = geglu_tanh, norm_placement = both, "
    "qk_norm = per_head, tied_embeddings = on, rope(theta = 1000000, scaling = 8), "
    "window(size = 16, every = 2, theta = 100)",
    "olmo3": "norm_placement = after, qk_norm = full, window(size = 64, every = 4, theta = 100), "
    "rope_scaling = yarn(factor = 8, original = 4096)",
    "phi3": "kv_heads = 4, rope(theta = 10000, partial = 0.5), rope_scaling = "
    "longrope(factor = 8, original = 32, short = [1, 1.5], long = [2, 6])",
    "olmo": "norm_placement = after, qk_norm = per_head, norm = layernorm",
    "olmo2": "kv_heads = 2, norm_placement = after, qk_norm = full",
    "nemotron": "kv_heads = 4, activation = relu2, norm = layernorm, context = 32, "
    "rope(theta = 10000, partial = 0.5), rope_scaling = dynamic(factor = 4)",
    "opt": "activation = relu, norm = layernorm, position = learned, context = 128, "
    "bias = [qkv, out, mlp, head], final_norm = off",
    "odd": "activation = silu, bias = [out, head], tied_embeddings = on, embedding_norm = on, "
    "position = learned, context = 64",
    "window": "kv_heads = 4, window(size = 4096), softcap(logits = 20)",
    "mistral": "kv_heads = 4, window(size = 16), rope(theta = 10000, scaling = 2)",
    "gpt-oss": "kv_heads = 2, bias = [qkv, out], window(size = 16, every = 3), sinks = on, "
    "rope_scaling = yarn(factor = 32, original = 4096, truncate = off)",
    "bloom": "activation = gelu_tanh, norm = layernorm, position = alibi, embedding_norm = on, "
    "bias = all, tied_embeddings = on",
}


def model(shape: str) -> str:
    """The model block of a shape."""
    return f"model {{ {SIZES}, {SHAPES[shape]} }}"
