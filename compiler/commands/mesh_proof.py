"""The full-size grid of mesh.py against the layout: part of `parlay verify`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from parlay.compiler.backends.torch.groups import groups_of, sampled
from parlay.compiler.backends.torch.structure import Structure

TIMEOUT_S: Final = 120
TOLD: Final = 4
"""So many sentences are told; the rest is counted."""


def mesh_failures(structure: Structure, files: Mapping[str, str], plan: str) -> list[str]:
    """What the groups of `files["mesh.py"]` have wrong at the size of `plan`; empty if nothing."""
    if not structure.mesh:
        return []
    if "mesh.py" not in files:
        return ["there is no mesh.py"]
    ranks = sampled(structure.layout, structure.axes)
    built = _built({**files, "plan.json": plan}, ranks)
    if isinstance(built, str):
        return [built]
    wrong = [words for rank in ranks for words in _wrong(structure, rank, built[str(rank)])]
    more = [f"mesh: {len(wrong) - TOLD} more"] if len(wrong) > TOLD else []
    return wrong[:TOLD] + more


def _built(files: Mapping[str, str], ranks: list[int]) -> dict[str, Any] | str:
    """What a process of its own builds, by rank, or why it builds nothing."""
    with tempfile.TemporaryDirectory(prefix="parlay-mesh-") as name:
        for file, text in files.items():
            if file.endswith((".py", ".json")):
                (Path(name) / file).write_text(text)
        command = [sys.executable, "-m", "parlay.runtime.full_size", name]
        try:
            done = subprocess.run(
                command, input=json.dumps(ranks), capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return f"mesh.py did not build its groups within {TIMEOUT_S} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return f"mesh.py cannot be run: {last}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _wrong(structure: Structure, rank: int, built: Mapping[str, Any] | str) -> Iterator[str]:
    if isinstance(built, str):
        yield f"rank {rank}: {built}"
        return
    for name, ranks in groups_of(structure, rank).items():
        group = built.get(name)
        if group is None:
            yield f"rank {rank} has no {name} group; it shares one with {_shown(ranks)}"
        elif group["ranks"] != ranks:
            yield (
                f"rank {rank}: its {name} group is {_shown(group['ranks'])}, "
                f"that of the layout {_shown(ranks)}"
            )
        elif group["rank"] != ranks.index(rank):
            place = ranks.index(rank)
            yield f"rank {rank} is number {place} of its {name} group, not {group['rank']}"


def _shown(ranks: list[int]) -> str:
    """`0, 8, 16, … 504 (64 ranks)`."""
    if len(ranks) <= 8:
        return "[" + ", ".join(map(str, ranks)) + "]"
    return f"[{', '.join(map(str, ranks[:3]))}, … {ranks[-1]}] ({len(ranks)} ranks)"
