"""Layouts that trained published models: what ran for weeks is told neither error nor warning."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.dsl.diagnostics import Diagnostic, Severity

Check = Callable[[str], tuple[Diagnostic, ...]]

GPT = "activation = gelu, norm = layernorm, position = learned, bias = all"


def _job(model: str, cluster: str, parallel: str, train: str) -> str:
    return (
        f"model {model}\ncluster {{ {cluster} }}\nparallel {{ {parallel} }}\ntrain {{ {train} }}\n"
    )


PUBLISHED = {
    # arXiv:2407.21783, table 4 and section 3.3.2: one layer less at both ends. Tensors that nothing
    # reads again are freed early, which `selective(norm, activation)` stands for.
    "Llama 3.1 405B, 8,192 H100": _job(
        'from "llama3.1-405b"',
        'nodes = 1024, node from "dgx-h100"',
        "tp = 8, pp = 16, dp = 64, zero = 1, "
        "stages = [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]",
        "seq = 8Ki, micro_batch = 1, global_batch = 2048, recompute = selective(norm, activation), "
        "optimizer = adamw(lr = 8e-5), lr_schedule = cosine(warmup = 8000, min_lr = 8e-7), "
        "tokens = 15.6T",
    ),
    "Llama 3.1 405B, 16,384 H100": _job(
        'from "llama3.1-405b"',
        'nodes = 2048, node from "dgx-h100"',
        "tp = 8, pp = 16, dp = 128, zero = 1, "
        "stages = [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]",
        "seq = 8Ki, micro_batch = 1, global_batch = 2048, recompute = selective(norm, activation)",
    ),
    "Llama 3.1 405B at 128 Ki tokens": _job(
        'from "llama3.1-405b"',
        'nodes = 2048, node from "dgx-h100"',
        "tp = 8, cp = 16, cp_method = allgather, pp = 16, dp = 8, zero = 1, "
        "stages = [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]",
        "seq = 128Ki, micro_batch = 1, global_batch = 128, recompute = selective(norm, activation)",
    ),
    # arXiv:2412.19437, section 3: 16 pipeline ranks, 64 expert ranks over 8 nodes. Norms and the
    # up-projections of MLA are recomputed and activations kept in 8 bits, which the language cannot
    # say: 1F1B with whole layers stands for it.
    "DeepSeek-V3, 2,048 H800": _job(
        'from "deepseek-v3"',
        'nodes = 256, node from "h800-8"',
        "pp = 16, ep = 64, zero = 1, stages = auto",
        "seq = 4Ki, micro_batch = 1, global_batch = 15_360, precision = fp8, gradients = fp32, "
        "recompute = full, "
        "optimizer = adamw(lr = 2.2e-4, states = bf16), "
        "lr_schedule = cosine(warmup = 2000, min_lr = 2.2e-5), tokens = 14.8T",
    ),
    # NVIDIA, Megatron-Core MoE: 128 H100.
    "Mixtral 8x22B, 128 H100": _job(
        'from "mixtral-8x22b"',
        'nodes = 16, node from "dgx-h100"',
        "tp = 4, pp = 4, ep = 8, zero = 1, schedule = interleaved(chunks = 14)",
        "seq = 4Ki, micro_batch = 1, global_batch = 256",
    ),
    "Mixtral 8x7B, 64 H100": _job(
        'from "mixtral-8x7b"',
        'nodes = 8, node from "dgx-h100"',
        "pp = 4, ep = 8, zero = 1, schedule = interleaved(chunks = 8)",
        "seq = 4Ki, micro_batch = 1, global_batch = 256",
    ),
    # arXiv:2104.04473, table 1.
    "GPT-3 175B, 1,024 A100 (SC21)": _job(
        f"{{ layers = 96, hidden = 12_288, heads = 96, ffn = 49_152, vocab = 51_200, "
        f"context = 2Ki, {GPT} }}",
        'nodes = 128, node from "dgx-a100"',
        "tp = 8, pp = 16, schedule = interleaved(chunks = 3)",
        "seq = 2Ki, micro_batch = 1, global_batch = 1536, precision = fp16, recompute = full",
    ),
    "1T, 3,072 A100 (SC21)": _job(
        f"{{ layers = 128, hidden = 25_600, heads = 160, ffn = 102_400, vocab = 51_200, "
        f"context = 2Ki, {GPT} }}",
        'nodes = 384, node from "dgx-a100"',
        "tp = 8, pp = 64",
        "seq = 2Ki, micro_batch = 1, global_batch = 3072, precision = fp16, recompute = full",
    ),
    # arXiv:2201.11990, section 3.2.
    "MT-NLG 530B, 2,240 A100": _job(
        'from "mt-nlg-530b"',
        'nodes = 280, node from "dgx-a100"',
        "tp = 8, pp = 35, zero = 1",
        "seq = 2Ki, micro_batch = 1, global_batch = 1920, recompute = full",
    ),
    # arXiv:2211.05100, section 3.2.
    "BLOOM 176B, 384 A100": _job(
        'from "bloom-176b"',
        'nodes = 48, node from "dgx-a100"',
        "tp = 4, pp = 12, zero = 1, stages = auto",
        "seq = 2Ki, micro_batch = 2, global_batch = 2048, recompute = full, tokens = 366B, "
        "optimizer = adamw(lr = 6e-5), lr_schedule = cosine(warmup = 183, min_lr = 6e-6)",
    ),
    # arXiv:2307.09288, section 2.2, in the layout of Megatron's own recipe.
    "Llama 2 70B, 64 A100": _job(
        'from "llama2-70b"',
        'nodes = 8, node from "dgx-a100"',
        "tp = 8, pp = 4, zero = 1, schedule = interleaved(chunks = 5)",
        "seq = 4Ki, micro_batch = 1, global_batch = 256, recompute = selective(norm, mlp)",
    ),
    # github.com/pytorch/torchtitan, benchmarks of December 2024.
    "Llama 3 8B, 128 H100 (FSDP)": _job(
        'from "llama3-8b"',
        'nodes = 16, node from "dgx-h100"',
        "zero = 3",
        "seq = 8Ki, micro_batch = 2, global_batch = 256, recompute = full, compile = on",
    ),
    "Llama 3 70B, 256 H100 (FSDP and tp)": _job(
        'from "llama3-70b"',
        'nodes = 32, node from "dgx-h100"',
        "tp = 8, zero = 3",
        "seq = 8Ki, micro_batch = 16, global_batch = 512, recompute = full, compile = on",
    ),
    # arXiv:2204.06745.
    "GPT-NeoX 20B, 96 A100-40GB": _job(
        'from "gpt-neox-20b"',
        'nodes = 12, node from "a100-40gb-8"',
        "tp = 2, pp = 4, zero = 1",
        "seq = 2Ki, micro_batch = 4, global_batch = 1536, precision = fp16, recompute = full, "
        "steps = 150_000, optimizer = adamw(lr = 0.97e-4), "
        "lr_schedule = cosine(warmup = 1500, min_lr = 0.97e-5)",
    ),
    # arXiv:2402.17834 and the recipes of MPT: plain FSDP on one node's worth of memory a shard.
    "MPT 7B, 64 A100-40GB (FSDP)": _job(
        'from "mpt-7b"',
        'nodes = 8, node from "a100-40gb-8"',
        "zero = 3",
        "seq = 2Ki, micro_batch = 2, global_batch = 1024, recompute = full",
    ),
    # NVIDIA DGX Cloud recipes, Qwen3 235B on H100.
    "Qwen3 235B, 256 H100": _job(
        'from "qwen3-235b-a22b"',
        'nodes = 32, node from "dgx-h100"',
        "tp = 2, pp = 8, ep = 8, zero = 1, stages = auto",
        "seq = 4Ki, micro_batch = 1, global_batch = 2048, recompute = full",
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(name: str, check: Check) -> None:
    told = check(PUBLISHED[name])
    assert not [each for each in told if each.severity is not Severity.NOTE]
