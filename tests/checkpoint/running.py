"""Short runs of emitted folders on ranks forked here."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline
from parlay.runtime.checkpoint import Checkpoints
from parlay.runtime.local import RankFailure, run_file, run_ranks

TEXT = """
model {{
  layers = 4, hidden = 32, heads = 4, kv_heads = 2, ffn = 48, vocab = 257, rope(theta = 10000)
  {model}
}}
cluster {{ node from "laptop" {{ gpus = {gpus} }} }}
parallel {{ {parallel} }}
train {{
  seq = 32, micro_batch = 1, global_batch = 8, precision = {precision}, steps = 5
  optimizer = adamw(lr = 3e-3), lr_schedule = cosine(warmup = 2, min_lr = 3e-4)
  {train}
}}
checkpoint {{ {checkpoint} }}
"""


def emitted(
    folder: Path,
    parallel: str = "",
    *,
    gpus: int = 1,
    precision: str = "bf16",
    checkpoint: str = "every = 2",
    model: str = "",
    train: str = "",
) -> Path:
    """The emitted folder of a small layout."""
    folder.mkdir(parents=True, exist_ok=True)
    text = TEXT.format(
        gpus=gpus,
        parallel=parallel,
        precision=precision,
        checkpoint=checkpoint,
        model=model,
        train=train,
    )
    (folder / "job.par").write_text(text)
    job = pipeline.check(folder / "job.par", ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    for name, body in pipeline.emit(job, "torch").files_of("torch").items():
        (folder / name).write_text(body)
    return folder


def started(
    code: Path, out: Path, *, ranks: int, resume: bool = False, killed_at: int | None = None
) -> str:
    """Trains `code` into `out`; returns why that failed, empty where it did not.

    With `killed_at`, SIGKILL ends the ranks when the first is about to commit the save of that
    step: all have written by then.
    """

    def rank(_: int) -> None:
        os.environ |= {"PARLAY_OUT": str(out), "PARLAY_RESUME": "1" if resume else ""}
        if killed_at is not None:
            commit = Checkpoints._commit

            def killed(self: Any, *given: Any) -> None:
                if killed_at in given:
                    os.kill(os.getpid(), signal.SIGKILL)
                commit(self, *given)

            Checkpoints._commit = killed  # type: ignore[method-assign]
        run_file(code / "train.py")

    try:
        run_ranks(rank, ranks, timeout=200)
    except RankFailure as failure:
        return str(failure)
    return ""


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
