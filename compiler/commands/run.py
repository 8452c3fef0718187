"""`parlay run`: compile, then train here on CPU ranks with a progress display."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from parlay.compiler import pipeline
from parlay.compiler.commands.compile import opened
from parlay.compiler.commands.printing import refused
from parlay.compiler.output import write_folder

MOST_RANKS: Final = 16
"""More processes than this only wait for each other on one machine."""


def run(file: Path, *, out: Path | None, steps: int | None) -> int:
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
    folder = (out or Path("runs") / file.stem).absolute()
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
    return _train(folder, layout.world, job.phases[0].spec.train.steps)  # type: ignore[union-attr]


def torch_found() -> bool:
    """Whether torch is installed; says what to install if not."""
    if find_spec("torch") is not None:
        return True
    print("parlay: this command needs torch: pip install 'parlay[torch]'", file=sys.stderr)
    return False


def _with_steps(job: pipeline.Job, steps: int) -> pipeline.Job:
    phases = tuple(
        replace(phase, spec=replace(phase.spec, train=replace(phase.spec.train, steps=steps)))
        if phase.spec.train
        else phase
        for phase in job.phases
    )
    return replace(job, phases=phases)


def _train(folder: Path, ranks: int, steps: int | None) -> int:
    command = [sys.executable, "-m", "parlay.runtime.local", str(folder / "torch")]
    command += ["--ranks", str(ranks), "--timeout", str(24 * 3600)]
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    environment = {**os.environ, "PARLAY_OUT": str(folder)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        _watch(process, metrics, steps)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        return 130
    return 1 if process.returncode else 0


def _watch(process: subprocess.Popen[bytes], metrics: Path, steps: int | None) -> None:
    """Follows metrics.jsonl until the ranks end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(highlight=False)
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
        seen = 0
        while True:
            done = process.poll() is not None
            lines = metrics.read_text().splitlines() if metrics.exists() else []
            for line in lines[seen:]:
                last = json.loads(line)
                first = first or last
                said = f"loss {last['loss']:.4f}  {last['tokens_per_second']:,.0f} tokens/s"
                bar.update(task, completed=last["step"], said=said)
                if not console.is_terminal and (last["step"] % 10 == 0 or seen == 0):
                    console.print(f"step {last['step']}/{steps}  {said}")
            seen = len(lines)
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
