"""`parlay verify`: the emitted code against one process and against the predicted collectives."""

from __future__ import annotations

import json as jsonlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from parlay.compiler import pipeline
from parlay.compiler.backends.torch.proof import proofs
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.vendored import differing
from parlay.compiler.commands.compile import opened
from parlay.compiler.commands.mesh_proof import mesh_failures
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import failed, print_json, refused
from parlay.compiler.commands.run import NO_TORCH, torch_found
from parlay.dsl.diagnostics.cells import harmless

TIMEOUT_S: Final = 300


def run(file: Path, *, code: Path | None, json: bool) -> int:
    """Proves every phase's layout at a small size; 0 where all comparisons hold."""
    job = pipeline.check(file, ["torch"])
    job = opened(job, "verify")
    if refused(job) or not torch_found():
        return failed(job, words="" if job.errors else NO_TORCH, json=json)
    if code is not None and (others := _other_runtime(code)):
        return _not_proved(
            job,
            f"{code} has a runtime of its own, and {', '.join(others)} is not as the installed "
            "one that a proof runs; `parlay compile --vendor` copies it",
            json=json,
        )
    results, mesh = [], []
    for phase in job.phases:
        layout = pipeline.lay_out(phase)
        assert layout is not None, "a clean check has a layout"
        emission = pipeline.emit(replace(job, phases=(phase,)), "torch")
        if refused(told := replace(job, diagnostics=emission.diagnostics)):
            return failed(told, json=json)
        files = emission.files_of("torch") if code is None else _as_it_stands(code)
        if files is None:
            return _not_proved(job, f"{code} is not a folder with train.py", json=json)
        plan = files.get("plan.json") or emission.files_of("torch")["plan.json"]
        structure = Structure.of(phase, layout, job.sources)
        mesh += mesh_failures(structure, files, plan)
        results += [_prove(files, proof) for proof in proofs(phase, layout)]
    document = summary(results, mesh)
    if json:
        print_json(document)
    else:
        _print(document)
    return 0 if document["passed"] else 1


def _not_proved(job: pipeline.Job, words: str, *, json: bool) -> int:
    print(f"parlay: {harmless(words)}", file=sys.stderr)
    return failed(job, words=words, json=json)


def _as_it_stands(folder: Path) -> dict[str, str] | None:
    """The code of a folder and its plan, edits included; None where it holds no train.py."""
    for candidate in (folder, folder / "torch"):
        if (candidate / "train.py").is_file():
            paths = [*sorted(candidate.glob("*.py")), candidate / "plan.json"]
            return {path.name: path.read_text() for path in paths if path.is_file()}
    return None


def _other_runtime(folder: Path) -> list[str]:
    """The files of a copied runtime that differ from what runs the proof; at most five."""
    found = [*differing(folder), *differing(folder / "torch")]
    return [harmless(name) for name in found[:5]]


def _prove(files: Mapping[str, str], proof: Mapping[str, str]) -> dict[str, Any]:
    """One folded run: its result document, or a failure in its shape."""
    folder = Path(tempfile.mkdtemp(prefix="parlay-verify-"))
    try:
        code = {f"code/{name}": text for name, text in files.items() if name.endswith(".py")}
        for name, text in {**code, **proof}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, "-m", "parlay.runtime.verify", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return _failed(proof, f"the proof did not end within {TIMEOUT_S} s")
        result = folder / "result.json"
        if not result.is_file():
            return _failed(
                proof, done.stderr.strip().splitlines()[-1] if done.stderr else "no result"
            )
        document: dict[str, Any] = jsonlib.loads(result.read_text())
        return document
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _failed(proof: Mapping[str, str], why: str) -> dict[str, Any]:
    plan = jsonlib.loads(proof["code/plan.json"])
    nothing = {"compared": 0, "max_relative_error": None, "worst": None}
    return {
        "axes": plan["mesh"],
        "loss": {"max_relative_error": None},
        "gradients": dict(nothing),
        "weights": dict(nothing),
        "collectives": {"match": False, "rows": []},
        "failures": [why],
        "passed": False,
    }


def summary(runs: Sequence[Mapping[str, Any]], mesh: Sequence[str]) -> dict[str, Any]:
    """The document of `verify --json`: every run, the worst of them, what `mesh` has wrong."""

    def worst(part: str) -> dict[str, Any]:
        parts = [run[part] for run in runs]
        unknown = [p for p in parts if p.get("max_relative_error") is None]
        chosen = unknown[0] if unknown else max(parts, key=lambda p: p["max_relative_error"])
        return dict(chosen)

    rows = [row for run in runs for row in run["collectives"]["rows"]]
    return {
        "version": 1,
        "runs": list(runs),
        "mesh_match": not mesh,
        "mesh_failures": list(mesh),
        "dtype": "float64",
        "steps": 3,
        "loss": worst("loss"),
        "gradients": worst("gradients"),
        "weights": worst("weights"),
        "collectives": {
            "match": all(run["collectives"]["match"] for run in runs),
            "rows": rows,
        },
        "passed": not mesh and all(run["passed"] for run in runs),
    }


def _print(document: Mapping[str, Any]) -> None:
    from rich.table import Table

    console = new_console()
    if document["mesh_match"]:
        console.print("mesh.py at full size: [green]the groups of the layout[/]")
    for failure in document["mesh_failures"]:
        console.print(f"mesh.py at full size: {failure}", markup=False, style="red")
    for run in document["runs"]:
        axes = ", ".join(f"{axis} {size}" for axis, size in run["axes"].items()) or "one process"
        verdict = "[green]proved[/]" if run["passed"] else "[red]not proved[/]"
        console.print(f"{axes}: {verdict}")
        for part in ("loss", "gradients", "weights"):
            figures = run[part]
            compared = f"{figures['compared']} tensors, " if "compared" in figures else ""
            error = figures["max_relative_error"]
            shown = "not compared" if error is None else f"{error:.1e}"
            console.print(f"  {part}: {compared}largest relative error {shown}")
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2))
        for title in ("  stage", "group", "collective", "calls", "predicted", "bytes", "predicted"):
            table.add_column(title, justify="left" if title in ("group", "collective") else "right")
        for row in run["collectives"]["rows"]:
            same = (row["calls"], row["bytes"]) == (row["predicted_calls"], row["predicted_bytes"])
            table.add_row(
                str(row["stage"]),
                row["group"],
                row["collective"],
                f"{row['calls']:,}",
                f"{row['predicted_calls']:,}",
                f"{row['bytes']:,}",
                f"{row['predicted_bytes']:,}",
                style=None if same else "red",
            )
        console.print(table)
        for failure in run.get("failures", ()):
            console.print(f"  {failure}", markup=False, style="red")
