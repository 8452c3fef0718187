"""Emitted scripts train on CPU ranks by DeepSpeed, and go the way of the target torch on one rank.

Losses are compared over four steps; gradients are clipped in each, and some windows of the data
have few labels that count and some none, so that a mean over ranks or microbatches would show.
fp32 to 2e-5 of the loss and of the norm, bf16 to 3e-3 of the loss and 3e-2 of the norm, since the
order of its sums differs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline

pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.distributed, pytest.mark.slow]
Oracle = Callable[..., list[dict[str, Any]]]
ROOT = Path(__file__).resolve().parents[3]

MODELS = {
    "plain": "rope(theta = 10000), qk_norm = per_head",
    "tied": "tied_embeddings = on, position = learned, context = 32, bias = all, norm = layernorm"
    ", activation = gelu",
    "gemma": "rope(theta = 10000), window(size = 8, every = 2), softcap(attention = 2, logits = 9)"
    ", sinks = on, tied_embeddings = on",
}
TEXT = """model {{
  layers = 4, hidden = 32, heads = 4, kv_heads = 2, ffn = 64, vocab = 64, {model}
}}
cluster {{ node from "laptop" {{ gpus = {gpus} }} }}
parallel {{ vocab_multiple = 48, {parallel} }}
train {{
  seq = 32, micro_batch = 2, global_batch = 16, steps = {steps}, precision = {precision}
  optimizer = adamw(lr = {lr}, weight_decay = 0.1), clip = 0.2
  lr_schedule = cosine(warmup = 2, min_lr = 1e-4) {train}
}}
data {{ path = "{data}", format = tokens }}
{rest}
"""
RATES = {"fp32": "1e-2", "bf16": "1e-3"}
"""Small enough that what bf16 rounds does not grow within the steps."""

TOLERANCES = {"fp32": (2e-5, 2e-5), "bf16": (3e-3, 3e-2)}

CASES = {
    "zero 0": (2, "zero = 0", "plain", "fp32", ""),
    "zero 0, bf16": (2, "zero = 0", "plain", "bf16", "gradients = bf16"),
    "zero 1": (2, "zero = 1", "tied", "fp32", ""),
    "zero 2": (2, "zero = 2", "plain", "fp32", ""),
    "zero 3": (2, "zero = 3", "gemma", "fp32", "recompute = full"),
    "zero 1, bf16": (2, "zero = 1", "plain", "bf16", ""),
    "zero 2, bf16": (2, "zero = 2", "plain", "bf16", "recompute = selective(mlp)"),
    "zero 3, bf16": (2, "zero = 3", "tied", "bf16", ""),
    "zero 3, bf16 gradients": (2, "zero = 3", "plain", "bf16", "gradients = bf16"),
    "cp": (2, "cp = 2, cp_method = ulysses, zero = 1", "plain", "fp32", ""),
    "cp, zero 2": (4, "cp = 2, cp_method = ulysses, zero = 2", "tied", "fp32", ""),
    "cp, zero 3": (4, "cp = 2, cp_method = ulysses, zero = 3", "tied", "fp32", "recompute = full"),
    "cp, bf16": (2, "cp = 2, cp_method = ulysses, zero = 2", "plain", "bf16", ""),
    "cp, zero 3, bf16": (2, "cp = 2, cp_method = ulysses, zero = 3", "plain", "bf16", ""),
    "pp": (2, "pp = 2, zero = 0", "gemma", "fp32", ""),
    "pp, tied": (3, "pp = 3, zero = 0, stages = [1, 2, 1]", "tied", "fp32", "recompute = full"),
    "pp, zero 1": (4, "pp = 2, zero = 1", "tied", "fp32", ""),
    "pp first": (4, "pp = 2, zero = 1, order = [pp, dp]", "plain", "fp32", ""),
    "pp, bf16": (4, "pp = 2, zero = 1", "tied", "bf16", ""),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of which some windows have few labels."""
    from parlay.runtime.tokens import write_tokens

    path = tmp_path_factory.mktemp("data") / "tokens.bin"
    write_tokens(path, vocab=64, seq=32, windows=64)
    return path


def compiled(folder: Path, target: str, **parts: Any) -> Path:
    """The folder of a target's files."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.par"
    path.write_text(
        TEXT.format(**{"steps": 4, "rest": "", "lr": RATES[parts["precision"]], **parts})
    )
    job = pipeline.check(path, (target,))
    assert not job.errors, [said.message for said in job.errors]
    for name, content in pipeline.emit(job, target).files.items():
        (folder / target).mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder / target


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory, data: Path, oracle: Oracle
) -> Callable[..., list[Any]]:
    """The metrics of the target torch on one rank: `alone(model, precision)`."""
    known: dict[tuple[str, str], list[Any]] = {}

    def of(model: str, precision: str) -> list[Any]:
        if (model, precision) not in known:
            parts = {"gpus": 1, "parallel": "zero = 0", "train": "", "data": data}
            folder = tmp_path_factory.mktemp("alone")
            code = compiled(folder, "torch", model=MODELS[model], precision=precision, **parts)
            # By the driver too, where torch is there already; DeepSpeed has no part in it.
            job = {"folder": str(code), "world": 1, "out": str(folder / "out")}
            [known[model, precision]] = trained(oracle, [job])
        return known[model, precision]

    return of


def trained(oracle: Oracle, jobs: list[dict[str, Any]]) -> list[list[Any]]:
    """The metrics of jobs, of ranks forked by the driver."""
    answers = oracle("deepspeed", "deepspeed_train.py", jobs, PYTHONPATH=str(ROOT / ".links"))
    for job, answer in zip(jobs, answers, strict=True):
        assert answer["statuses"] == [0] * job["world"], answer["told"]
    return [answer["metrics"] for answer in answers]


@pytest.mark.parametrize("case", CASES)
def test_a_layout_trains_as_one_rank_does(
    case: str, tmp_path: Path, data: Path, oracle: Oracle, alone: Callable[..., list[Any]]
) -> None:
    gpus, parallel, model, precision, train = CASES[case]
    parts = {"gpus": gpus, "parallel": parallel, "train": train, "data": data}
    code = compiled(tmp_path, "deepspeed", model=MODELS[model], precision=precision, **parts)
    job = {"folder": str(code), "world": gpus, "out": str(tmp_path / "out")}
    [found] = trained(oracle, [job])
    expected = alone(model, precision)
    of_loss, of_norm = TOLERANCES[precision]
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["step"] == theirs["step"]
        assert ours["lr"] == pytest.approx(theirs["lr"], rel=1e-12)
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=of_loss)
        if ours["grad_norm"] is None:  # DeepSpeed keeps none of fp32 gradients without ZeRO
            assert (precision, "zero = 0" in parallel) == ("fp32", True)
        else:
            assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=of_norm)
        assert theirs["grad_norm"] > 0.2, "clipping has to matter"


@pytest.mark.parametrize("parallel", ["zero = 3", "pp = 2, zero = 1"])
def test_a_run_goes_on_from_its_last_save(
    parallel: str, tmp_path: Path, data: Path, oracle: Oracle
) -> None:
    parts = {"gpus": 2, "parallel": parallel, "train": "", "data": data, "precision": "bf16"}
    parts |= {"model": MODELS["tied"], "rest": 'checkpoint { path = "s", every = 2, keep = 2 }'}
    code = compiled(tmp_path, "deepspeed", steps=5, **parts)
    job = {"folder": str(code), "world": 2, "out": str(tmp_path / "out")}
    [unbroken] = trained(oracle, [job])
    saves = tmp_path / "out" / "s"
    assert sorted(path.name for path in saves.glob("step-*")) == ["step-00000004", "step-00000005"]
    # As if the run had ended before its last step.
    (saves / "latest").write_text("step-00000004")
    [resumed] = trained(oracle, [{**job, "arguments": ["--resume"]}])
    assert [line["step"] for line in resumed] == [0, 1, 2, 3, 4]
    assert resumed[-1]["loss"] == pytest.approx(unbroken[-1]["loss"], rel=1e-6)
    assert resumed[-1]["lr"] == unbroken[-1]["lr"]


def test_a_folder_with_saves_is_not_run_over(tmp_path: Path, data: Path, oracle: Oracle) -> None:
    parts = {"gpus": 1, "parallel": "zero = 1", "train": "", "data": data, "precision": "fp32"}
    rest = 'checkpoint { path = "s", every = 2 }'
    code = compiled(tmp_path, "deepspeed", model=MODELS["plain"], rest=rest, steps=2, **parts)
    job = {"folder": str(code), "world": 1, "out": str(tmp_path / "out")}
    trained(oracle, [job])
    [answer] = oracle("deepspeed", "deepspeed_train.py", [job], PYTHONPATH=str(ROOT / ".links"))
    assert answer["statuses"] != [0]
    assert "--resume" in answer["told"]


PROBE = """
import os, sys
from pathlib import Path
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "DS_ACCELERATOR")
Path("rank-" + os.environ["RANK"]).write_text(
    " ".join([*(os.environ[name] for name in names), *sys.argv[1:]]))
"""


def test_the_launcher_starts_the_ranks_of_the_hostfile(
    tmp_path: Path, data: Path, python_of: Callable[..., Any]
) -> None:
    python, _, variables = python_of("deepspeed")
    parts = {"gpus": 3, "parallel": "dp = 3", "train": "", "data": data, "precision": "fp32"}
    rest = 'checkpoint { path = "s", every = 2 }'
    text = TEXT.replace("global_batch = 16", "global_batch = 12")
    folder = tmp_path / "job"
    folder.mkdir()
    path = folder / "job.par"
    path.write_text(text.format(steps=4, lr="1e-3", model=MODELS["plain"], rest=rest, **parts))
    job = pipeline.check(path, ("deepspeed",))
    for name, content in pipeline.emit(job, "deepspeed").files.items():
        (folder / Path(name).name).write_text(content)
    (folder / "train.py").write_text(PROBE)
    command = ["bash", folder / "launch.sh", "--resume"]
    paths = f"{python.parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        command, env={**variables, "PATH": paths}, capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    for rank in range(3):
        words = (folder / f"rank-{rank}").read_text().split()
        assert words[:4] == [str(rank), str(rank), "3", "cpu"]
        assert words[-1] == "--resume"
