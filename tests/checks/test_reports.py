"""Layouts from public reports: what frameworks got wrong or refused late is told at once, and what
they refused without need is let through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.dsl.diagnostics import Diagnostic

Check = Callable[[str], tuple[Diagnostic, ...]]
H100 = 'node from "dgx-h100"'
WRONG = {
    "NVIDIA/Megatron-LM#468: 16 of 80 layers dropped": (
        {
            "model": 'from "llama3-70b"',
            "cluster": f"{{ nodes = 16, {H100} }}",
            "parallel": "{ tp = 8, pp = 16, schedule = interleaved(chunks = 2) }",
        },
        "L206",
        "pp · chunks = 16 · 2 = 32 does not divide layers = 80",
        "chunks = 5 fits, 1 layer each",
    ),
    "NVIDIA/Megatron-LM#326: 8 of 40 layers dropped": (
        {
            "model": 'from "llama2-13b"',
            "parallel": "{ tp = 8, pp = 8, schedule = interleaved(chunks = 2) }",
        },
        "L206",
        "pp · chunks = 8 · 2 = 16 does not divide layers = 40",
        "chunks = 5 fits, 1 layer each",
    ),
    "pytorch/torchtitan#963: 61 layers": (
        {
            "model": 'from "deepseek-v3"',
            "cluster": f"{{ nodes = 32, {H100} }}",
            "parallel": "{ pp = 16, ep = 8, zero = 1 }",
        },
        "L206",
        "pp = 16 does not divide layers = 61",
        "stages = auto",
    ),
    "NVIDIA-NeMo/Speech#14288: interleaved with too few microbatches": (
        {
            "model": 'from "llama2-13b" { layers = 36 }',
            "cluster": f"{{ nodes = 6, {H100} }}",
            "parallel": "{ tp = 8, pp = 6, schedule = interleaved(chunks = 2) }",
            "train": "{ seq = 4Ki, micro_batch = 1, global_batch = 3 }",
        },
        "S202",
        "3 microbatches are no multiple of pp = 6",
        "global_batch = 6",
    ),
    "huggingface/nanotron#347: one microbatch for eight stages": (
        {
            "parallel": "{ tp = 8, pp = 8, stages = auto }",
            "train": "{ seq = 8Ki, micro_batch = 1, global_batch = 1 }",
        },
        "S201",
        "1 microbatch cannot fill a pipeline of 8 stages",
        "global_batch = 8",
    ),
    "deepspeedai/DeepSpeed#3634: 52 heads": (
        {
            "model": 'from "llama2-13b" { heads = 52, kv_heads = 52, hidden = 6656 }',
            "cluster": f"{{ {H100} }}",
        },
        "L202",
        "tp = 8 does not divide heads = 52",
        "tp = 4, pp = 2, dp = 1 keeps 8 GPUs",
    ),
    "hpcaitech/ColossalAI#3043: 12 heads": (
        {
            "model": 'from "mpt-125m"',
            "cluster": f"{{ {H100} }}",
        },
        "L202",
        "tp = 8 does not divide heads = 12",
        "tp = 4, pp = 1, dp = 2 keeps 8 GPUs",
    ),
    "deepspeedai/DeepSpeed#2925: a degree clamped in silence": (
        {
            "model": 'from "llama2-7b"',
            "cluster": "{ node { gpus = 4, gpu { memory = 80GB } } }",
            "parallel": "{ tp = 16 }",
        },
        "L201",
        "tp = 16 is more than the 4 GPUs of the cluster",
        "tp = 4, pp = 1, dp = 1 keeps 4 GPUs",
    ),
    "NVIDIA/Megatron-LM#743: a length that tp does not divide": (
        {
            "model": 'from "llama3-8b" { context = 128Ki }',
            "parallel": "{ tp = 4 }",
            "train": "{ seq = 50341, micro_batch = 1, global_batch = 16, recompute = full }",
        },
        "L211",
        "tp = 4 does not divide seq = 50341 under sequence parallelism",
        "seq = 50340 or 50344",
    ),
    "NVIDIA-NeMo/RL#3563: cp and sequence parallelism together": (
        {
            "parallel": "{ tp = 4, cp = 2 }",
            "train": "{ seq = 4100, micro_batch = 1, global_batch = 8 }",
        },
        "L213",
        "seq = 4100 is no multiple of 8, which cp = 2 and tp = 4 ask for together",
        "seq = 4096 or 4104",
    ),
    "jzhang38/EasyContext#47: 2,999 tokens over four ranks": (
        {
            "model": 'from "llama3.2-1b"',
            "parallel": "{ cp = 4 }",
            "train": "{ seq = 2999, micro_batch = 1, global_batch = 16 }",
        },
        "L212",
        "2 · cp = 8 does not divide seq = 2999",
        "seq = 2992 or 3000",
    ),
    "THUDM/slime#1818: ep · pp beyond the world": (
        {
            "model": 'from "qwen3-30b-a3b"',
            "cluster": '{ node from "dgx-b200" }',
            "parallel": "{ tp = 2, pp = 2, ep = 8 }",
        },
        "L217",
        "ep · pp = 8 · 2 = 16 does not divide the 8 GPUs of the cluster",
        "ep = 2 or 4",
    ),
    "NVIDIA/Megatron-LM#1587: experts under tp alone": (
        {
            "model": 'from "qwen3-30b-a3b"',
            "parallel": "{ tp = 4, ep = 8, sequence_parallel = off }",
        },
        "L232",
        "experts need sequence parallelism where tp > 1",
        "",
    ),
    "NVIDIA-NeMo/Megatron-Bridge#2667: no inner size": (
        {
            "parallel": "{ cp = 16, cp_method = ulysses_ring(inner = 8, outer = 1) }",
            "model": 'from "llama3.2-1b"',
        },
        "L228",
        "inner · outer = 8 · 1 = 8 is not cp = 16",
        "",
    ),
    "deepspeedai/Megatron-DeepSpeed#474: ZeRO-3 over one rank": (
        {
            "model": 'from "gpt2-xl" { heads = 20, head_dim = 80, vocab = 50304 }',
            "cluster": "{ node { gpus = 4, gpu { memory = 80GB } } }",
            "parallel": "{ tp = 4, zero = 3 }",
        },
        "W202",
        "zero = 3 shards nothing with dp · cp = 1",
        "",
    ),
    "epfLLM/Megatron-LLM#6: 40 B over eight GPUs": (
        {
            "model": "{ params = 40B }",
            "cluster": "{ node { gpus = 8, gpu { memory = 80GB } } }",
        },
        "M201",
        "the training state needs 90 GB a GPU, the budget is 80 GB",
        "",
    ),
    "hiyouga/LlamaFactory#7282: all of the memory is state": (
        {
            "model": "{ params = 70.6B }",
            "cluster": "{ node { gpus = 8, gpu { memory = 141GB } } }",
            "parallel": "{ zero = 3 }",
            "train": "{ seq = 1Ki, micro_batch = 1, global_batch = 8, gradients = bf16 }",
        },
        "M201",
        "the training state needs 141.2 GB a GPU, the budget is 141.0 GB",
        "",
    ),
    "NVIDIA-NeMo/RL#1551: 4,092 rows under fp8": (
        {
            "model": 'from "qwen3-8b"',
            "parallel": "{ tp = 4 }",
            "train": "{ seq = 16368, micro_batch = 1, global_batch = 16, precision = fp8 }",
        },
        "L231",
        "4092 rows are no multiple of 16 under fp8",
        "16384",
    ),
}
LEGAL = {
    "NVIDIA/Megatron-LM#750: two pipeline ranks with chunks": {
        "parallel": "{ tp = 8, pp = 2, schedule = interleaved(chunks = 2) }"
    },
    "NVIDIA/Megatron-LM#1459: ep beside cp": {
        "model": 'from "qwen3-30b-a3b"',
        "parallel": "{ tp = 2, cp = 2, ep = 8, zero = 1 }",
    },
    "NVIDIA-NeMo/Megatron-Bridge#546: tp 4, ep 4, etp 1": {
        "model": 'from "qwen3-30b-a3b"',
        "cluster": f"{{ nodes = 2, {H100} }}",
        "parallel": "{ tp = 4, ep = 4, etp = 1, zero = 1 }",
    },
    "pytorch/torchtitan#4258: ep takes ranks from tp and cp": {
        "model": 'from "qwen3-30b-a3b"',
        "cluster": '{ node from "dgx-b200" }',
        "parallel": "{ tp = 2, cp = 2, ep = 8, zero = 1 }",
    },
    "pytorch/pytorch#117470: shards over four nodes, two replicas": {
        "model": 'from "llama3-70b"',
        "parallel": "{ zero = 3, shard = 32 }",
    },
    "NVIDIA-NeMo/Automodel#2768: cp inside the shard group": {
        "cluster": f"{{ {H100} }}",
        "parallel": "{ cp = 2, zero = 3 }",
    },
    "NVIDIA/Megatron-LM#258: pipelines alone": {
        "model": 'from "llama2-7b"',
        "cluster": f"{{ {H100} }}",
        "parallel": "{ pp = 8 }",
        "train": "{ seq = 4Ki, micro_batch = 1, global_batch = 512 }",
    },
}


@pytest.mark.parametrize("report", WRONG)
def test_wrong(report: str, job: Callable[..., str], check: Check) -> None:
    blocks, code, message, help = WRONG[report]
    told = [each for each in check(job(**blocks)) if each.code != "M202"]
    assert [each.code for each in told] == [code], told
    assert told[0].message == message
    assert any(help in each for each in (*told[0].help, "")), told[0].help


@pytest.mark.parametrize("report", LEGAL)
def test_legal(report: str, job: Callable[..., str], check: Check) -> None:
    assert check(job(**LEGAL[report])) == ()
