"""Master weights of what a rank owns, with state of the same layout: what optimizers share.

Which part of the weights that is, is the gradients' affair: all of it, or a shard (ZeRO).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import torch
from parlay.runtime.plan import Plan
from parlay.runtime.precision import wide
from parlay.runtime.shard import Owned
from parlay.runtime.weights import Place
from torch import Tensor, nn

CHUNK: Final = 1 << 21
"""Elements that are updated at once."""


class Held(Protocol):
    """The weights of a rank, in one buffer or in several."""

    @property
    def places(self) -> Sequence[Place]:
        """Where each of them lies."""


class Steer(NamedTuple):
    """How corrections of routers are moved: by `rate` up for experts with fewer visits than
    `visits`, the mean of a step, and down for those with more (arXiv:2408.15664)."""

    rate: float
    visits: float

    @classmethod
    def of(cls, plan: Plan) -> Steer:
        """Each token of a global batch has `top_k` visits."""
        experts, batch = plan.model.experts, plan.batch
        tokens = batch.global_batch * batch.seq
        return cls(experts.correction_rate, tokens * experts.top_k / experts.count)


class Optimizer:
    """Master weights of what a rank owns, and tensors of state of the same layout.

    Where `master` is another dtype than the weights', the weights are kept in it too and rounded
    after each step; else they are their own masters. With `host` masters and state are in the
    memory of the host: each step takes the gradients there, computes there, and brings the rounded
    weights back.
    """

    kinds: tuple[str, ...] = ()
    """The names of the state, beside `master`."""

    steer: Steer | None = None
    """What moves the corrections of routers, where there are some."""

    def __init__(
        self, weights: Held, gradients: Owned, *, master: torch.dtype, host: bool = False
    ) -> None:
        self.weights, self.gradients = weights, gradients
        self.regions = gradients.regions()
        self.own = [gradients.weights_of(region) for region in self.regions]
        # The same memory where the dtype is the same.
        self.parts = [
            nn.Parameter(own.to("cpu" if host else own.device, master), requires_grad=False)
            for own in self.own
        ]
        self.pieces = [
            [p for p in gradients.pieces if region.start <= p.start < region.stop]
            for region in self.regions
        ]
        self.taken = 0
        """Steps so far."""
        self.state: list[dict[str, Tensor]] = [{} for _ in self.parts]
        """Of each part, by kind."""

    def keep(self, kind: str, dtype: torch.dtype) -> None:
        """Adds zeros of `dtype` to the state of every part."""
        self.kinds += (kind,)
        for part, state in zip(self.parts, self.state, strict=True):
            state[kind] = torch.zeros_like(part, dtype=dtype)

    @torch.no_grad()
    def step(self, *, lr: float) -> None:
        """Updates the owned weights from their gradients."""
        self.taken += 1
        moved = list(self._steered())
        self._update(lr)
        for part, change in moved:
            part += change
        self._round()

    def _steered(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Corrections of routers, and how far each goes; they have no gradient after."""
        for region, part in zip(self.regions, self.parts, strict=True):
            if region.steered:
                assert self.steer is not None, "corrections of routers are moved by a rate"
                counts = self.gradients.of(region)
                yield (
                    part.data,
                    self.steer.rate * (self.steer.visits - counts).sign().to(part.dtype),
                )
                counts.zero_()

    def _update(self, lr: float) -> None:
        raise NotImplementedError

    # ── State ─────────────────────────────────────────────────────────────────

    def state_dict(self) -> dict[str, Any]:
        """`{"step": n, "slices": {name: {"offset", "master", …}}}`: the state by its kinds.

        The tensors are flat views of what this rank owns of the weight, from element `offset` on.
        """
        found: dict[str, dict[str, Any]] = {}
        for n, (region, pieces) in enumerate(zip(self.regions, self.pieces, strict=True)):
            kept = {"master": self.parts[n].detach(), **self.state[n]}
            for piece in pieces:
                start, stop = piece.start - region.start, piece.stop - region.start
                mine = {kind: buffer[start:stop] for kind, buffer in kept.items()}
                found[piece.place.name] = {"offset": piece.offset, **mine}
        return {"step": self.taken, "slices": found}

    @torch.no_grad()
    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Takes over the state of the same slices; the owned weights follow their master."""
        self.taken = int(saved["step"])
        for name, mine in self.state_dict()["slices"].items():
            theirs = saved["slices"].get(name)
            if theirs is None:
                raise ValueError(f"the saved state has no {name}")
            for kind in ("master", *self.kinds):
                same = theirs["offset"] == mine["offset"]
                if not same or theirs[kind].numel() != mine[kind].numel():
                    raise ValueError(
                        f"{name}: this rank owns {mine[kind].numel()} elements from "
                        f"{mine['offset']}, the saved state has {theirs[kind].numel()} "
                        f"from {theirs['offset']}"
                    )
                mine[kind].copy_(theirs[kind].flatten())
        self._resumed()
        self._round()

    def _resumed(self) -> None:
        """Before: `taken` and the state are those that were saved."""

    def _round(self) -> None:
        """The owned weights are their master, rounded."""
        for own, part in zip(self.own, self.parts, strict=True):
            if own.dtype != part.dtype or own.device != part.device:
                own.copy_(part)

    # ── Chunks ────────────────────────────────────────────────────────────────

    def chunks(self) -> Iterator[tuple[bool, Tensor, Tensor, dict[str, Tensor]]]:
        """What is owned, a chunk at a time: whether it decays, its gradient in at least float32,
        the masters to write, and the state to write."""
        for region, part, state in zip(self.regions, self.parts, self.state, strict=True):
            whole = self.gradients.of(region)
            for at in range(0, len(part), CHUNK):
                span = slice(at, at + CHUNK)
                # On its way to the host in its own dtype, which nothing has to be made for.
                gradient = whole[span].to(part.device).to(wide(part.dtype))
                kept = {kind: buffer[span] for kind, buffer in state.items()}
                yield region.decays, gradient, part.data[span], kept
