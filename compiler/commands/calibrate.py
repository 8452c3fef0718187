"""`parlay calibrate`: what this cluster really does, measured here or read from logs."""

from __future__ import annotations

import json as jsonlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from parlay.compiler.commands.calibrate_logs import Point, bus, largest, read
from parlay.compiler.commands.calibration import calibration, doubtful, unused
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import failed, print_json
from parlay.compiler.commands.reading import text_of
from parlay.compiler.commands.rewrite import written
from parlay.compiler.output import MADE_BY
from parlay.dsl.diagnostics.cells import harmless

BY: Final = "parlay calibrate"
TIMEOUT_S: Final = 600
LARGEST_LOG: Final = 64 << 20
MOST_RANKS: Final = 64
"""Ranks that measure on this machine: more would wait for each other, not for the wires."""


def run(
    logs: Sequence[Path] = (),
    *,
    ranks: int = 2,
    out: Path | None = None,
    json: bool = False,
    force: bool = False,
) -> int:
    """Prints the figures and the fields of a `.par` that they stand for."""
    if not logs and ranks > MOST_RANKS:
        words = f"{ranks} ranks are more than the {MOST_RANKS} of a node"
        print(f"parlay: {words}", file=sys.stderr)
        return failed(words=words, json=json)
    document = from_logs(logs) if logs else measured(ranks)
    if isinstance(document, str):
        print(f"parlay: {harmless(document)}", file=sys.stderr)
        return failed(words=document, json=json)
    document[MADE_BY] = BY
    if out is not None and not written(
        out, jsonlib.dumps(document, indent=1) + "\n", by=BY, force=force
    ):
        return failed(words=f"{out} was not written", json=json)
    if json:
        print_json(document)
    else:
        _print(document, out)
    return 0


def measured(ranks: int) -> dict[str, Any] | str:
    """The measurement of this machine, made by local ranks in a process of their own."""
    command = [sys.executable, "-m", "parlay.runtime.measure", "--ranks", str(ranks)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"the measurement took more than {TIMEOUT_S} s"
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["it said nothing"]
        return f"the measurement failed: {lines[-1]}"
    document: dict[str, Any] = jsonlib.loads(ran.stdout.splitlines()[-1])
    points = []
    for row in document["collectives"]:
        if "skipped" in row:
            continue
        name, size, seconds = row["collective"], row["bytes"], row["seconds"]
        row["bus_bytes_per_s"] = bus(name, row["ranks"], size, seconds)
        points.append(Point(name, row["ranks"], size, seconds, row["bus_bytes_per_s"], 1))
    return _whole(document, points)


def from_logs(logs: Sequence[Path]) -> dict[str, Any] | str:
    """The figures of nccl-tests and nvbandwidth logs."""
    points: list[Point] = []
    copies, name = [], None
    for path in logs:
        text, why = text_of(path, most=LARGEST_LOG)
        if why:
            return why
        log = read(text, name=path.name)
        if log.faults:
            return f"{path}: {log.faults[0]}"
        if not log.points and not log.copies:
            return f"{path} is no log of nccl-tests or nvbandwidth"
        points += log.points
        copies += log.copies
        name = name or log.device
    document = {
        "version": 1,
        "name": name,
        "collectives": [asdict(point) for point in points],
        "copies": [asdict(copy) for copy in copies],
    }
    return _whole(document, points)


def _whole(document: dict[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    return document | {
        "fields": _fields(document, points),
        "calibration": calibration(document, points),
        "unused": unused(points),
        "doubtful": doubtful(points),
    }


def _fields(document: dict[str, Any], points: Sequence[Point]) -> dict[str, float]:
    """The fields of a node that the figures stand for, in their base units."""
    found: dict[str, float] = {}
    for dtype, field in (("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32")):
        rates = [r["flops_per_s"] for r in document.get("matmul", ()) if r["dtype"] == dtype]
        if rates:
            found[f"cluster.node.gpu.{field}"] = max(rates)
    if document.get("copy"):
        rate = max(document["copy"], key=lambda row: row["bytes"])["bytes_per_s"]
        found["cluster.node.gpu.bandwidth"] = rate
    inside = [point for point in points if point.nodes in (1, None)]
    if inside:
        found["cluster.node.link.bandwidth"] = largest(inside)
    steps = [
        call["latency"]
        for call in calibration(document, points).get("link", {}).values()
        if isinstance(call, dict)
    ]
    if steps:
        found["cluster.node.link.latency"] = min(steps)
    for copy in document.get("copies", ()):
        if copy["test"].startswith("host_to_device_memcpy"):
            found["cluster.node.host.bandwidth"] = copy["bytes_per_s"]
    return found


def _print(document: dict[str, Any], out: Path | None) -> None:
    from rich.table import Table

    console = new_console()
    if document.get("collectives"):
        table = Table(box=None, header_style="bold")
        for title in ("collective", "ranks", "bytes", "microseconds", "bus GB/s"):
            table.add_column(title, justify="left" if title == "collective" else "right")
        for row in document["collectives"]:
            if "skipped" in row:
                continue
            table.add_row(
                row["collective"],
                str(row["ranks"] or "?"),
                f"{row['bytes']:,}",
                f"{row['seconds'] * 1e6:,.1f}",
                f"{row['bus_bytes_per_s'] / 1e9:.2f}",
            )
        console.print(table)
    for row in document.get("matmul", ()):
        console.print(f"matmul {row['m']}: {row['flops_per_s'] / 1e12:.3f} TFLOP/s {row['dtype']}")
    for row in document.get("copy", ()):
        console.print(f"copy {row['bytes']:,} B: {row['bytes_per_s'] / 1e9:.2f} GB/s")
    for row in document.get("copies", ()):
        words = f"{row['test']}: {row['bytes_per_s'] / 1e9:.2f} GB/s"
        console.print(harmless(words), markup=False)
    skipped = {r["collective"]: r["skipped"] for r in document["collectives"] if "skipped" in r}
    for name, why in skipped.items():
        console.print(harmless(f"{name} is left out: {why}"), markup=False)
    for why in document["unused"]:
        console.print(f"left out of the calibration: {why}", markup=False)
    for why in document["doubtful"]:
        console.print(why, style="yellow", markup=False)
    if document["fields"]:
        console.print("measured rates as fields of a file:", style="bold")
    for path, value in document["fields"].items():
        console.print(f"  {path} = {_quantity(path, value)}", markup=False)
    if out is not None:
        console.print(
            harmless(f'{out}: cluster {{ calibration from "{out.name}" }} prices by it'),
            markup=False,
        )


def _quantity(path: str, value: float) -> str:
    if path.endswith("latency"):
        return f"{value * 1e6:.3g}us"
    if path.endswith("bandwidth"):
        return f"{value / 1e9:.4g}GB/s"
    return f"{value / 1e12:.4g}TFLOP/s"
