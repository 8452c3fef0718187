"""Compares what every rank computed with the plain model, weight by weight.

The error of a tensor is max|a - b| / max|b|, where b is the reference's whole weight or gradient.
What is not a number, or has no place in the reference, is as far off as can be.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from parlay.runtime.axes import Grid
from torch import Tensor

LIMIT = 1e-10
FAR = sys.float_info.max
TOLD = 8
"""So many sentences of one kind are told; the rest is counted."""

VANISHING = 1e-12
"""A gradient below this share of the largest one is rounding: the bias of a key has none."""


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A row of weights.json: a weight of the pipeline rank `stage`, and how tp cuts it."""

    name: str
    shape: tuple[int, ...]  # of the whole weight, without padding
    tp_dim: int | None
    stage: int
    padded_rows: int  # rows of zeros that follow those of `shape`, before the cut
    tp_copies: int = 1  # neighbouring ranks of tp that hold the same piece
    expert_dim: int | None = None  # of experts: what etp cuts; dim 0 is dealt over ep

    def piece(self, whole: Tensor, *, rank: int, size: int) -> Tensor:
        """The part of rank `rank` of `size` on tp; `whole` is the weight or its gradient."""
        if self.padded_rows:
            whole = torch.cat((whole, whole.new_zeros(self.padded_rows, *whole.shape[1:])))
        if self.tp_dim is None:
            return whole
        part = whole.shape[self.tp_dim] * self.tp_copies // size
        return whole.narrow(self.tp_dim, rank // self.tp_copies * part, part)


# ── One comparison ────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class Comparison:
    """One kind of tensor over all ranks: how many there were, the worst, and what is wrong."""

    what: str
    compared: int = 0
    worst: str | None = None
    worst_error: float = -1.0
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, a: Tensor, b: Tensor, *, scale: float, where: str) -> None:
        """`scale` is max|b| of the whole tensor that b is of."""
        self.compared += 1
        if a.shape != b.shape:
            self.fault(name, f"is {list(a.shape)}, not {list(b.shape)}", where)
            return
        off = float((a - b).abs().max()) if a.numel() else 0.0
        error = off / max(scale, sys.float_info.min)
        if not error <= FAR:  # infinite, or not a number
            self.fault(name, "is not finite", where)
        elif error > LIMIT:
            self.fault(name, f"is off by {error:.1e}", where, error=error)
        elif error > self.worst_error:
            self.worst, self.worst_error = name, error

    def fault(self, name: str, words: str, where: str, *, error: float = FAR) -> None:
        if error > self.worst_error:
            self.worst, self.worst_error = name, error
        self.faults.append(f"{self.what} {name} {words} on {where}")

    @property
    def passed(self) -> bool:
        return self.compared > 0 and not self.faults

    def result(self) -> dict[str, Any]:
        return {
            "compared": self.compared,
            "max_relative_error": None if self.worst is None else self.worst_error,
            "worst": self.worst,
            "passed": self.passed,
        }

    def failures(self) -> list[str]:
        """The sentences that are told; one, where nothing was compared."""
        if not self.compared and not self.faults:
            return [f"no {self.what} was compared"]
        rest = len(self.faults) - TOLD
        return self.faults[:TOLD] + ([f"{self.what}: {rest} more"] if rest > 0 else [])


# ── All of them ───────────────────────────────────────────────────────────────


class Place(NamedTuple):
    """A rank as the comparisons see it."""

    stage: int
    tp: int  # its rank on tp
    words: str  # what it is called
    experts: tuple[tuple[int, int], tuple[int, int]] = ((0, 1), (0, 1))  # rank and size on ep, etp


class Comparisons:
    """Every rank's record against the reference.

    `records` are what `prove` writes, by rank; `reference` is what `parlay.reference` writes. So
    many neighbours on dp as `shard` own the gradients between them, by default all. The loss is on
    the ranks `last` of pp, by default the last.
    """

    NAMES = ("loss", "gradients", "norm", "initial", "weights")

    def __init__(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        grid: Grid,
        weights: Iterable[Weight],
        reference: Mapping[str, Any],
        shard: int | None = None,
        experts: Grid | None = None,
        last: Collection[int] | None = None,
    ) -> None:
        self.grid, self.reference, self.shard, self.experts = grid, reference, shard, experts
        self.tp_size = grid.size("tp") if "tp" in grid.axes else 1
        self.last = {grid.size("pp") - 1 if "pp" in grid.axes else 0} if last is None else set(last)
        self.weights: dict[int, dict[str, Weight]] = {}
        for weight in weights:
            self.weights.setdefault(weight.stage, {})[weight.name] = weight
        self.vanishing = vanishing(reference["gradients"])
        self.loss = Comparison(what="loss")
        self.norm = Comparison(what="gradient norm")
        self.initial = Comparison(what="initial weight")
        self.gradients = Comparison(what="gradient")
        self.final = Comparison(what="trained weight")
        for rank, record in enumerate(records):
            self._compare(place_of(rank, grid=grid, experts=experts), record)
        self._complete(records)

    def by_name(self) -> dict[str, Comparison]:
        kinds = self.loss, self.gradients, self.norm, self.initial, self.final
        return dict(zip(self.NAMES, kinds, strict=True))

    def _compare(self, place: Place, record: Mapping[str, Any]) -> None:
        self._held(self.initial, place, record["initial"], self.reference["initial"])
        self._held(self.final, place, record["weights"], self.reference["weights"])
        for step, loss in enumerate(record["losses"]):
            expected = self.reference["losses"][step] if place.stage in self.last else None
            self._number(self.loss, step, loss, expected, where=place.words)
        for step, norm in enumerate(record["norms"]):
            self._number(self.norm, step, norm, self.reference["norms"][step], where=place.words)
        for step, gradients in enumerate(record["gradients"]):
            self._gradients(place, step, gradients)

    def _held(
        self,
        comparison: Comparison,
        place: Place,
        found: Mapping[str, Tensor],
        reference: Mapping[str, Tensor],
    ) -> None:
        """The weights of a rank: each that it should hold, and no other."""
        expected = self.weights.get(place.stage, {})
        for name in sorted(found.keys() - expected.keys()):
            comparison.fault(name, "does not belong", place.words)
        for name, weight in expected.items():
            if name not in found:
                comparison.fault(name, "is missing", place.words)
                continue
            # The steps of a vanishing gradient are rounding, scaled up by Adam to any size.
            scale = max_of(reference[name]) if name not in self.vanishing else 1.0
            piece = self._piece(weight, reference[name], place)
            comparison.add(name, found[name], piece, scale=scale, where=place.words)

    def _piece(self, weight: Weight, whole: Tensor, place: Place) -> Tensor:
        """What the rank at `place` has of a weight or its gradient."""
        if weight.expert_dim is None:
            return weight.piece(whole, rank=place.tp, size=self.tp_size)
        for dim, (rank, size) in zip((0, weight.expert_dim), place.experts, strict=True):
            part = whole.shape[dim] // size
            whole = whole.narrow(dim, rank * part, part)
        return whole

    def _gradients(
        self, place: Place, step: int, found: Iterable[tuple[str, int | None, Tensor]]
    ) -> None:
        """Of the gradients of a rank, those it has; a flat piece starts at its offset."""
        reference, expected = self.reference["gradients"][step], self.weights.get(place.stage, {})
        where = f"{place.words} in step {step}"
        largest = max(max_of(gradient) for gradient in reference.values())
        for name, offset, tensor in found:
            if name not in expected or name not in reference:
                self.gradients.fault(name, "does not belong", where)
                continue
            piece = self._piece(expected[name], reference[name], place)
            if offset is not None:
                piece = piece.flatten()[offset : offset + tensor.numel()]
            scale = largest if name in self.vanishing else max_of(reference[name])
            self.gradients.add(name, tensor, piece, scale=scale, where=where)

    def _complete(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Each rank has the gradients of all its weights that are trained; where they come in flat
        pieces, the ranks that hold the same weights have them between them."""
        pieces = any(
            offset is not None for record in records for _, offset, _ in record["gradients"][0]
        )
        owners, owned = [], Counter[tuple[Place, int, str]]()
        for rank, record in enumerate(records):
            owner = place_of(rank, grid=self.grid, experts=self.experts)
            of_experts = owner
            if pieces:
                words = f"the ranks of stage {owner.stage}, tp {owner.tp}"
                if self.shard is not None:
                    plane = [axis for axis in self.grid.axes if axis in ("dp", "cp")]
                    place = self.grid.group_of(rank, plane).index(rank)
                    words += f", copy {place // self.shard}"
                (ep, _), (etp, _) = of_experts.experts
                held = f"the ranks of stage {owner.stage}, ep {ep}, etp {etp}"
                if self.experts is not None and "replicate" in self.experts.axes:
                    held += f", copy {self.experts.coordinate(rank, 'replicate')}"
                of_experts = of_experts._replace(tp=0, words=held)
                owner = owner._replace(words=words, experts=Place(0, 0, "").experts)
            owners += [(owner, False), (of_experts, True)]
            weights = self.weights.get(owner.stage, {})
            for step, gradients in enumerate(record["gradients"]):
                for name, _, tensor in gradients:
                    routed = name in weights and weights[name].expert_dim is not None
                    owned[of_experts if routed else owner, step, name] += tensor.numel()
        for owner, routed in dict.fromkeys(owners):
            for name, weight in self.weights.get(owner.stage, {}).items():
                other = routed != (weight.expert_dim is not None)
                if other or name not in self.reference["gradients"][0]:
                    continue
                whole = self.reference["initial"][name]
                size = self._piece(weight, whole, owner).numel()
                for step in range(len(self.reference["losses"])):
                    have = owned[owner, step, name]
                    if have != size:
                        words = f"has {have} elements of {size}" if have else "is missing"
                        self.gradients.fault(name, words, f"{owner.words} in step {step}")

    @staticmethod
    def _number(
        comparison: Comparison, step: int, a: float | None, b: float | None, *, where: str
    ) -> None:
        name = f"of step {step}"
        if (a is None) != (b is None):
            comparison.fault(name, "is missing" if a is None else "does not belong", where)
        elif a is not None and b is not None:
            pair = torch.tensor([a, b], dtype=torch.float64)
            comparison.add(name, pair[0], pair[1], scale=abs(b), where=where)


def place_of(rank: int, *, grid: Grid, experts: Grid | None = None) -> Place:
    at = grid.coordinates(rank)
    words = " · ".join(f"{axis} {one}" for axis, one in at.items())

    def on(axis: str) -> tuple[int, int]:
        if experts is None or axis not in experts.axes:
            return 0, 1
        return experts.coordinate(rank, axis), experts.size(axis)

    words = f"rank {rank}" + (f" ({words})" if words else "")
    return Place(at.get("pp", 0), at.get("tp", 0), words, (on("ep"), on("etp")))


def max_of(tensor: Tensor) -> float:
    return float(tensor.abs().max())


def vanishing(gradients: Sequence[Mapping[str, Tensor]]) -> set[str]:
    """The weights whose gradients are rounding in every step."""
    alive = set()
    for step in gradients:
        limit = VANISHING * max(max_of(gradient) for gradient in step.values())
        alive |= {name for name, gradient in step.items() if max_of(gradient) > limit}
    return set(gradients[0]) - alive
