"""Adds adapters to the weights that they adapt: `python -m parlay.runtime.merge CODE`.

CODE is an emitted folder with plan.json; its saves have the adapters. `plan.lora.base` names the
save of the frozen weights. After: `OUT/step-…` is a save of the whole model in float32, masters
alone, which `lora(base = …)` reads; W + alpha / rank · B A in the place of each adapted weight.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from parlay.runtime.base import newest
from parlay.runtime.boxes import Box, Boxes, Loading, Saving
from parlay.runtime.committed import Damaged, digest, read_manifest, sync_folder, write_manifest
from parlay.runtime.foreign import INDEX, ForeignError, Reader, Writer, read_index
from parlay.runtime.hf_folder import is_folder
from parlay.runtime.plan import Plan
from parlay.runtime.saved import CheckpointError
from torch import Tensor
from torch.distributed.checkpoint import load, save

MASTER = "master."
A, B = ".lora_a", ".lora_b"


def merge(plan: Plan, *, base: Path, adapters: Path, out: Path) -> Path:
    """The new save in `out`, of the save `base` and the adapters in the save `adapters`."""
    weights, low = masters(base), masters(adapters)
    manifest = read_manifest(adapters)
    pairs = {name.removesuffix(A) for name in low if name.endswith(A)}
    if not pairs or {name for pair in pairs for name in (pair + A, pair + B)} != set(low):
        raise CheckpointError(f"{adapters} holds something other than adapters")
    scale = plan.lora.alpha / plan.lora.rank
    for pair in sorted(pairs):
        name = f"{pair}.weight"
        product = low[pair + B] @ low[pair + A]
        if name not in weights or weights[name].shape != product.shape:
            raise CheckpointError(f"{base} has no {name} of {list(product.shape)}")
        weights[name] += scale * product
    folder = out / adapters.name
    if folder.exists():
        raise CheckpointError(f"{folder} is there already")
    staged = out / f"{adapters.name}.tmp-merged"
    staged.mkdir(parents=True)
    state = {f"{MASTER}{name}": boxed(weight) for name, weight in weights.items()}
    save(state, storage_writer=Writer(staged), planner=Saving(), no_dist=True)
    files = {path.name: digest(path) for path in [*staged.glob("*.distcp"), staged / INDEX]}
    sync_folder(staged)
    write_manifest(staged, {**manifest, "files": files})
    staged.rename(folder)
    sync_folder(out)
    return folder


def masters(folder: Path) -> dict[str, Tensor]:
    """The weights in a save, whole and in float32, by name."""
    files = read_manifest(folder)["files"]
    damaged = [n for n, hash in files.items() if digest(folder / n) != hash]
    if damaged:
        raise CheckpointError(f"{folder} is damaged: {', '.join(damaged)}")
    index = read_index(folder / INDEX).state_dict_metadata
    found = {
        name.removeprefix(MASTER): torch.zeros(kind.size, dtype=torch.float32)
        for name, kind in index.items()
        if name.startswith(MASTER)
    }
    state: dict[str, Any] = {f"{MASTER}{name}": boxed(tensor) for name, tensor in found.items()}
    reader = Reader(folder, files=set(files))
    load(state, storage_reader=reader, planner=Loading(), no_dist=True)
    return found


def boxed(tensor: Tensor) -> Boxes:
    """The whole of a tensor as one box."""
    return Boxes(shape=tensor.shape, boxes=(Box((0,) * tensor.dim(), tensor),))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m parlay.runtime.merge")
    parser.add_argument("code", type=Path, help="the emitted folder of the adapters")
    parser.add_argument("--base", type=Path, help="default: the base of its plan.json")
    parser.add_argument("--adapters", type=Path, help="default: the newest of its saves")
    parser.add_argument("--out", type=Path, help="default: merged, beside its saves")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    plan = Plan.load(asked.code / "plan.json")
    root = Path(os.environ.get("PARLAY_OUT") or asked.code)
    if "lora" not in plan or (asked.base is None and plan.lora.get("base") is None):
        parser.error(f"{asked.code} has no adapters with a base: --base names a save")
    try:
        base = asked.base or root / plan.lora.base
        if is_folder(base):
            parser.error(f"{base} is a Hugging Face folder: parlay.runtime.export merges into one")
        made = merge(
            plan,
            base=newest(base),
            adapters=newest(asked.adapters or root / plan.checkpoint.path),
            out=asked.out or root / "merged",
        )
    except (OSError, CheckpointError, Damaged, ForeignError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
