"""Layouts as text, emitted and proved; edits of the emitted files on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from parlay.compiler import pipeline
from parlay.compiler.backends.torch.proof import proofs

Edit = Callable[[dict[str, str]], None]
"""Changes the files of a proof in place; their paths are those inside the proof's folder."""

MODEL = """
model {
  layers = 4, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000
}
"""


def par(
    parallel: str = "",
    *,
    gpus: int = 1,
    train: str = "",
    model: str = MODEL,
    global_batch: int = 16,
    data: str = "",
) -> str:
    """A whole file around the `parallel` fields of a layout."""
    return f"""{model}
cluster {{ node from "laptop" {{ gpus = {gpus} }} }}
parallel {{ {parallel} }}
train {{
  seq = 64, micro_batch = 2, global_batch = {global_batch}, steps = 10
  {"" if "optimizer" in train else "optimizer = adamw(lr = 1e-3)"}
  {"" if "lr_schedule" in train else "lr_schedule = cosine(warmup = 2, min_lr = 1e-4)"}
  {"" if "precision" in train else "precision = fp32"}
  {train}
}}
{data}
"""


def emitted(
    text: str, folder: Path, *, name: str = "job.par"
) -> tuple[pipeline.Job, dict[str, str]]:
    """The checked job of `text` and the files that the torch target emits for it."""
    path = folder / name
    path.write_text(text)
    job = pipeline.check(path, ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    return job, pipeline.emit(job, "torch").files_of("torch")


def prove(text: str, folder: Path, *, edit: Edit | None = None) -> dict[str, Any]:
    """The result document of the first folded run of a layout, `edit` applied to its files."""
    from parlay.runtime import verify

    job, files = emitted(text, folder)
    layout = pipeline.lay_out(job.phases[0])
    assert layout is not None
    code = {f"code/{name}": body for name, body in files.items() if name.endswith(".py")}
    proof = {**code, **next(iter(proofs(job.phases[0], layout)))}
    if edit is not None:
        edit(proof)
    for name, body in proof.items():
        target = folder / "proof" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body)
    with mock.patch.object(verify, "reference_of", forked_reference):
        return verify.verify(folder / "proof", timeout=240)


@contextlib.contextmanager
def forked_reference(folder: Path, *, timeout: float) -> Iterator[Callable[[], Any]]:
    """The plain model in a process forked from this one, which spares it the import of torch.

    `parlay verify` starts it anew; the tests of the command, in tests/runtime_services, do too.
    """
    import torch
    from parlay.reference.train import run
    from parlay.runtime.local import preload

    preload()
    errors = folder / "reference.log"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(int(timeout))
            torch.set_num_threads(1)
            run(folder)
            status = 0
        except BaseException:
            errors.write_text(traceback.format_exc())
        finally:
            os._exit(status)
    ended: list[int] = []

    def wait() -> Any:
        ended.append(os.waitpid(child, 0)[1])
        assert ended == [0], errors.read_text() if errors.exists() else f"status {ended}"
        return torch.load(folder / "reference.pt", weights_only=True)

    try:
        yield wait
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def replaced(file: str, old: str, new: str) -> Edit:
    """An edit of `code/FILE` that must find what it replaces."""

    def edit(files: dict[str, str]) -> None:
        text = files[f"code/{file}"]
        assert old in text, f"{file} has no {old!r}"
        files[f"code/{file}"] = text.replace(old, new)

    return edit


def plan_changed(change: Callable[[dict[str, Any]], None]) -> Edit:
    """An edit of the plan that the emitted code reads."""

    def edit(files: dict[str, str]) -> None:
        plan = json.loads(files["code/plan.json"])
        change(plan)
        files["code/plan.json"] = json.dumps(plan)

    return edit
