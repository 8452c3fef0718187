"""`parlay calibrate`: what this cluster really does, measured here or read from logs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parlay.compiler.commands.calibrate_logs import Point, bus, nccl, nvbandwidth, wire
from parlay.compiler.commands.printing import print_json

TIMEOUT_S = 600


def run(
    logs: Sequence[Path] = (), *, ranks: int = 2, out: Path | None = None, json: bool = False
) -> int:
    """Prints the figures and the fields of a `.par` that they stand for."""
    document = from_logs(logs) if logs else measured(ranks)
    if isinstance(document, str):
        print(f"parlay: {document}", file=sys.stderr)
        return 1
    if out is not None and not _written(document, out):
        return 1
    if json:
        print_json(document)
    else:
        _print(document)
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
    document: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    points = []
    for row in document["collectives"]:
        size, seconds = row["bytes"], row["seconds"]
        row["bus_bytes_per_s"] = bus(row["collective"], row["ranks"], size, seconds)
        points.append(Point(row["collective"], row["ranks"], size, seconds, row["bus_bytes_per_s"]))
    return document | {"fields": _fields(document, points)}


def from_logs(logs: Sequence[Path]) -> dict[str, Any] | str:
    """The figures of nccl-tests and nvbandwidth logs."""
    points: list[Point] = []
    copies = []
    for path in logs:
        try:
            text = path.read_text("utf-8", errors="replace")
        except OSError as failure:
            return f"{path} cannot be read: {failure.strerror}"
        read = nccl(text, name=path.name)
        copied = nvbandwidth(text)
        if not read and not copied:
            return f"{path} is no log of nccl-tests or nvbandwidth"
        points += read
        copies += copied
    document = {
        "version": 1,
        "collectives": [asdict(point) for point in points],
        "copies": [asdict(copy) for copy in copies],
    }
    return document | {"fields": _fields(document, points)}


def _fields(document: dict[str, Any], points: Sequence[Point]) -> dict[str, float]:
    """The fields of the language that the figures stand for, in their base units."""
    found: dict[str, float] = {}
    if "matmul" in document:
        best = max(row["flops_per_s"] for row in document["matmul"])
        dtype = document["matmul"][0]["dtype"]
        found["cluster.node.gpu.bf16" if dtype == "bfloat16" else "cluster.node.gpu.fp32"] = best
    if document.get("copy"):
        rate = max(row["bytes_per_s"] for row in document["copy"])
        found["cluster.node.gpu.bandwidth"] = rate
    line = wire(points)
    if line is not None:
        found["cluster.node.link.bandwidth"] = line.bandwidth_bytes_per_s
        found["cluster.node.link.latency"] = line.latency_s
    for copy in document.get("copies", ()):
        if copy["test"].startswith("host_to_device"):
            found["cluster.node.host.bandwidth"] = copy["bytes_per_s"]
    return found


def _written(document: dict[str, Any], out: Path) -> bool:
    try:
        out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    except OSError as failure:
        print(f"parlay: {out} cannot be written: {failure.strerror}", file=sys.stderr)
        return False
    return True


def _print(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if document.get("collectives"):
        table = Table(box=None, header_style="bold")
        for title in ("collective", "ranks", "bytes", "microseconds", "bus GB/s"):
            table.add_column(title, justify="left" if title == "collective" else "right")
        for row in document["collectives"]:
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
        console.print(f"{row['test']}: {row['bytes_per_s'] / 1e9:.2f} GB/s")
    console.print("measured rates as fields of a file:", style="bold")
    for path, value in document["fields"].items():
        console.print(f"  {path} = {_quantity(path, value)}", markup=False)


def _quantity(path: str, value: float) -> str:
    if path.endswith("latency"):
        return f"{value * 1e6:.3g}us"
    if path.endswith("bandwidth"):
        return f"{value / 1e9:.4g}GB/s"
    return f"{value / 1e12:.4g}TFLOP/s"
