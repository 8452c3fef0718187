"""What is emitted, on a Slurm of our own: accepted or refused, run, stopped, and gone on from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from parlay.compiler.commands.compile import run as compile_file

from .cluster import Cluster, cluster, missing, own_name

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # jobs wait for each other, and for Slurm's own rounds
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

ROOT = Path(__file__).parents[2]
EMITTED = sorted((ROOT / "examples").glob("*/compiled/**/job*.sbatch"))

STEPS = 60

TEXT = """
model {{
  layers = 4, hidden = 32, heads = 4, kv_heads = 2, ffn = 48, vocab = 257, rope(theta = 10000)
}}
cluster {{ nodes = 2, node from "{node}" {{ gpus = 2 }} }}
parallel {{ pp = 2, zero = 1 }}
train {{
  seq = 32, micro_batch = 1, global_batch = 8, precision = {precision}, steps = {steps}
  optimizer = adamw(lr = 3e-3), lr_schedule = cosine(warmup = 2, min_lr = 3e-4)
}}
{more}
"""

PROBE = """
import json, os, pathlib, signal, sys, time
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "SLURM_NODEID", "NCCL_NET"]
seen = {name: os.environ.get(name) for name in names}
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
folder = pathlib.Path(os.environ["PROBED"])
told = json.dumps({**seen, "arguments": sys.argv[1:]})
(folder / f"{seen['RANK']}.tmp").write_text(told)
(folder / f"{seen['RANK']}.tmp").rename(folder / f"{seen['RANK']}.json")
time.sleep(120)
sys.exit(1)
"""
"""In place of a framework: says what a rank is told, and ends well at the signal alone."""


@pytest.fixture(scope="module")
def wide() -> Iterator[Cluster]:
    """As many nodes as the largest example wants; they run nothing."""
    with cluster(nodes=2048, gpus=8, daemons=1) as up:
        yield up


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two nodes of two GPUs that run jobs."""
    with cluster(nodes=2, gpus=2) as up:
        yield up


def compiled(
    folder: Path,
    *targets: str,
    node: str = "laptop",
    precision: str = "fp32",
    steps: int = STEPS,
    more: str = "checkpoint { every = 25 }",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = TEXT.format(node=node, precision=precision, steps=steps, more=more)
    (folder / "job.par").write_text(text)
    assert compile_file(folder / "job.par", targets, folder, force=False) == 0
    return folder


def submitted(up: Cluster, script: Path, *options: str, **variables: str) -> str:
    """The number of a job that waits for its turn."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # The nodes share the cores of this machine; a rank needs one of them.
    asked = up.ask(
        *("sbatch", "--parsable", "--time=10", *options, script),
        cwd=script.parent.parent,
        **{"PATH": path, "OMP_NUM_THREADS": "1", **variables},
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout.strip()


def told_by(*folders: Path) -> str:
    """All that a job, or the daemons, have written, for a failing test."""
    logs = [path for each in folders for name in ("*.out", "*.log") for path in each.rglob(name)]
    return "\n".join(f"── {path.name}\n{path.read_text()[-3000:]}" for path in logs)


def ended(up: Cluster, job: str, folder: Path, state: str, *, timeout: float = 280) -> None:
    shown = up.until(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", timeout=timeout)
    why = f"exit code {shown.get('ExitCode')}, {shown.get('Reason')}"
    assert shown["JobState"] == state, f"{why}\n{told_by(folder, up.folder)}"


def wait_for(found: Callable[[], bool], folder: Path, *, timeout: float = 240) -> None:
    deadline = time.monotonic() + timeout
    while not found():
        assert time.monotonic() < deadline, told_by(folder)
        time.sleep(0.1)


def losses(folder: Path) -> dict[int, float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {line["step"]: line["loss"] for line in map(json.loads, lines)}


def saves_in(code: Path) -> list[int]:
    """The steps after which there is a whole save."""
    found = (code / "torch" / "checkpoints").glob("step-*/committed.json")
    return sorted(int(path.parent.name.removeprefix("step-")) for path in found)


def steps_done(code: Path) -> int:
    path = code / "torch" / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of `parlay run` of the file that the jobs are made of."""
    folder = compiled(tmp_path_factory.mktemp("here"))
    command = [sys.executable, "-m", "parlay.compiler.cli", "run", "job.par", "--out", "here"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = losses(folder / "here")
    assert sorted(found) == [*range(STEPS)]
    return found


# ── Asked alone ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("script", EMITTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_emitted_job_is_accepted(wide: Cluster, script: Path) -> None:
    asked = wide.ask("sbatch", "--test-only", script)
    assert asked.returncode == 0, asked.stderr
    assert " to start at " in asked.stderr


@pytest.mark.parametrize(
    "machines",
    ['nodes = 4096, node from "dgx-h100"', 'nodes = 2, node from "dgx-h100" { gpus = 16 }'],
    ids=["nodes", "gpus"],
)
def test_a_job_that_no_node_can_run_is_refused(
    wide: Cluster, machines: str, tmp_path: Path
) -> None:
    text = TEXT.format(node="dgx-h100", precision="bf16", steps=10, more="")
    before = 'nodes = 2, node from "dgx-h100" { gpus = 2 }'
    assert before in text
    text = text.replace(before, machines).replace("global_batch = 8", "global_batch = 65536")
    (tmp_path / "job.par").write_text(text)
    assert compile_file(tmp_path / "job.par", ["slurm"], tmp_path, force=False) == 0
    asked = wide.ask("sbatch", "--test-only", tmp_path / "slurm" / "job.sbatch")
    assert asked.returncode == 1
    assert "node configuration is not available" in asked.stderr


# ── Run ───────────────────────────────────────────────────────────────────────


@pytest.mark.distributed
def test_a_job_trains_on_two_nodes_as_it_does_here(
    pair: Cluster, here: dict[int, float], tmp_path: Path
) -> None:
    code = compiled(tmp_path, "torch", "slurm")
    job = submitted(pair, code / "slurm" / "job.sbatch")
    ended(pair, job, tmp_path, "COMPLETED")
    logs = {path.name: path.read_text() for path in (code / "slurm" / "logs").iterdir()}
    assert sorted(logs) == [f"job-{job}-0.out", f"job-{job}-1.out"]
    # The last stage is on the second node, and its rank is the one that writes.
    assert logs[f"job-{job}-0.out"] == "" and "step 60/60" in logs[f"job-{job}-1.out"]
    assert saves_in(code) == [25, 50, 60]
    assert losses(code / "torch") == here


@pytest.mark.distributed
def test_a_rank_that_fails_fails_the_job(pair: Cluster, tmp_path: Path) -> None:
    code = compiled(tmp_path, "torch")
    (code / "torch" / "train.py").write_text("raise SystemExit(3)\n")
    job = submitted(pair, code / "torch" / "job.sbatch")
    ended(pair, job, tmp_path, "FAILED")
    shown = pair.shown(job)
    assert shown["ExitCode"] != "0:0" and shown["Restarts"] == "0"


@pytest.mark.distributed
def test_before_the_time_limit_it_saves_and_goes_on_later(
    pair: Cluster, here: dict[int, float], tmp_path: Path
) -> None:
    code = compiled(tmp_path, "torch")
    job = submitted(pair, code / "torch" / "job.sbatch")
    wait_for(lambda: steps_done(code) > 2, tmp_path)
    # What Slurm does so long before the limit: the signal goes to the batch shell alone.
    pair.ask("scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: pair.shown(job)["Restarts"] == "1", tmp_path)
    done = steps_done(code)
    assert 2 < done < STEPS and saves_in(code)[-1] == done
    # A job that was queued again waits two minutes, so that what its nodes tell of the first run
    # is not taken for the second's end; they are done with it long before.
    pair.until(job, "PENDING", timeout=120)
    wait_for(lambda: not pair.steps(job) and pair.idle() == 2, tmp_path)
    time.sleep(10)
    pair.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    ended(pair, job, tmp_path, "COMPLETED")
    log = (code / "torch" / "logs" / f"job-{job}-1.out").read_text()
    assert [log.count(f"step {step:2}/60 ") for step in range(1, 61)] == [1] * STEPS
    assert losses(code / "torch") == here


@pytest.mark.distributed
def test_the_signal_to_the_ranks_saves_and_ends_the_job(pair: Cluster, tmp_path: Path) -> None:
    code = compiled(tmp_path, "torch")
    job = submitted(pair, code / "torch" / "job.sbatch")
    wait_for(lambda: steps_done(code) > 2, tmp_path)
    pair.ask("scancel", "--signal=USR1", job)
    ended(pair, job, tmp_path, "COMPLETED")
    assert pair.shown(job)["Restarts"] == "0"
    assert saves_in(code)[-1] == steps_done(code) < STEPS


# ── Other entry points ────────────────────────────────────────────────────────


@pytest.mark.distributed
def test_megatron_is_started_and_told_of_the_limit(pair: Cluster, tmp_path: Path) -> None:
    more = 'data { path = "corpus", format = megatron }\ncheckpoint { path = "saves", every = 4 }'
    code = compiled(tmp_path, "megatron", "slurm", node="dgx-h100", precision="bf16", more=more)
    (tmp_path / "megatron-lm").mkdir()
    (tmp_path / "megatron-lm" / "pretrain_gpt.py").write_text(PROBE)
    ranks = probed(pair, code, MEGATRON_LM=str(tmp_path / "megatron-lm"))
    for rank in ranks:
        arguments = rank["arguments"]
        assert arguments[arguments.index("--pipeline-model-parallel-size") + 1] == "2"
        assert arguments[-3:] == ["--exit-signal-handler", "--exit-signal", "SIGUSR1"]


@pytest.mark.distributed
def test_deepspeed_is_started_by_torchrun(pair: Cluster, tmp_path: Path) -> None:
    code = compiled(tmp_path, "deepspeed", "slurm", node="dgx-h100", precision="bf16")
    (code / "deepspeed" / "train.py").write_text(PROBE)
    for rank in probed(pair, code):
        assert rank["arguments"] == ["--resume"]


@pytest.mark.distributed
def test_deepspeed_trains_on_two_nodes(
    pair: Cluster, here: dict[int, float], tmp_path: Path
) -> None:
    """As emitted, by DeepSpeed itself; nothing is compiled before it starts."""
    home = Path(os.environ.get("PARLAY_ORACLES", Path.home() / ".cache" / "parlay-oracles"))
    programs = home / "deepspeed" / "bin"
    if not programs.exists():
        pytest.skip(f"no deepspeed in {home}: .ci/oracles makes it")
    code = compiled(tmp_path, "deepspeed", "slurm", steps=4, more="")
    builds = tmp_path / "builds"
    job = submitted(
        pair,
        code / "slurm" / "job.sbatch",
        PATH=f"{programs}:{os.environ['PATH']}",
        PYTHONPATH=str(ROOT / ".links"),
        TORCH_EXTENSIONS_DIR=str(builds),
    )
    ended(pair, job, tmp_path, "COMPLETED", timeout=280)
    found = losses(code / "deepspeed")
    assert sorted(found) == [*range(4)]
    # Up to here the learning rates of the longer run are the same.
    assert [found[step] for step in range(3)] == [
        pytest.approx(here[step], rel=2e-5) for step in range(3)
    ]
    assert not builds.exists(), "something was compiled"


def probed(up: Cluster, code: Path, **variables: str) -> list[dict[str, object]]:
    """What each rank was told, in their order; the signal has ended them, and queued the job."""
    (code / "probed").mkdir()
    job = submitted(up, code / "slurm" / "job.sbatch", PROBED=str(code / "probed"), **variables)
    wait_for(lambda: len([*(code / "probed").glob("*.json")]) == 4, code)
    up.ask("scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: up.shown(job)["Restarts"] == "1", code)
    up.ask("scancel", job)
    ranks = [json.loads((code / "probed" / f"{rank}.json").read_text()) for rank in range(4)]
    assert [rank["WORLD_SIZE"] for rank in ranks] == ["4"] * 4
    # Ranks are on the nodes in the order in which Slurm has them.
    assert [rank["SLURM_NODEID"] for rank in ranks] == ["0", "0", "1", "1"]
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1", "0", "1"]
    assert [rank["NCCL_NET"] for rank in ranks] == ["IB"] * 4
    return ranks


# ── The cluster itself ────────────────────────────────────────────────────────


def test_a_cluster_leaves_nothing_behind() -> None:
    with cluster(nodes=1) as up:
        pids = [int(path.read_text()) for path in up.started]
        assert up.names == [own_name()] and len(pids) == 3
        folder = up.folder
    assert not folder.exists()
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or " Z " in stat.read_text()
