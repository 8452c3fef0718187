"""Gradients, master weights and optimizer state, as flat buffers.

`Gradients` and `AdamW` hold everything on every rank; `ShardedGradients` makes of the same
optimizer a sharded one (ZeRO-1): after a reduce_scatter a rank owns 1/n of the gradients, keeps the
master weights and the state of that shard alone, and the updated weights are gathered. The borders
of shards ignore those of weights.

Gradients are summed everywhere and averaged nowhere: the loss is already divided by the number of
labels of the global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from parlay.runtime.collectives import reduce_scatter
from parlay.runtime.mesh import Axis
from parlay.runtime.precision import wide
from parlay.runtime.weights import (
    Piece,
    Place,
    Region,
    Weights,
    counted,
    end_of,
    regions,
    shard_of,
)
from torch import Tensor, nn

# ── Gradients ─────────────────────────────────────────────────────────────────


class Slice(NamedTuple):
    """A piece of a weight's gradient or state; `offset` counts elements of the flattened weight."""

    name: str
    offset: int
    tensor: Tensor


class Owned:
    """Gradients of which `own`, flat, are complete on this rank; it updates their weights."""

    own: Tensor
    pieces: Sequence[Piece]
    """Where weights lie in `own`."""

    def of(self, region: Region) -> Tensor:
        """The gradients of a region."""
        return self.own[region.start : region.stop]

    def regions(self) -> list[Region]:
        """`own` as runs of what decays and of what does not."""
        return regions(self.pieces)

    def weights_of(self, region: Region) -> Tensor:
        """The weights of a region, in the memory that an update writes."""
        raise NotImplementedError

    def all_reduce(self, *, axis: Axis, bucket: int) -> None:
        """Sums what is owned over `axis`, in all_reduces of `bucket` elements."""
        parts = self.own.split(bucket) if self.own.numel() else ()
        works = [dist.all_reduce(part, group=axis.group, async_op=True) for part in parts]
        for work in works:
            work.wait()

    def norm(
        self,
        *,
        over: Axis | None = None,
        once: Axis | None = None,
        replicas: Axis | None = None,
    ) -> Tensor:
        """The norm of all gradients.

        `over` is the group that owns all weights together: one all_reduce of one number. Whole
        weights are the same on every rank of `once` and count on its first, copies on the first of
        the ranks that have them, and everything on the first of `replicas`.
        """
        squares = self.squares(once=once, replicas=replicas)
        if over is not None:
            dist.all_reduce(squares, group=over.group)
        return squares.sqrt()

    def squares(self, *, once: Axis | None = None, replicas: Axis | None = None) -> Tensor:
        """What this rank brings to the square of the norm."""
        squares = torch.zeros((), dtype=wide(self.own.dtype), device=self.own.device)
        for start, stop in counted(self.pieces, once=once):
            if replicas is None or replicas.first:
                part = self.own[start:stop]
                squares += torch.linalg.vector_norm(part, dtype=squares.dtype).square()
        return squares

    def clip(self, norm: Tensor, *, limit: float) -> None:
        """Scales all gradients so that their norm, now `norm`, is at most `limit`."""
        self.own.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


class GradientBuffer(Owned):
    """Adds every gradient up in one buffer of `dtype`, and frees it in the model.

    Before: backward runs over any number of microbatches. After: `buffer` holds their sum.
    """

    owned: slice
    """The range whose sums are complete here and whose weights are updated here."""

    def __init__(self, weights: Weights, *, dtype: torch.dtype) -> None:
        self.weights = weights
        self.buffer = torch.zeros_like(weights.buffer, dtype=dtype)
        self.owned = slice(0, self.buffer.numel())
        for place in weights.places:
            parameter = weights.parameters[place.name]
            if parameter.requires_grad:
                view = weights.view(self.buffer, place)
                parameter.register_post_accumulate_grad_hook(_adder(view))

    @property
    def own(self) -> Tensor:
        return self.buffer[self.owned]

    @property
    def pieces(self) -> Sequence[Piece]:  # type: ignore[override]
        return self.weights.pieces(self.owned)

    def weights_of(self, region: Region) -> Tensor:
        return self.weights.buffer[self.owned][region.start : region.stop]

    def sum_whole(self, *, axis: Axis) -> None:
        """Sums the gradients of whole weights, of which each rank of `axis` has the share of its
        piece of the sequence: one all_reduce."""
        dist.all_reduce(self.buffer[: self.weights.whole], group=axis.group)

    def sum(self, names: Collection[str], *, axis: Axis) -> None:
        """Sums the gradients of weights with these ends of names, of which each rank of `axis` has
        a share: one all_reduce. A rank that holds none of them sends nothing."""
        views = [
            self.weights.view(self.buffer, place).flatten()
            for place in self.weights.places
            if end_of(place.name) in names
        ]
        if not views or axis.size == 1:
            return
        together = views[0] if len(views) == 1 else torch.cat(views)
        dist.all_reduce(together, group=axis.group)
        if len(views) > 1:
            parts = together.split([len(view) for view in views])
            for view, part in zip(views, parts, strict=True):
                view.copy_(part)

    def clear(self) -> None:
        """Sets all gradients to zero."""
        self.buffer.zero_()


class Gradients(GradientBuffer):
    """Gradients that every rank of dp owns whole."""

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """The gradients in their own shapes."""
        for place in self.weights.places:
            yield place.name, self.weights.view(self.buffer, place)


class ShardedGradients(GradientBuffer):
    """Gradients of which each rank of `axis` owns an equal shard, once they are reduced.

    The weights are padded to a multiple of the size of `axis`.
    """

    def __init__(self, weights: Weights, *, dtype: torch.dtype, axis: Axis) -> None:
        super().__init__(weights, dtype=dtype)
        self.owned = shard_of(self.buffer, axis)

    def named(self) -> Iterator[Slice]:
        """The owned pieces, flat."""
        yield from slices(self)

    def reduce_scatter(self, *, axis: Axis) -> None:
        """Sums all gradients over `axis`, each rank its own shard: one reduce_scatter."""
        if self.buffer.numel():
            reduce_scatter(self.buffer[self.owned], self.buffer, group=axis.group)


def slices(gradients: Owned) -> Iterator[Slice]:
    """What is owned, weight by weight."""
    for piece in gradients.pieces:
        yield Slice(piece.place.name, piece.offset, gradients.own[piece.start : piece.stop])


def _adder(view: Tensor) -> Callable[[Tensor], None]:
    """Moves a parameter's gradient into `view`."""

    def add(parameter: Tensor) -> None:
        if parameter.grad is not None:  # else it is put off
            view.add_(parameter.grad)
            parameter.grad = None

    return add


# ── Optimizer ─────────────────────────────────────────────────────────────────


class Held(Protocol):
    """The weights of a rank, in one buffer or in several."""

    @property
    def places(self) -> Sequence[Place]:
        """Where each of them lies."""


class AdamW:
    """AdamW over the weights whose gradients a rank owns.

    Where `master` is another dtype than the weights', the weights are kept in it too and rounded
    after each step; the `states` have its dtype. Matrices decay; norms and biases do not.
    """

    def __init__(
        self,
        weights: Held,
        gradients: Owned,
        *,
        master: torch.dtype,
        states: torch.dtype,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        if states != master:
            raise ValueError(f"optimizer states in {states} need master weights in {states} too")
        self.weights, self.gradients = weights, gradients
        self.regions = gradients.regions()
        self.own = [gradients.weights_of(region) for region in self.regions]
        # The same memory where the dtype is the same.
        self.parts = [nn.Parameter(own.to(master)) for own in self.own]
        self.pieces = [
            [p for p in gradients.pieces if region.start <= p.start < region.stop]
            for region in self.regions
        ]
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for region, part in zip(self.regions, self.parts, strict=True):
            groups[region.decays].append(part)
        self.adamw = torch.optim.AdamW(
            [
                {"params": parts, "weight_decay": weight_decay if decays else 0.0}
                for decays, parts in groups.items()
                if parts
            ],
            betas=betas,
            eps=eps,
            fused=self.own[0].is_cuda,
        )

    @torch.no_grad()
    def step(self, *, lr: float) -> None:
        """Updates the owned weights from their gradients."""
        for region, part in zip(self.regions, self.parts, strict=True):
            part.grad = self.gradients.of(region).to(part.dtype)
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()
        for part in self.parts:
            part.grad = None
        self._round()

    def state_dict(self) -> dict[str, Any]:
        """`{"step": n, "slices": {name: {"offset", "master", "exp_avg", "exp_avg_sq"}}}`.

        The tensors are flat views of what this rank owns of the weight, from element `offset` on.
        """
        found: dict[str, dict[str, Any]] = {}
        step = 0
        for region, part, pieces in zip(self.regions, self.parts, self.pieces, strict=True):
            state = self.adamw.state[part]
            step = int(state["step"]) if state else 0
            kinds = {"master": part.detach()}
            for kind in ("exp_avg", "exp_avg_sq"):
                kinds[kind] = state[kind] if state else torch.zeros_like(kinds["master"])
            for piece in pieces:
                start, stop = piece.start - region.start, piece.stop - region.start
                mine = {kind: buffer[start:stop] for kind, buffer in kinds.items()}
                found[piece.place.name] = {"offset": piece.offset, **mine}
        return {"step": step, "slices": found}

    @torch.no_grad()
    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Takes over the state of the same slices; the owned weights follow their master."""
        for part in self.parts:
            self.adamw.state[part] = {
                "step": torch.tensor(
                    float(saved["step"]), device=part.device if part.is_cuda else None
                ),
                "exp_avg": torch.zeros_like(part),
                "exp_avg_sq": torch.zeros_like(part),
            }
        for name, mine in self.state_dict()["slices"].items():
            theirs = saved["slices"].get(name)
            if theirs is None:
                raise ValueError(f"the saved state has no {name}")
            for kind in ("master", "exp_avg", "exp_avg_sq"):
                same = theirs["offset"] == mine["offset"]
                if not same or theirs[kind].numel() != mine[kind].numel():
                    raise ValueError(
                        f"{name}: this rank owns {mine[kind].numel()} elements from "
                        f"{mine['offset']}, the saved state has {theirs[kind].numel()} "
                        f"from {theirs['offset']}"
                    )
                mine[kind].copy_(theirs[kind].flatten())
        self._round()

    def _round(self) -> None:
        """The owned weights are their master, rounded."""
        for own, part in zip(self.own, self.parts, strict=True):
            if own.dtype != part.dtype:
                own.copy_(part)
