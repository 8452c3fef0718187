"""accelerate.yaml without Accelerate: what each field becomes, by its documented keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from parlay.compiler import pipeline

TEXT = (
    'model from "llama3-8b" {model}\n'
    'cluster {{ nodes = {nodes}, node from "dgx-h100" }}\nparallel {{ {parallel} }}\n'
    "train {{ seq = 4096, micro_batch = 1, global_batch = 64, steps = 100, {train} }}\n{rest}\n"
)
Compile = Callable[..., dict[str, Any]]
SIZES = "parallelism_config_"


def text(**parts: Any) -> str:
    """A file; gradients in bf16 and full recomputation, unless `train` says otherwise."""
    given = {"model": "", "nodes": 2, "parallel": "zero = 3", "train": "", "rest": "", **parts}
    for field in ("gradients = bf16", "recompute = full"):
        if field.partition(" ")[0] not in given["train"]:
            given["train"] = f"{field}, {given['train']}"
    return TEXT.format(**given)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """The text of accelerate.yaml."""

    def compiled(**parts: Any) -> str:
        path = tmp_path / "job.par"
        path.write_text(text(**parts))
        job = pipeline.check(path, ("accelerate",))
        told = [said.message for said in job.errors if said.code[0] != "M"]
        assert not told, told
        files = pipeline.emit(job, "accelerate").files
        assert list(files) == ["accelerate/accelerate.yaml"]
        return files["accelerate/accelerate.yaml"]

    return compiled


@pytest.fixture
def emitted(written: Callable[..., str]) -> Compile:
    """accelerate.yaml as a reader takes it."""
    return lambda **parts: yaml.safe_load(written(**parts))


def sizes(found: dict[str, Any]) -> dict[str, Any]:
    given = found.get("parallelism_config", {})
    return {name.removeprefix(SIZES): value for name, value in given.items()}


def test_machines_and_precision(emitted: Compile) -> None:
    found = emitted()
    assert (found["num_machines"], found["num_processes"]) == (2, 16)
    assert (found["distributed_type"], found["mixed_precision"]) == ("FSDP", "bf16")
    assert found["rdzv_backend"] == "c10d"
    assert "rdzv_backend" not in emitted(nodes=1)
    assert emitted(train="precision = fp32, master = none")["mixed_precision"] == "no"
    assert emitted(train="precision = fp16")["mixed_precision"] == "fp16"


@pytest.mark.parametrize(("zero", "again"), [(2, False), (3, True)])
def test_fsdp(emitted: Compile, zero: int, again: bool) -> None:
    found = emitted(parallel=f"zero = {zero}")["fsdp_config"]
    assert (found["fsdp_version"], found["fsdp_reshard_after_forward"]) == (2, again)
    assert found["fsdp_activation_checkpointing"] is True
    assert found["fsdp_offload_params"] is False


@pytest.mark.parametrize(
    ("parallel", "degrees"),
    [
        ("zero = 3", (1, 16, 1, 1)),
        ("zero = 3, shard = 8", (2, 8, 1, 1)),
        ("zero = 3, tp = 2, sequence_parallel = off", (1, 8, 2, 1)),
        ("zero = 3, tp = 2, sequence_parallel = off, shard = 4", (2, 4, 2, 1)),
        ("zero = 3, cp = 2, cp_method = allgather", (1, 8, 1, 2)),
        ("zero = 3, cp = 4, cp_method = ring, shard = 8", (2, 2, 1, 4)),
    ],
)
def test_degrees(emitted: Compile, parallel: str, degrees: tuple[int, ...]) -> None:
    found = sizes(emitted(parallel=parallel))
    names = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size")
    assert tuple(found[name] for name in names) == degrees
    # What torch calls alltoall sends keys and values round the ring.
    how = {"allgather": "allgather", "ring": "alltoall"}
    method = parallel.partition("cp_method = ")[2].partition(",")[0]
    assert found.get("cp_comm_strategy") == how.get(method)


def test_deepspeed_where_the_layout_is_its(emitted: Compile) -> None:
    found = emitted(parallel="zero = 1")
    assert found["distributed_type"] == "DEEPSPEED"
    assert found["deepspeed_config"] == {
        "zero_stage": 1,
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 1.0,
        "offload_optimizer_device": "none",
        "offload_param_device": "none",
        "deepspeed_multinode_launcher": "standard",
    }
    assert (
        "deepspeed_multinode_launcher"
        not in emitted(nodes=1, parallel="zero = 1")["deepspeed_config"]
    )
    found = emitted(parallel="zero = 3, offload = cpu(optimizer)", train="clip = 0")
    assert found["deepspeed_config"]["zero_stage"] == 3
    assert found["deepspeed_config"]["offload_optimizer_device"] == "cpu"
    assert found["deepspeed_config"]["gradient_clipping"] == 0.0
    found = emitted(parallel="zero = 3, cp = 4, cp_method = ulysses", train="attention = math")
    assert sizes(found)["sp_size"] == 4 and sizes(found)["dp_shard_size"] == 4
    assert sizes(found)["sp_seq_length"] == 4096
    assert sizes(found)["sp_attn_implementation"] == "sdpa"


def test_replicas(emitted: Compile) -> None:
    whole = {"model": "{ layers = 1 }", "parallel": "zero = 0", "train": "gradients = fp32"}
    found = emitted(**whole)
    assert found["distributed_type"] == "MULTI_GPU"
    assert not {"fsdp_config", "deepspeed_config", "parallelism_config"} & set(found)
    tp = {"nodes": 1, "parallel": "zero = 0, tp = 8, sequence_parallel = off"}
    found = emitted(**{**whole, **tp})
    assert found["distributed_type"] == "MULTI_GPU"
    assert sizes(found)["tp_size"] == 8 and sizes(found)["dp_shard_size"] == 1


def test_compile_is_by_layer(emitted: Compile) -> None:
    found = emitted(train="compile = on")["dynamo_config"]
    assert found == {"dynamo_backend": "INDUCTOR", "dynamo_use_regional_compilation": True}


def test_options_stand_in_their_sections(emitted: Compile) -> None:
    options = (
        'main_process_port = 29501, fsdp_transformer_layer_cls_to_wrap = "LlamaDecoderLayer"'
        ", fsdp_state_dict_type = FULL_STATE_DICT"
    )
    found = emitted(rest=f'target "accelerate" {{ options {{ {options} }} }}')
    assert found["main_process_port"] == 29501
    assert found["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "LlamaDecoderLayer"
    assert found["fsdp_config"]["fsdp_state_dict_type"] == "FULL_STATE_DICT"
    asked = 'target "accelerate" { options { distributed_type = DEEPSPEED } }'
    assert emitted(rest=asked)["deepspeed_config"]["zero_stage"] == 3


def test_the_head_lists_what_the_script_carries(written: Callable[..., str]) -> None:
    said = written(
        parallel="zero = 3, vocab_multiple = 128",
        rest='data { path = "a\\nb", format = text }\ncheckpoint { path = "saves", every = 7 }',
    )
    head = [line for line in said.splitlines() if line.startswith("#")]
    for words in (
        "1 sequence of 4096 tokens a rank, global batch 64",
        "GradientAccumulationPlugin(num_steps=4, sync_each_batch=True)",
        "adamw(lr = 0.0003, betas = [0.9, 0.95]",
        "vocabulary a multiple of 128",
        "clip_grad_norm_(…, 1)",
        "saves every 7 steps",
        "data: a_b (text)",
        "llama3-8b",
    ):
        assert any(words in line for line in head), words
    rest = said[said.index("\n\n") :]
    assert "#" not in rest and "a_b" not in rest


@pytest.mark.parametrize(
    ("parts", "code", "place"),
    [
        ({"parallel": "pp = 2, zero = 1"}, "B370", "2"),
        ({"parallel": "tp = 2, zero = 3"}, "B370", "parallel"),
        ({"parallel": "tp = 2, sequence_parallel = off, zero = 1"}, "B370", "2"),
        ({"parallel": "zero = 3, tp = 2, sequence_parallel = off, order = [dp, tp]"}, "B370", "["),
        ({"parallel": "zero = 1, shard = 4"}, "B370", "4"),
        ({"parallel": "zero = 3, cp = 2, cp_method = ring, shard = 2"}, "B370", "2"),
        ({"parallel": "zero = 0, cp = 2", "train": "gradients = fp32"}, "B370", "0"),
        ({"parallel": "zero = 3, offload = nvme(optimizer)"}, "B370", "nvme"),
        ({"parallel": "zero = 1, offload = cpu(params)"}, "B370", "cpu"),
        ({"train": "recompute = full(every = 2)"}, "B370", "full"),
        ({"train": "recompute = selective(mlp)"}, "B370", "selective"),
        ({"train": "precision = fp8"}, "B370", "fp8"),
        ({"train": "master = none", "parallel": "zero = 1"}, "B370", "none"),
        ({"train": "gradients = fp32"}, "B374", "fp32"),
        ({"train": "gradients = fp32", "parallel": "zero = 1"}, "B374", "fp32"),
        ({"parallel": "zero = 3, overlap = off"}, "B374", "off"),
        ({"rest": 'target "accelerate" { version = "7" }'}, "B371", '"7"'),
        ({"rest": 'target "accelerate" { options { no_such = 1 } }'}, "B372", "1"),
        ({"rest": 'target "accelerate" { options { zero_stage = 2 } }'}, "B373", "2"),
        ({"rest": 'target "accelerate" { options { fsdp_version = 1 } }'}, "B373", "1"),
        ({"rest": 'target "accelerate" { options { zero3_init_flag = on } }'}, "B373", "on"),
        ({"rest": 'target "accelerate" { options { distributed_type = TPU } }'}, "B372", "TPU"),
        ({}, "B375", "train"),
    ],
)
def test_what_is_told(tmp_path: Path, parts: dict[str, str], code: str, place: str) -> None:
    path = tmp_path / "job.par"
    path.write_text(text(**parts))
    found = pipeline.check(path, ("accelerate",)).diagnostics
    [said] = [each for each in found if each.code[0] == "B"]
    assert said.code == code, said.message
    assert said.span is not None
    assert path.read_text()[said.span.start : said.span.end].startswith(place)


def test_what_the_fields_say_instead(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    for option, said in (("num_processes = 8", "16"), ("fsdp_version = 1", "2")):
        path.write_text(text(rest=f'target "accelerate" {{ options {{ {option} }} }}'))
        found = pipeline.check(path, ("accelerate",)).diagnostics
        [told] = [each for each in found if each.code == "B373"]
        assert told.notes == (f"by the file's fields it is {said}",)


def test_a_model_alone_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("model { params = 7B }\n")
    told = [said for said in pipeline.check(path, ("accelerate",)).diagnostics if said.code > "B"]
    assert [said.message for said in told if said.code == "B370"] == [
        f"target accelerate needs a `{block}` block" for block in ("cluster", "train")
    ]
