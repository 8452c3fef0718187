"""What the readers of published runs fill in: stack, speed, and what a source leaves unsaid."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import row_spec
import rows
from stacks import stack_of

GPT3 = (
    "layers=96 hidden=12288 ffn=49152 heads=96 vocab=51200 seq=2048 gpu=A100-SXM-80GB gpus=1024 "
    "tp=8 pp=16 micro_batch=1 global_batch_seqs=1536 recompute=full"
)
TRILLION = "layers=128 hidden=25600 ffn=102400 heads=160 gpus=3072 pp=64 tflops_per_gpu=163"
GROK = "layers=64 hidden=6144 ffn=32768 heads=48 kv_heads=8 experts=8 topk=2 ep=8 tp=4 pp=8 cp=2"


def cells_of(text: str) -> dict[str, str]:
    """`layers=96 tp=8` --> the cells of a row."""
    return dict(pair.split("=") for pair in text.split())


def row(**cells: str) -> dict[str, str]:
    """A row of GPT-3 175B with `cells`."""
    return dict.fromkeys(rows.COLUMNS, "") | cells_of(GPT3) | cells


@pytest.mark.parametrize(
    ("cells", "stack"),
    [
        ({"source_url": "https://arxiv.org/abs/2104.04473", "notes": "Megatron"}, "megatron-2021"),
        ({"notes": "Megatron-Core 0.6 (2024)"}, "megatron-2024"),
        ({"notes": "Megatron of 2031"}, "megatron-2023"),
        ({"notes": "Megatron", "gpu": "H100-SXM-80GB"}, "megatron-2025"),
        ({"notes": "GPT-NeoX"}, "megatron_deepspeed-2022"),
        ({"notes": "DeepSpeed of 2023"}, "megatron_deepspeed-2023"),
        ({"notes": "DeepSpeed of 2023", "tp": "1", "pp": "1"}, "deepspeed"),
        ({"zero_stage_or_sharding": "FSDP FULL_SHARD"}, "pytorch"),
        ({"source_url": "https://github.com/mosaicml/llm-foundry"}, "llmfoundry"),
        ({"source_url": "https://huggingface.co/nanotron/old_bench"}, "torchtitan-eager"),
        ({"source_url": "https://github.com/NVIDIA/NeMo", "notes": "task=LoRA"}, "nemo-24-lora"),
        ({"notes": "Megatron-Core 2025, HybridEP, CUDA graphs"}, "megatron-2025-deepep-graphs"),
        ({"notes": "Megatron-Core 2025, no CUDA graphs"}, "megatron-2025"),
        ({}, "megatron-2022"),
    ],
)
def test_the_stack_of_a_source_that_is_not_known(cells: dict[str, str], stack: str) -> None:
    assert stack_of(row(source_group="somebody's", **cells)) == stack


@pytest.mark.parametrize(
    ("cells", "days", "tokens"),
    [
        ({"tflops_per_gpu": "140"}, 34, 300e9),
        (cells_of(TRILLION), 84, 450e9),
    ],
)
def test_a_speed_from_hardware_flops(cells: dict[str, str], days: float, tokens: float) -> None:
    """The days that Narayanan et al. 2021, section 5.1, print beside their TFLOP/s."""
    given = row(notes="HARDWARE FLOPs incl. recompute", source_group="narayanan2021", **cells)
    case = rows.case_of(given)
    assert isinstance(case, rows.Case)
    printed = tokens / (days * 86400) / float(given["gpus"])
    assert case.tokens == pytest.approx(printed, rel=0.03)
    model = rows.case_of(given | {"notes": ""})
    assert isinstance(model, rows.Case)
    assert 1.25 < model.tokens / case.tokens < 1.34


def test_a_utilization_is_of_the_peak_that_is_stated() -> None:
    slow = rows.case_of(row(mfu_pct="40", peak_flops_used_tflops="156"))
    fast = rows.case_of(row(mfu_pct="40"))
    assert isinstance(slow, rows.Case) and isinstance(fast, rows.Case)
    assert fast.tokens == pytest.approx(2 * slow.tokens)


def test_a_precision_without_products_is_left_out() -> None:
    assert rows.case_of(row(tflops_per_gpu="90", precision="fp32")) == "precision not modelled"
    for words in ("amp", "bf16 (fp32 accumulation)", "fp16", "MXFP8", ""):
        assert isinstance(rows.case_of(row(tflops_per_gpu="90", precision=words)), rows.Case)


def test_what_nemo_leaves_unsaid_follows_its_recipes() -> None:
    """Its scripts of 2024 interleave every layer, but LoRA's neither that nor the sequence."""
    url, fast = "https://github.com/NVIDIA/NeMo", {"tflops_per_gpu": "300"}
    given = row(source_url=url, global_batch_seqs="1024", **fast)
    for notes, schedule, sequence in (
        ("task=SFT", "interleaved", True),
        ("task=LoRA", "one_f_one_b", False),
    ):
        case = rows.case_of(given | {"notes": notes})
        assert isinstance(case, rows.Case)
        parallel = case.spec.parallel
        assert (parallel.schedule.name, parallel.sequence_parallel) == (schedule, sequence)
    odd = rows.case_of(given | {"notes": "task=SFT", "global_batch_seqs": "1000"})
    assert isinstance(odd, rows.Case) and odd.spec.parallel.schedule.name == "one_f_one_b"


@pytest.mark.parametrize(
    ("notes", "gpus", "etp"), [("ETP=1", "512", 1), ("etp = 2", "512", 2), ("", "512", 4)]
)
def test_experts_are_cut_as_the_notes_say(notes: str, gpus: str, etp: int) -> None:
    speed = cells_of("tokens_per_s_per_gpu=1000 seq=8192 gpu=H100-SXM-80GB")
    given = row(source_group="dgxc", notes=notes, gpus=gpus, **cells_of(GROK), **speed)
    case = rows.case_of(given | {"global_batch_seqs": "1024", "vpp": "8"})
    assert isinstance(case, rows.Case)
    assert case.spec.parallel.etp == etp
    narrow = rows.case_of(given | {"global_batch_seqs": "1024", "gpus": "128", "notes": ""})
    assert isinstance(narrow, rows.Case) and narrow.spec.parallel.etp == 1
    model = case.spec.model
    assert model is not None and model.experts is not None and model.experts.imbalance == 1.0


def test_a_zero_bubble_v_of_more_chunks_than_layers_is_priced_as_its_like() -> None:
    given = row(notes="schedule=ZB-V", tokens_per_s_per_gpu="90", tp="1", gpus="64", pp="64")
    for layers, name in (("126", "zero_bubble"), ("128", "zbv")):
        case = rows.case_of(given | {"layers": layers})
        assert isinstance(case, rows.Case) and case.spec.parallel.schedule.name == name


@pytest.mark.parametrize(
    ("gpu", "notes", "stack"),
    [
        ("GB200-NVL72", "26.04 NeMo Container", "bridge-26.04-graphs"),
        ("B200", "26.04 NeMo Container", "bridge-26.04"),
        ("B200", "25.09 NeMo Container; Qwen3 (tokendrop)", "bridge-25.09-graphs"),
        ("H100-SXM-80GB", "25.09 NeMo Container; Qwen3 (tokendrop)", "bridge-25.09"),
    ],
)
def test_recipes_replay_graphs_on_racks(gpu: str, notes: str, stack: str) -> None:
    assert stack_of(row(source_group="megatron_bridge", gpu=gpu, notes=notes)) == stack


DEEPSEEK = (
    "layers=61 hidden=7168 ffn=2048 heads=128 kv_heads=128 experts=256 topk=8 seq=4096 gpus=256 "
    "tp=2 pp=4 ep=64 micro_batch=1 global_batch_seqs=2048 step_time_s=34 recompute="
)


@pytest.mark.parametrize(
    ("gpu", "source", "kernel"),
    [
        ("GB200-NVL72", "dgxc", "math"),
        ("H100-SXM-80GB", "dgxc", "flash"),
        ("GB200-NVL72", "megatron_bridge", "flash"),
    ],
)
def test_latents_had_no_fused_backward_on_blackwell(gpu: str, source: str, kernel: str) -> None:
    """cuDNN 9.11 brought it; what a row states itself stands."""
    given = row(source_group=source, notes="26.02", **cells_of(DEEPSEEK)) | {"gpu": gpu}
    case, said = (rows.case_of(given | {"attention": words}) for words in ("", "flash 3"))
    assert isinstance(case, rows.Case) and isinstance(said, rows.Case)
    assert case.spec.train is not None and said.spec.train is not None
    assert case.spec.train.attention == kernel and said.spec.train.attention == "flash"
    assert (case.spec.train.recompute.name == "selective") is (kernel == "math")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("H200-SXM-141GB", "H200-SXM"),
        ("H100 SXM5", "H100-SXM-80GB"),
        ("h100-pcie", "H100-PCIe-80GB"),
        ("GB300", "GB300-NVL72"),
        ("MI300X-OAM", "MI300X"),
        ("TPU v5p", "TPU v5p"),
    ],
)
def test_an_accelerator_by_its_first_word(words: str, name: str) -> None:
    assert row_spec.gpu_named(words) == name


def test_a_zero_bubble_has_one_chunk_whatever_else_is_stated() -> None:
    given = row(notes="schedule=ZB-1p", tokens_per_s_per_gpu="90", tp="1", gpus="8", pp="8")
    case = rows.case_of(given | {"layers": "22", "vpp": "8"})
    assert isinstance(case, rows.Case) and len(case.layout.stages) == 8
