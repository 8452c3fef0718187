"""start.sh as pods run it: two on this machine, told of each other as the Trainer tells them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from parlay.compiler import pipeline

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.distributed]

JOB = """model small {
  layers = 2, hidden = 64, heads = 4, kv_heads = 4, ffn = 128, vocab = 258
  rope(theta = 10000)
}
cluster { nodes = 2, node from "laptop" { gpus = 1 }, fabric { kind = loopback } }
parallel { dp = 2, zero = 1 }
train {
  seq = 32, micro_batch = 1, global_batch = 4, precision = fp32, steps = 2
  lr_schedule = cosine(warmup = 1, min_lr = 0)
}
data { path = "corpus.txt", format = text }
checkpoint { path = "saves", every = 1 }
"""


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def test_two_pods_train_and_resume(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(JOB)
    job = pipeline.check(path, ("kubernetes",))
    assert not job.errors, [said.message for said in job.errors]
    [manifest] = pipeline.emit(job, "kubernetes").files.values()
    code, train = yaml.safe_load_all(manifest)
    trainer = train["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 1)
    # The mounts of a pod, as folders: the code is not to be written to, the claim is.
    mounted, claim = tmp_path / "parlay", tmp_path / "workspace"
    mounted.mkdir(), claim.mkdir()
    for name, text in code["data"].items():
        (mounted / name).write_text(text.replace("/parlay/", f"{mounted}/"))
    script = mounted / "start.sh"
    script.write_text(script.read_text().replace("cd /workspace", f"cd {claim}"))
    mounted.chmod(0o555)
    (claim / "corpus.txt").write_text("All that is gold does not glitter. " * 40)

    def pods() -> None:
        port, ended = free_port(), []
        for rank in range(trainer["numNodes"]):
            environment = {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PET_NNODES": str(trainer["numNodes"]),
                "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(rank),
                "PET_MASTER_ADDR": "127.0.0.1",
                "PET_MASTER_PORT": str(port),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
            }
            for each in trainer["env"]:
                environment[each["name"]] = each["value"].replace("/workspace", str(claim))
            started = subprocess.Popen(
                [trainer["command"][0], str(script)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            ended.append(started)
        try:
            told = [pod.communicate(timeout=200)[0] for pod in ended]
        finally:
            for pod in ended:
                pod.kill()
        assert [pod.returncode for pod in ended] == [0, 0], "\n".join(told)[-3000:]

    out = claim / "job"
    pods()
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1]
    saves = sorted(save.name for save in (out / "saves").iterdir())
    assert "step-00000002" in saves
    # A pod that is started again finds everything done, and changes nothing.
    pods()
    assert sorted(save.name for save in (out / "saves").iterdir()) == saves
    assert not list(mounted.glob("metrics*"))
