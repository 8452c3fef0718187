"""Weights to start from, out of a Hugging Face folder: each rank reads what it holds of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

import torch
from parlay.runtime.boxes import Boxes
from parlay.runtime.hf_folder import WeightsFolder, differences
from parlay.runtime.hf_names import Names, Part, UnnamedError
from parlay.runtime.mesh import Axis
from parlay.runtime.optimizer import Optimizer
from parlay.runtime.plan import Plan
from parlay.runtime.saved import CheckpointError, Saved
from parlay.runtime.weights import routed
from torch import Tensor

UNREAD: Final = re.compile(r".*\.(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)")
"""What older files keep beside weights, and follows from the config."""
LAYER: Final = re.compile(r"model\.layers\.(\d+)\.")
NUMBER: Final = re.compile(r"\.\d+\.")


@torch.no_grad()
def load_weights(plan: Plan, optimizer: Optimizer, *, tp: Axis | None = None) -> None:
    """After: the masters of `optimizer` are the weights in the folder `plan.weights`, and what this
    rank owns of the weights is these, rounded. As that of data, the path counts from where training
    is started.
    """
    saved = Saved(plan, tp=tp)
    path = Path(plan.weights)
    slices = optimizer.state_dict()["slices"]
    places = {place.name: place for place in optimizer.weights.places}
    state = {
        name: saved.boxes(places[name], owned["offset"], owned["master"])
        for name, owned in slices.items()
    }
    read_weights(plan, saved, path, state)
    optimizer.load_state_dict({"step": 0, "slices": slices})


def read_weights(plan: Plan, saved: Saved, path: Path, state: Mapping[str, Boxes]) -> None:
    """After: `state`, by the names of weights, is what stands in the Hugging Face folder `path`.

    Every rank has to come here; all of them raise CheckpointError where one finds something wrong,
    and nothing is read before all have looked.
    """
    saved.agreed(lambda: _fits(plan, path))
    reader = _Reader(plan, path, state)
    _together(saved, path, reader.wrong)
    read = saved.gathered(dict.fromkeys(map(pattern, reader.looked), ""))
    saved.agreed(lambda: _nothing_left(plan, reader.folder, read))
    _together(saved, path, reader.read)


def _together(saved: Saved, path: Path, step: Callable[[], Mapping[str, str]]) -> None:
    """Takes a step on every rank, and ends all where one of them has something to tell."""
    try:
        told = dict(step())
    except (CheckpointError, UnnamedError, OSError, RuntimeError) as error:
        told = {"": str(error)}
    found = saved.gathered(told)
    if found:
        words = "; ".join(f"{name} {what}".strip() for name, what in sorted(found.items())[:3])
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise CheckpointError(f"{path} has no weights for this model: {words}{more}")


def _nothing_left(plan: Plan, folder: WeightsFolder, read: Collection[str]) -> None:
    if left := left_over(plan, folder, read):
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        names = ", ".join(repr(name[:80]) for name in left[:3])
        raise CheckpointError(f"{folder.path} has {names}{more}, which this model has no place for")


def _fits(plan: Plan, path: Path) -> None:
    """Whether the folder is one of this model, by its config; asked of one rank."""
    if (path / "committed.json").exists():
        raise CheckpointError(
            f"{path} is a save of Parlay's: `python -m parlay.runtime.export` makes a Hugging Face "
            "folder of one"
        )
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is {'no folder' if path.exists() else 'not there'}: a folder with config.json "
            "and safetensors is read, as `hf download` makes one"
        )
    found = WeightsFolder(path)
    if "quantization_config" in found.config:
        raise CheckpointError(f"{path} has quantized weights: convert it to bfloat16 first")
    ours = plan.get("hugging_face")
    if ours is None:
        raise CheckpointError(f"{path}: plan.json names no family of Hugging Face's for this model")
    if wrong := differences(ours.to_dict(), found.config):
        raise CheckpointError(f"{path / 'config.json'}: {'; '.join(wrong[:4])}")


def left_over(plan: Plan, folder: WeightsFolder, read: Collection[str]) -> list[str]:
    """Tensors of the folder that no weight of the model is read from; `read` are those that are, a
    layer and an expert for all."""
    names = Names(folder.config, plan.model)
    return [
        name
        for name in sorted(folder.files)
        if pattern(name) not in read and not _passed_over(name, plan, names)
    ]


def _passed_over(name: str, plan: Plan, names: Names) -> bool:
    if UNREAD.fullmatch(name) or (names.tied and name == f"{names.family.ends['head']}.weight"):
        return True
    found = LAYER.match(name)  # layers that predict further tokens stand behind the others
    further = found is not None and int(found[1]) >= plan.model.layers
    return further and names.kind in ("deepseek_v3", "glm4_moe")


def pattern(name: str) -> str:
    """`model.layers.7.mlp.experts.3.up_proj.weight` -> `model.layers.*.mlp.experts.*.up_proj…`"""
    return NUMBER.sub(".*.", name)


class Span(NamedTuple):
    """A run of rows of a box of ours, as part of a tensor of theirs."""

    part: Part
    first: int
    """Row of theirs, or column where it is turned."""
    columns: tuple[tuple[int, int], ...]
    to: Tensor
    """What it goes to: rows of the box."""


class _Reader:
    def __init__(self, plan: Plan, path: Path, state: Mapping[str, Boxes]) -> None:
        self.plan, self.path, self.state = plan, path, state
        self.looked: set[str] = set()
        """The tensors that this rank reads from."""

    def wrong(self) -> dict[str, str]:
        """What is missing, or of another shape."""
        self.folder = WeightsFolder(self.path)
        self.names = Names(self.folder.config, self.plan.model)
        found: dict[str, str] = {}
        for ours, boxes in self.state.items():
            for span in self.spans(ours, boxes):
                part = span.part
                if part.name in self.looked:
                    continue
                self.looked.add(part.name)
                rest = tuple(boxes.shape)[2 if routed(ours) else 1 :]
                shape = (*rest, part.of) if part.turned else (part.of, *rest)
                shape = shape if part.expert is None else (boxes.shape[0], *shape)
                if part.name not in self.folder.files:
                    found[part.name] = "is missing"
                elif words := self.folder.wrong(part.name, shape):
                    found[part.name] = words
        return found

    def read(self) -> dict[str, str]:
        """Fills the boxes; a number that is none is told."""
        found: dict[str, str] = {}
        for ours, boxes in self.state.items():
            for span in self.spans(ours, boxes):
                piece = self._piece(span)
                # One pass that makes nothing: a nan is the least and the most of what it is in.
                if not all(map(isfinite, map(float, piece.aminmax()))):
                    found[span.part.name] = "has numbers that are none"
                span.to.copy_(piece)
        return found

    def _piece(self, span: Span) -> Tensor:
        part, count = span.part, len(span.to)
        rows = span.first, span.first + (count - 1) * part.step + 1
        ranges = (*span.columns, rows) if part.turned else (rows, *span.columns)
        if part.expert is None:
            piece = self.folder.read(part.name, *ranges)
        else:
            piece = self.folder.read(part.name, (part.expert, part.expert + 1), *ranges)[0]
        piece = piece.T if part.turned else piece
        piece = piece[:: part.step] if part.step > 1 else piece
        if (part.scale, part.shift) != (1.0, 0.0):
            piece = (piece.double() + part.shift) * part.scale
        return piece

    def spans(self, ours: str, boxes: Boxes) -> Iterator[Span]:
        """The boxes of a weight, by the tensors of theirs that they lie in."""
        shape = tuple(boxes.shape)
        for offsets, tensor in boxes.boxes:
            if not routed(ours):
                parts = self.names.parts(ours, shape)
                yield from _spans(parts, offsets, tensor)
                continue
            for number, matrix in enumerate(tensor):
                parts = self.names.of_expert(ours, shape[1:], offsets[0] + number)
                yield from _spans(parts, offsets[1:], matrix)


def _spans(parts: list[Part], offsets: tuple[int, ...], tensor: Tensor) -> Iterator[Span]:
    top, bottom = offsets[0], offsets[0] + len(tensor)
    columns = tuple((at, at + size) for at, size in zip(offsets[1:], tensor.shape[1:], strict=True))
    for part in parts:
        first, last = max(top, part.at), min(bottom, part.at + part.rows)
        if first < last:
            row = part.row + (first - part.at) * part.step
            yield Span(part, row, columns, tensor[first - top : last - top])
