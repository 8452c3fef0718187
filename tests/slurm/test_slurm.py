"""job.sbatch: read by bash, plain where Slurm takes no quotes, only where there is a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends import slurm

TEXT = """
model {{
  layers = 4, hidden = 512, heads = 8, kv_heads = 8, ffn = 1024, vocab = 1024, rope(theta = 10000)
}}
cluster {{ {cluster} }}
parallel {{ pp = 2 }}
train {{
  seq = 64, micro_batch = 1, global_batch = 256, precision = bf16, steps = 10
  lr_schedule = cosine(warmup = 2)
}}
{more}
"""

FABRICS = {
    "infiniband": ['export NCCL_NET="${NCCL_NET:-IB}"'],
    "roce": [
        'export NCCL_NET="${NCCL_NET:-IB}"',
        'export NCCL_IB_GID_INDEX="${NCCL_IB_GID_INDEX:-3}"',
    ],
    "ethernet": ['export NCCL_NET="${NCCL_NET:-Socket}"'],
    "slingshot": [
        'export NCCL_NET="${NCCL_NET:-AWS Libfabric}"',
        'export FI_PROVIDER="${FI_PROVIDER:-cxi}"',
    ],
}


def files(folder: Path, cluster: str, more: str = "", *, name: str = "job.par") -> dict[str, str]:
    path = folder / name
    path.write_text(TEXT.format(cluster=cluster, more=more))
    job = pipeline.check(path, ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    return pipeline.emit(job, "torch").files_of("torch")


def read_by_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("kind", FABRICS)
def test_several_nodes(kind: str, tmp_path: Path) -> None:
    cluster = f'nodes = 4, node from "dgx-h100", fabric {{ kind = {kind} }}'
    found = files(tmp_path, cluster)
    text = found["job.sbatch"]
    read_by_bash(text)
    read_by_bash(found["launch.sh"])
    lines = text.splitlines()
    exports = [line for line in lines if line.startswith("export NCCL") or "FI_" in line]
    assert exports == FABRICS[kind]
    settings = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert settings == [
        "job-name=job",
        "nodes=4",
        "ntasks-per-node=1",
        "gpus-per-node=8",
        "exclusive",
        "output=%x-%j.out",
        "open-mode=append",
        "no-requeue",
    ]
    assert lines[-3:] == [
        "srun --kill-on-bad-exit=1 --open-mode=append --output=logs/%x-%j-%n.out \\",
        '  bash -c "$node" - \\',
        "  bash launch.sh",
    ]
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST"' in text
    assert "trap" not in text and "requeue" not in text.replace("no-requeue", "")


def test_a_job_that_saves_is_queued_again(tmp_path: Path) -> None:
    text = files(tmp_path, 'nodes = 2, node from "dgx-h100"', "checkpoint { every = 5 }")[
        "job.sbatch"
    ]
    read_by_bash(text)
    assert "#SBATCH --requeue\n#SBATCH --signal=B:USR1@300\n" in text
    assert text.endswith('  bash launch.sh --resume &\nranks=$!\nwait "$ranks"\n')


def test_one_node_of_gpus_needs_no_meeting_place(tmp_path: Path) -> None:
    text = files(tmp_path, 'node from "dgx-h100"')["job.sbatch"]
    read_by_bash(text)
    assert "MASTER" not in text and "NCCL" not in text


def test_a_laptop_has_no_queue(tmp_path: Path) -> None:
    assert "job.sbatch" not in files(tmp_path, 'node from "laptop"')


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-70b.par", "llama-70b"),
        ("my job (1).par", "my-job-1"),
        ("--help.par", "help"),
        ("a\n#SBATCH --uid=0.par", "a-SBATCH---uid-0"),
        ("$(reboot).par", "reboot"),
        ("ü.par", "parlay"),
        ("x" * 99 + ".par", "x" * 64),
    ],
)
def test_a_name_is_made_plain(name: str, expected: str) -> None:
    assert slurm.plain(name) == expected


def test_a_strange_file_name_stays_a_name(tmp_path: Path) -> None:
    name = "a`touch b`$(touch c)\n#SBATCH --uid=0\n.par"
    found = files(tmp_path, 'node from "dgx-h100"', name=name)
    for file in ("job.sbatch", "launch.sh"):
        read_by_bash(found[file])
        lines = found[file].splitlines()
        assert not any("touch" in line for line in lines if not line.startswith("#"))
        assert not any(line.startswith("#SBATCH --uid") for line in lines)
