"""Writes a save as a Hugging Face folder: `python -m parlay.runtime.export CODE --to DIR`.

CODE is an emitted folder with plan.json. After: DIR, which is new, has `config.json` and the
weights of a save as safetensors, of whatever layout it was written under, and what the folder that
training started from has of a tokenizer. Of adapters on such a folder it has that folder's weights
with the adapters added in: W + alpha / rank · B A.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from parlay.runtime.base import newest
from parlay.runtime.boxes import Loading
from parlay.runtime.committed import Damaged, digest, read_manifest, sync_folder
from parlay.runtime.foreign import INDEX as SAVED
from parlay.runtime.foreign import ForeignError, Reader, read_index
from parlay.runtime.hf_families import ARCHITECTURES
from parlay.runtime.hf_files import Files, sync, write_json
from parlay.runtime.hf_folder import CONFIG, WeightsFolder, is_folder
from parlay.runtime.hf_names import Names, Part, UnnamedError
from parlay.runtime.merge import MASTER, A, B, boxed, masters
from parlay.runtime.plan import Plan
from parlay.runtime.precision import dtype as dtype_of
from parlay.runtime.saved import CheckpointError
from parlay.runtime.weights import routed
from torch import Tensor
from torch.distributed.checkpoint import load

BESIDE: Final = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"),
    "generation_config.json",
)
"""What is copied from the folder that training started from."""
CACHED: Final = re.compile(r"(\.\./)+blobs/[\w-]+", re.ASCII)
"""Where a link of the hub's cache leads; no other is followed to a file that is copied."""
TOKENS: Final = ("bos_token_id", "eos_token_id", "pad_token_id")
DTYPES: Final = ("float64", "float32", "bfloat16", "float16")

Tensors = dict[str, Tensor]


def export(
    plan: Plan, *, save: Path, to: Path, start: Path | None, dtype: str | None = None
) -> Path:
    """The new folder `to`, of the save `save`; `start` is what training started from."""
    if os.path.lexists(to):
        raise CheckpointError(f"{to} is there already")
    staged = to.parent / f"{to.name}.tmp-{uuid.uuid4().hex[:8]}"
    staged.mkdir(parents=True)
    try:
        if "lora" in plan:
            _adapted(plan, save, start, staged, dtype)
        else:
            write(plan, _Save(save), start, staged, dtype or plan.dtypes.compute)
        for path in [] if start is None else [start / name for name in BESIDE]:
            if path.is_file() and (not path.is_symlink() or CACHED.fullmatch(str(path.readlink()))):
                shutil.copyfile(path, staged / path.name)
        mode = (staged / CONFIG).stat().st_mode & 0o777
        for path in staged.iterdir():
            path.chmod(mode)  # safetensors are written for their owner alone
            sync(path)
        sync_folder(staged)
        if os.path.lexists(to):
            raise CheckpointError(f"{to} is there already")
        staged.rename(to)
        sync_folder(to.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return to


# ── All weights of a save ─────────────────────────────────────────────────────


class Source(Protocol):
    """Weights by our names."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> Tensor:
        """A weight, whole."""


def write(plan: Plan, source: Source, start: Path | None, staged: Path, dtype: str) -> None:
    """After: the folder `staged` has config.json and the weights of `source`, in `dtype`."""
    config = plan.get("hugging_face")
    if config is None:
        raise CheckpointError("plan.json names no family of Hugging Face's for this model")
    described = {**config.to_dict(), "architectures": [ARCHITECTURES[config.model_type]]}
    if start is not None:
        theirs = WeightsFolder(start).config
        described |= {name: theirs[name] for name in TOKENS if name in theirs}
    described["torch_dtype"] = dtype
    names = Names(config, plan.model)
    files = Files(staged)
    for group in groups(source.shapes, names):
        files.add(converted(group, source, names, dtype_of(dtype)))
    files.close()
    write_json(staged / CONFIG, described)


class _Save:
    """The masters in a save, read by name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, read_manifest(folder)["files"]
        damaged = [name for name, hash in self.files.items() if _digest(folder / name) != hash]
        if damaged:
            raise CheckpointError(f"{folder} is damaged: {', '.join(damaged)}")
        index = read_index(folder / SAVED).state_dict_metadata
        found = {name: kind for name, kind in index.items() if name.startswith(MASTER)}
        self.kinds = {name.removeprefix(MASTER): kind for name, kind in found.items()}
        self.shapes = {name: tuple(kind.size) for name, kind in self.kinds.items()}
        if adapters := [name for name in self.shapes if name.endswith((A, B))]:
            raise CheckpointError(f"{folder} has adapters, {adapters[0]} among them")

    def read(self, name: str) -> Tensor:
        """A weight, whole, in the dtype of its master."""
        kind: Any = self.kinds[name]
        found = torch.zeros(kind.size, dtype=kind.properties.dtype)
        reader = Reader(self.folder, files=set(self.files))
        state: dict[str, Any] = {f"{MASTER}{name}": boxed(found)}
        load(state, storage_reader=reader, planner=Loading(), no_dist=True)
        return found


def groups(shapes: Mapping[str, tuple[int, ...]], names: Names) -> Iterator[list[str]]:
    """Weights of ours that lie in the same tensors of theirs, in the order of the layers."""
    found: dict[str, list[str]] = {}
    for name in sorted(shapes, key=_order):
        found.setdefault(_parts(name, shapes[name], names)[0][1].name, []).append(name)
    yield from found.values()


def _order(name: str) -> tuple[object, ...]:
    words = name.split(".")
    layer = int(words[1]) if words[0] == "layers" else -1
    return name.startswith(("norm.", "head.")), layer, name


def _parts(name: str, shape: tuple[int, ...], names: Names) -> list[tuple[int | None, Part]]:
    """Where a weight lies in theirs, with the number of the expert."""
    if not routed(name):
        return [(None, part) for part in names.parts(name, shape)]
    return [
        (expert, part)
        for expert in range(shape[0])
        for part in names.of_expert(name, shape[1:], expert)
    ]


def converted(group: list[str], source: Source, names: Names, dtype: torch.dtype) -> Tensors:
    """The tensors of theirs that a group of weights makes."""
    found: Tensors = {}
    filled: dict[str, int] = {}
    for name in group:
        weight = source.read(name)
        for expert, part in _parts(name, tuple(weight.shape), names):
            matrix = weight if expert is None else weight[expert]
            if part.name not in found:
                shape = (part.of, *matrix.shape[1:])
                shape = shape[::-1] if part.turned else shape
                shape = shape if part.expert is None else (len(weight), *shape)
                # A correction of 0.001 a step would be lost in 16 bits, and is read in 32.
                wide = dtype if not name.endswith(".correction") else at_least_32(dtype)
                found[part.name] = torch.empty(shape, dtype=wide)
            rows = matrix[part.at : part.at + part.rows]
            rows_of(found[part.name], part).copy_(_as_theirs(rows, part))
            filled[part.name] = filled.get(part.name, 0) + rows.numel()
    for name, tensor in found.items():
        if filled[name] != tensor.numel():
            raise CheckpointError(f"the save has not all of {name}")
    return found


def at_least_32(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, of at least 32 bits."""
    return torch.promote_types(dtype, torch.float32)


def rows_of(theirs: Tensor, part: Part) -> Tensor:
    """The rows of a tensor of theirs that a part of ours lies in."""
    theirs = theirs if part.expert is None else theirs[part.expert]
    rows = slice(part.row, part.row + (part.rows - 1) * part.step + 1, part.step)
    return theirs[:, rows].T if part.turned else theirs[rows]


def _as_theirs(rows: Tensor, part: Part) -> Tensor:
    if (part.scale, part.shift) == (1.0, 0.0):
        return rows
    return rows.double() / part.scale - part.shift


# ── Adapters on a folder ──────────────────────────────────────────────────────


def _adapted(plan: Plan, save: Path, start: Path | None, staged: Path, dtype: str | None) -> None:
    if start is None:
        raise CheckpointError(
            f"{save} has adapters on a save: `python -m parlay.runtime.merge` adds them in, and "
            "--save names what it makes"
        )
    low, base = masters(save), WeightsFolder(start)
    names = Names(base.config, plan.model)
    changes: dict[str, list[tuple[str, Part]]] = {}
    for pair in sorted({name.rpartition(".")[0] for name in low}):
        if not {pair + A, pair + B} <= set(low):
            raise CheckpointError(f"{save} holds something other than adapters: {pair}")
        shape = len(low[pair + B]), low[pair + A].shape[1]
        for part in names.parts(f"{pair}.weight", shape):
            changes.setdefault(part.name, []).append((pair, part))
    if missing := sorted(set(changes) - set(base.files)):
        raise CheckpointError(f"{start} has no {missing[0]}")
    scale, files = plan.lora.alpha / plan.lora.rank, Files(staged)
    for name in base.files:
        try:
            tensor = base.slice(name)[:]
        except KeyError:
            raise CheckpointError(f"{start} has no {name} where its index says") from None
        kept = dtype_of(dtype) if dtype and tensor.is_floating_point() else tensor.dtype
        if name in changes:
            tensor = tensor.double()
            for pair, part in changes[name]:
                rows = low[pair + B][part.at : part.at + part.rows].double()
                change = scale * (rows @ low[pair + A].double()) / part.scale
                rows_of(tensor, part).add_(change)
        files.add({name: tensor.to(kept)})
    files.close()
    write_json(staged / CONFIG, base.config | ({"torch_dtype": dtype} if dtype else {}))


def _digest(path: Path) -> str:
    return digest(path) if path.is_file() else ""


# ── Command ───────────────────────────────────────────────────────────────────


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m parlay.runtime.export")
    parser.add_argument("code", type=Path, help="the emitted folder")
    parser.add_argument("--to", type=Path, required=True, help="the new folder")
    parser.add_argument("--save", type=Path, help="default: the newest of the run's saves")
    parser.add_argument("--dtype", choices=DTYPES, help="default: the dtype of the products")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    root = Path(os.environ.get("PARLAY_OUT") or asked.code)
    try:
        plan = Plan.load(asked.code / "plan.json")
        lora = plan.get("lora")
        if lora is not None and asked.save is not None and not _has_adapters(asked.save):
            plan, lora = Plan.of({k: v for k, v in plan.to_dict().items() if k != "lora"}), None
        start = _start(plan, root)
        saves = plan.get("checkpoint")
        if asked.save is None and saves is None:
            parser.error(f"{asked.code} saves nothing: --save names a save")
        made = export(
            plan,
            save=newest(asked.save or root / (saves or {})["path"]),
            to=asked.to,
            start=start if start is not None and is_folder(start) else None,
            dtype=asked.dtype,
        )
    except (OSError, ValueError, CheckpointError, Damaged, ForeignError, UnnamedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if lora is None and start is not None and not is_folder(start):
        print(f"note: {start} is not here: it would give the tokenizer", file=sys.stderr)
    print(made)
    return 0


def _start(plan: Plan, root: Path) -> Path | None:
    """What training started from, where the file names it."""
    lora = plan.get("lora")
    if lora is not None:
        return root / lora.base if "base" in lora else None
    return Path(plan.weights) if "weights" in plan else None


def _has_adapters(path: Path) -> bool:
    index = read_index(newest(path) / SAVED).state_dict_metadata
    return any(name.endswith(A) for name in index)


if __name__ == "__main__":
    sys.exit(main())
