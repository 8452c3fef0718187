"""Short runs of emitted folders on ranks forked in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline

TEXT = """
model {{
  layers = 4, hidden = 32, heads = 4, kv_heads = 2, ffn = 48, vocab = 257, rope(theta = 10000)
}}
cluster {{ node from "laptop" {{ gpus = {gpus} }} }}
parallel {{ {parallel} }}
train {{
  seq = 32, micro_batch = 1, global_batch = 8, precision = {precision}, steps = 5
  optimizer = adamw(lr = 3e-3), lr_schedule = cosine(warmup = 2, min_lr = 3e-4)
}}
checkpoint {{ {checkpoint} }}
"""

# Ends this process, and with it every rank, when the first rank is about to commit step argv[3].
KILLED = """
import os, signal, sys, time
from parlay.runtime import checkpoint, local

def commit(self, staged, name, files, step):
    if step == last:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return original(self, staged, name, files, step)

original, checkpoint.Checkpoints._commit = checkpoint.Checkpoints._commit, commit
folder, ranks, last = local.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
local.run_ranks(lambda rank: local.run_file(folder / "train.py"), ranks, timeout=120)
"""


def emitted(
    folder: Path,
    parallel: str = "",
    *,
    gpus: int = 1,
    precision: str = "bf16",
    checkpoint: str = "every = 2",
) -> Path:
    """The emitted folder of a small layout."""
    folder.mkdir(parents=True, exist_ok=True)
    text = TEXT.format(gpus=gpus, parallel=parallel, precision=precision, checkpoint=checkpoint)
    (folder / "job.par").write_text(text)
    job = pipeline.check(folder / "job.par", ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    for name, body in pipeline.emit(job, "torch").files_of("torch").items():
        (folder / name).write_text(body)
    return folder


def started(
    code: Path, out: Path, *, ranks: int, resume: bool = False, killed_at: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Trains `code` into `out`; with `killed_at` every rank dies in the middle of that save."""
    environment = {**os.environ, "PARLAY_OUT": str(out), "PARLAY_RESUME": "1" if resume else ""}
    command = [sys.executable, "-m", "parlay.runtime.local", str(code), "--ranks", str(ranks)]
    command += ["--timeout", "120"]
    if killed_at is not None:
        command = [sys.executable, "-c", KILLED, str(code), str(ranks), str(killed_at)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


def curve(out: Path) -> list[tuple[int, float, float]]:
    """Step, loss and norm of every line of the run."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()
    ]
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines]


def saves(out: Path) -> list[str]:
    """The folders of saves, whole or not."""
    return sorted(
        path.name.partition(".tmp-")[0] + ("…" if ".tmp-" in path.name else "")
        for path in (out / "checkpoints").iterdir()
    )
