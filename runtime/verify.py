"""The proof of one emitted folder: `python -m parlay.runtime.verify DIR`.

Before: DIR has
  code/            an emitted folder as it stands, but for a plan.json of small sizes in float64
  reference.json   what `parlay.reference` reads: sizes and structure of the model, the recipe
  weights.json     [{"name", "shape", "tp_dim", "stage", "padded_rows", "tp_copies"}]: each weight
                   of each pipeline rank; `shape` of the whole weight without padding, `tp_dim`
                   null where tp does not cut it, `padded_rows` the rows of padding that follow,
                   mostly 0, `tp_copies` the neighbours on tp that hold the same piece, mostly 1
After: DIR/result.json says whether ranks forked here compute what the plain model does in one
process, and send what plan.json predicts:
  {"version", "ranks", "axes", "dtype", "steps", "passed", "failures": [sentence], "detail": text,
   "loss", "gradients", "norm", "initial", "weights":
       {"compared", "max_relative_error", "worst": name, "passed"},
   "collectives": {"match", "rows": [{"stage", "group", "collective", "dtype", "calls", "bytes",
                                      "predicted_calls", "predicted_bytes"}]}}
An error that is no number is told as the largest one. `detail` is the traceback or the place of a
rank that failed or hung, empty else. The exit status is 0 if all passed, 1 if not.

A data set of the format `tokens` that is not there yet is written first; its path counts from
DIR/code. DIR/logs has what each rank printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from parlay.runtime.axes import Grid
from parlay.runtime.compare import Comparison, Comparisons, Weight, place_of
from parlay.runtime.data import DataError, Loader
from parlay.runtime.local import RankFailure, run_ranks
from parlay.runtime.plan import Plan
from parlay.runtime.prove import STEPS, experts_of, prove
from parlay.runtime.sent import compare_sent
from parlay.runtime.tokens import write_tokens

TIMEOUT = 300.0


class Broken(Exception):
    """The proof could not be carried through; `detail` is for who wants to know more."""

    def __init__(self, sentence: str, *, detail: str = "") -> None:
        super().__init__(sentence)
        self.detail = detail


def verify(folder: Path, *, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Proves `folder`, writes its result.json, and returns what stands in it."""
    plan = Plan.load(folder / "code" / "plan.json")
    grid = Grid(tuple(plan.mesh.items()))
    result: dict[str, Any] = {
        "version": 1,
        "ranks": grid.world,
        "axes": plan.mesh.to_dict(),
        "dtype": plan.dtypes.compute,
        "steps": STEPS,
        "passed": False,
        "failures": [],
        "detail": "",
        **{name: Comparison(what=name).result() for name in Comparisons.NAMES},
        "collectives": {"match": False, "rows": []},
    }
    try:
        with contextlib.chdir(folder / "code"):
            write_batches(plan, to=folder / "batches.pt")
        with reference_of(folder, timeout=timeout) as reference:
            records = records_of(folder, grid=grid, timeout=timeout)
            expected = reference()
    except Broken as broken:
        result |= {"failures": [str(broken)], "detail": broken.detail}
    else:
        rows = json.loads((folder / "weights.json").read_text(encoding="utf-8"))
        weights = [Weight(**{**row, "shape": tuple(row["shape"])}) for row in rows]
        comparisons = Comparisons(
            records,
            grid=grid,
            weights=weights,
            reference=expected,
            shard=plan.get("shard"),
            experts=experts_of(plan),
            last=[stage.stage for stage in plan.stages if stage.head],
        )
        sent, wrong = compare_sent(
            [record["counts"] for record in records],
            predicted=plan.collectives,
            grid=grid,
            kv_heads=plan.model.kv_heads,
            shard=plan.get("shard"),
            cp_inner=plan.get("cp_inner"),
            experts=experts_of(plan),
        )
        for name, comparison in comparisons.by_name().items():
            result[name] = comparison.result()
            result["failures"] += comparison.failures()
        result["collectives"] = {"match": not wrong, "rows": sent}
        result["failures"] += wrong
        result["passed"] = not result["failures"]
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def write_batches(plan: Plan, *, to: Path) -> None:
    """The global batches of all steps, as one process reads them."""
    data, batch = plan.data, plan.batch
    if data.format == "tokens" and data.path is not None and not Path(data.path).exists():
        windows = (STEPS + 1) * batch.global_batch
        write_tokens(Path(data.path), vocab=plan.model.vocab, seq=batch.seq, windows=windows)
    try:
        loader = Loader(plan, rank=0, ranks=1)
        read = [[(*pair,) for pair in loader.batch(step)] for step in range(STEPS)]
        torch.save(read, to)
    except DataError as error:
        raise Broken(f"the data cannot be read: {error}") from error


def records_of(folder: Path, *, grid: Grid, timeout: float) -> list[dict[str, Any]]:
    """What each rank computed, by rank."""
    out = folder / "ranks"
    out.mkdir(exist_ok=True)
    try:
        run_ranks(
            lambda rank: prove(code=folder / "code", out=out / f"{rank}.pt"),
            grid.world,
            timeout=timeout,
            log_dir=folder / "logs",
        )
    except RankFailure as failure:
        places = [place_of(rank, grid=grid).words for rank in failure.ranks]
        raise Broken(failure.told(places), detail=failure.detail) from failure
    return [torch.load(out / f"{rank}.pt", weights_only=True) for rank in range(grid.world)]


@contextlib.contextmanager
def reference_of(folder: Path, *, timeout: float) -> Iterator[Any]:
    """Starts the plain model in a process of its own; what is yielded waits for its result."""
    process = subprocess.Popen(
        [sys.executable, "-m", "parlay.reference", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    def wait() -> dict[str, Any]:
        try:
            _, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Broken(f"the plain model took more than {timeout:g} s") from None
        if process.returncode:
            last = (errors.strip().splitlines() or [f"status {process.returncode}"])[-1]
            raise Broken(f"the plain model failed: {last}", detail=errors)
        found: dict[str, Any] = torch.load(folder / "reference.pt", weights_only=True)
        return found

    try:
        yield wait
    finally:
        process.kill()
        process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m parlay.runtime.verify")
    parser.add_argument("dir", type=Path, help="a folder with code/, reference.json, weights.json")
    parser.add_argument("--timeout", type=float, metavar="S", default=TIMEOUT)
    asked = parser.parse_args()
    folder = asked.dir.resolve()
    for name in ("code/train.py", "code/plan.json", "reference.json", "weights.json"):
        if not (folder / name).is_file():
            parser.error(f"no file {folder / name}")
    result = verify(folder, timeout=asked.timeout)
    for sentence in result["failures"]:
        print(sentence)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    # By its own name, which the traceback of a failing rank leaves out.
    from parlay.runtime import verify as module

    sys.exit(module.main())
