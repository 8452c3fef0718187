"""`parlay run`: compile, then train here on CPU ranks with a progress display."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from parlay.compiler import pipeline
from parlay.compiler.commands.compile import opened
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import refused
from parlay.compiler.output import write_folder

MOST_RANKS: Final = 16
"""More processes than this only wait for each other on one machine."""
NO_TORCH: Final = (
    "this command needs torch, 2.10 or later: pip install '.[torch]' in the folder that Parlay was "
    "cloned to"
)


def run(file: Path, *, out: Path | None, steps: int | None, resume: bool) -> int:
    """Trains the first phase's layout; the status of the ranks is the status of the command."""
    job = pipeline.check(file, ["torch"])
    if steps is not None:
        job = _with_steps(job, steps)
    if refused(opened(job, "run")) or not torch_found():
        return 1
    emission = pipeline.emit(replace(job, phases=job.phases[:1]), "torch")
    if refused(replace(job, diagnostics=emission.diagnostics)):
        return 1
    layout = pipeline.lay_out(job.phases[0])
    assert layout is not None
    if layout.world > MOST_RANKS:
        print(
            f"parlay: {layout.world} ranks are too many for one machine (at most {MOST_RANKS}); "
            "`parlay compile --target torch` writes the launch script for the cluster",
            file=sys.stderr,
        )
        return 1
    folder = (out or Path("runs") / job.path.stem.strip("<>")).absolute()
    plan = json.loads(emission.files_of("torch")["plan.json"])
    asked = plan.get("checkpoint")
    saves = _saves(folder / asked["path"]) if asked else []
    if told := _about_saves(saves, asked=asked is not None, resume=resume):
        print(f"parlay: {told}", file=sys.stderr)
        return 1
    try:
        foreign = write_folder(folder / "torch", emission.files_of("torch"))
    except OSError as failure:
        why = failure.strerror or str(failure)
        print(f"parlay: {folder} cannot be written: {why}", file=sys.stderr)
        return 1
    if foreign:
        print(
            f"parlay: {folder / 'torch'} holds files that were edited: {', '.join(foreign)}; "
            "another --out leaves them alone",
            file=sys.stderr,
        )
        return 1
    if "tokenizer" in plan["data"] and (status := _prepare(folder / "torch")):
        return status
    total = job.phases[0].spec.train.steps  # type: ignore[union-attr]
    start = int(saves[-1].name.removeprefix("step-")) if saves else 0
    return _train(folder, layout.world, total, start=start if resume else None)


def _saves(folder: Path) -> list[Path]:
    """The whole saves in `folder`, the newest last."""
    return sorted(path.parent for path in folder.glob("step-*/committed.json"))


def _about_saves(saves: Sequence[Path], *, asked: bool, resume: bool) -> str:
    """What keeps a run from starting, or from going on; empty where nothing does."""
    if resume and not asked:
        return "--resume needs saves, and the file asks for none: `checkpoint { every = 100 }` does"
    if saves and not resume:
        return (
            f"{saves[-1].parent} has the saves of an earlier run, the last {saves[-1].name}; "
            "--resume goes on from it, another --out starts anew"
        )
    return ""


def torch_found() -> bool:
    """Whether torch is installed; says what to install if not."""
    if find_spec("torch") is not None:
        return True
    print(f"parlay: {NO_TORCH}", file=sys.stderr)
    return False


def _with_steps(job: pipeline.Job, steps: int) -> pipeline.Job:
    phases = tuple(
        replace(phase, spec=replace(phase.spec, train=replace(phase.spec.train, steps=steps)))
        if phase.spec.train
        else phase
        for phase in job.phases
    )
    return replace(job, phases=phases)


def _prepare(code: Path) -> int:
    """Makes tokens of the job's text, where that was not done; the status of doing it."""
    return subprocess.call([sys.executable, "-m", "parlay.runtime.prepare", str(code)])


def _train(folder: Path, ranks: int, steps: int | None, *, start: int | None) -> int:
    command = [sys.executable, "-m", "parlay.runtime.local", str(folder / "torch")]
    command += ["--ranks", str(ranks), "--timeout", str(24 * 3600)]
    metrics = folder / "metrics.jsonl"
    # A killed run may have gone on after its last save; the steps from there are taken again.
    kept = [line for line in _lines(metrics) if _step_of(line) < (start or 0)]
    metrics.unlink(missing_ok=True)
    if kept:
        metrics.write_text("".join(f"{line}\n" for line in kept))
    environment = {
        **os.environ,
        "PARLAY_OUT": str(folder),
        "PARLAY_RESUME": "" if start is None else "1",
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        _watch(process, metrics, steps, skipped=len(kept))
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        return 130
    return 1 if process.returncode else 0


def _step_of(line: str) -> int:
    """The step of a line; beyond any where a run that was killed left half of it."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return sys.maxsize


def _lines(metrics: Path) -> list[str]:
    return metrics.read_text().splitlines() if metrics.exists() else []


def _watch(
    process: subprocess.Popen[bytes], metrics: Path, steps: int | None, *, skipped: int
) -> None:
    """Follows metrics.jsonl until the ranks end; `skipped` lines were there before."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = new_console()
    first: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    columns = (
        TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=steps, said="starting")
        seen = skipped
        while True:
            done = process.poll() is not None
            for line in _lines(metrics)[seen:]:
                last = json.loads(line)
                seen += 1
                first = first or last
                said = f"loss {last['loss']:.4f}  {last['tokens_per_second']:,.0f} tokens/s"
                bar.update(task, completed=last["step"], said=said)
                if not console.is_terminal and (last["step"] % 10 == 0 or last is first):
                    console.print(f"step {last['step']}/{steps}  {said}")
            if done:
                break
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
    if first is not None and last is not None and process.returncode == 0:
        console.print(
            f"loss {first['loss']:.4f} at step {first['step']}, {last['loss']:.4f} at step "
            f"{last['step']}; {metrics}"
        )
