"""Configurations of torchtitan without torchtitan: what each field becomes, and the way back."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.torchtitan.options import place_of, version_of
from parlay.compiler.importers import torchtitan
from parlay.compiler.importers.hf import Unreadable

TEXT = (
    'model from "llama3-8b" %s\n'
    'cluster { nodes = 2, node from "dgx-h100" }\nparallel { %s }\n'
    "train { seq = 4096, micro_batch = 1, global_batch = 64, steps = 100 %s }\n"
    'data { path = "/it\'s/$HOME", format = text, tokenizer = "a\\"b" }\n%s\n'
)


def text(
    model: str = "", parallel: str = "tp = 2, zero = 3", train: str = "", rest: str = ""
) -> str:
    return TEXT % (model, parallel, f", {train}" if train else "", rest)


@pytest.fixture
def emitted(tmp_path: Path) -> Callable[..., str]:
    """The text of parlay_config.py."""

    def compiled(**parts: str) -> str:
        path = tmp_path / "job.par"
        path.write_text(text(**parts))
        job = pipeline.check(path, ("torchtitan",))
        assert not job.errors, [said.message for said in job.errors]
        return pipeline.emit(job, "torchtitan").files["torchtitan/parlay_config.py"]

    return compiled


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, 'fsdp_reshard_after_forward="always"'),
        ({"parallel": "zero = 2"}, 'fsdp_reshard_after_forward="never"'),
        ({"parallel": "tp = 2, pp = 2, zero = 3"}, "disable_cuda_graphs=True"),
        ({"parallel": "tp = 2, pp = 2, zero = 3"}, "local_batch_size=16"),
        (
            {"parallel": "tp = 2, pp = 2, zero = 3, stages = [15, 17]"},
            '[*layers(15, 31), "norm", "lm_head"]',
        ),
        ({"parallel": "zero = 3, shard = 8"}, "data_parallel_replicate_degree=2"),
        ({"train": "clip = 0"}, 'max_norm=float("inf")'),
        ({"train": "lr_schedule = wsd(decay = 25)"}, "decay_ratio=0.25"),
        ({"rest": 'checkpoint { path = "s" }'}, "interval=100"),
        ({"rest": 'target "torchtitan" { options { gc_freq = 7 } }'}, "gc_freq=7"),
        ({"rest": 'target "torchtitan" { options { checkpoint_load_step = 7 } }'}, ""),
    ],
)
def test_a_field(emitted: Callable[..., str], parts: dict[str, str], said: str) -> None:
    assert said in emitted(**parts)


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"model": "{ activation = geglu }"}, "B330"),
        ({"model": "{ bias = qkv }"}, "B330"),
        ({"parallel": "zero = 1"}, "B607"),
        ({"parallel": "tp = 2, pp = 2, zero = 3, schedule = zero_bubble"}, "B330"),
        ({"parallel": "tp = 2, zero = 3, order = [dp, tp]"}, "B330"),
        ({"model": "{ tied_embeddings = on }", "parallel": "tp = 2, pp = 2, zero = 3"}, "B602"),
        ({"train": "gradients = bf16"}, "B330"),
        # It would cut either to what the steps leave.
        ({"train": "lr_schedule = linear(warmup = 101)"}, "B330"),
        ({"train": "lr_schedule = wsd(warmup = 60, decay = 50)"}, "B330"),
        ({"rest": 'target "torchtitan" { version = "7" }'}, "B331"),
        ({"rest": 'target "torchtitan" { options { no_such = 1 } }'}, "B332"),
        ({"rest": 'target "torchtitan" { options { log_freq = 3 } }'}, "B333"),
    ],
)
def test_what_is_refused(tmp_path: Path, parts: dict[str, str], code: str) -> None:
    path = tmp_path / "job.par"
    path.write_text(text(**parts))
    found = pipeline.check(path, ("torchtitan",)).diagnostics
    assert code in [said.code for said in found], [said.message for said in found]


@pytest.mark.parametrize(
    ("option", "code", "note", "help"),
    [
        ("gc_freqs = 10", "B332", None, "nearest: `gc_freq`"),
        ("no_such = 1", "B332", None, "`section_name` where several sections have it"),
        ("log_freq = 3", "B333", "by the file's fields it is 1", "it may go"),
    ],
)
def test_what_is_said_of_an_option(
    tmp_path: Path, option: str, code: str, note: str | None, help: str
) -> None:
    path = tmp_path / "job.par"
    path.write_text(text(rest=f'target "torchtitan" {{ options {{ {option} }} }}'))
    found = pipeline.check(path, ("torchtitan",)).diagnostics
    [told] = [each for each in found if each.code == code]
    assert told.notes == ((note,) if note else ())
    assert told.help == (help,)


def test_no_text_of_a_user_becomes_code(emitted: Callable[..., str]) -> None:
    tree = ast.parse(emitted())
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {"/it's/$HOME", 'a"b'} <= strings


@pytest.mark.parametrize("seed", range(10))
def test_emit_after_import_gives_the_same_file(
    seed: int, tmp_path: Path, drawn_fsdp: Callable[[Random], str]
) -> None:
    path = tmp_path / "job.par"
    random = Random(seed)
    while True:
        path.write_text(drawn_fsdp(random))
        job = pipeline.check(path, ("torchtitan",))
        if not job.errors:
            break
    before = pipeline.emit(job, "torchtitan").files["torchtitan/parlay_config.py"]
    config = tmp_path / "parlay_config.py"
    config.write_text(before)
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length=100"]
    ended = subprocess.run([*command, config], capture_output=True)
    assert ended.returncode == 0
    found = torchtitan.read(config)
    assert found.lost == ()
    path.write_text(found.text)
    again = pipeline.check(path, ("torchtitan",))
    assert [said.message for said in again.errors] == []
    assert pipeline.emit(again, "torchtitan").files["torchtitan/parlay_config.py"] == before


PUBLIC = """
def llama3_70b() -> Trainer.Config:
    model_spec = model_registry("70B")
    config = Trainer.Config(
        model_spec=model_spec,
        optimizer=default_adamw(lr=1.5e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2000),
        training=TrainingConfig(local_batch_size=8, seq_len=8192, steps=1000),
        parallelism=ParallelismConfig(tensor_parallel_degree=8),
        checkpoint=CheckpointManager.Config(interval=500),
        activation_checkpoint=FullAC.Config(),
    )
    config.training.gc_freq = 20
    config.optimizer.further = __import__("os").system("false")
    return config
"""


def test_a_configuration_of_a_registry(tmp_path: Path) -> None:
    path = tmp_path / "config_registry.py"
    path.write_text(PUBLIC)
    found = torchtitan.read(path, gpus=256)
    job = tmp_path / "job.par"
    job.write_text(found.text)
    checked = pipeline.check(job)
    assert [said.message for said in checked.errors] == []
    [phase] = checked.phases
    assert (phase.spec.parallel.tp, phase.spec.parallel.dp, phase.spec.parallel.zero) == (8, 32, 3)
    assert phase.targets["torchtitan"].options == {"gc_freq": 20, "interval": 500}
    assert any("os" in line for line in found.lost)


def test_what_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    for content in ("def", "x = 1", "def config():\n  return Trainer.Config()\n", "(" * 5000):
        path.write_text(content)
        with pytest.raises(Unreadable):
            torchtitan.read(path)


def test_names() -> None:
    assert version_of("0.3.0") == "0.3"
    assert version_of("0.2") is None
    assert place_of("gc_freq", "0.3") == ("training", "gc_freq")
    assert place_of("enable", "0.3") is None
    assert place_of("compile_enable", "0.3") == ("compile", "enable")
