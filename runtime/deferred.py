"""Weight gradients put off: the second half of a backward that is split (arXiv:2401.10241).

A backward inside of `put_off` makes gradients of inputs. Linears leave there what the gradients of
their weights are made of, their input and the gradient of their output; `Late.run` makes them from
it, once: nothing is computed forward again for it, be it kept or computed again for the first half.
Gradients of norms, sinks and embeddings come with the first half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Found = Sequence[Tensor | None]
"""The gradient of each weight and bias, None where none is asked for."""


class Task(NamedTuple):
    """One linear's gradients: `finish` takes what `start`, which may send, has given."""

    start: Callable[[], Any]
    finish: Callable[[Any], None]


class Late:
    """What the first half of one microbatch's backward through one stage has left."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def put(
        self,
        leaves: Sequence[Tensor | None],
        make: Callable[[Any], Found],
        *,
        start: Callable[[], Any] = lambda: None,
    ) -> list[None]:
        """Puts off what `make` gives for `leaves`; returns what autograd has of them for now."""

        def finish(started: Any) -> None:
            _Second.apply(make, started, *leaves).backward()

        self.tasks.append(Task(start, finish))
        return [None] * len(leaves)

    def hold(self, then: Callable[[], None]) -> None:
        """Does `then` in the order of the backward, among the gradients that were put off."""
        self.tasks.append(Task(lambda: None, lambda _: then()))

    def run(self) -> None:
        """The second half, in the order of the first; what a task sends first goes while the one
        before it runs. After: nothing is left."""
        global _second
        _second = True
        try:
            started = self.tasks[0].start() if self.tasks else None
            while self.tasks:
                task = self.tasks.pop(0)
                ahead = self.tasks[0].start() if self.tasks else None
                task.finish(started)
                started = ahead
        finally:
            _second = False


# Of this process: backwards run on threads of their own where there are GPUs.
_splits = False
_late: Late | None = None
_second = False


@contextmanager
def splitting(splits: bool) -> Iterator[None]:
    """Inside, where `splits`, `linear` builds graphs whose backward can be put off."""
    global _splits
    _splits = splits
    try:
        yield
    finally:
        _splits = False


@contextmanager
def put_off() -> Iterator[Late]:
    """Inside, a backward leaves gradients of weights in what this yields."""
    global _late
    _late = Late()
    try:
        yield _late
    finally:
        _late = None


def late() -> Late | None:
    """Where the backward that runs leaves gradients of weights; None where it makes them itself."""
    return _late


def second() -> bool:
    """Whether what runs is a second half."""
    return _second


class _Second(torch.autograd.Function):
    """The second half as a backward of its own, so that gradients come where others of the same
    weights do, without a copy."""

    @staticmethod
    def forward(ctx: Any, make: Callable[[Any], Found], started: Any, *leaves: Tensor) -> Tensor:
        ctx.make, ctx.started = make, started
        return next(leaf for leaf in leaves if leaf is not None).new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.make(ctx.started)


# ── Linear ────────────────────────────────────────────────────────────────────


class Linear(nn.Linear):
    """`nn.Linear` whose weight gradient can be put off."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` of x [b, s, i] and weight [o, i], whose weight gradient can be put off."""
    if not _splits:
        return F.linear(x, weight, bias)
    out: Tensor = _Linear.apply(x, weight, bias)
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # Recompute gives back what it saved without its name: the leaves are kept as they are.
        ctx.leaves = weight, bias
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        x = x.detach()  # from the graph, which would keep the input of the stage
        wanted = ctx.needs_input_grad
        of_x = gradient @ weight if wanted[0] else None

        def make(_: Any) -> Found:
            flat = gradient.flatten(0, -2)
            of_weight = flat.T @ x.flatten(0, -2) if wanted[1] else None
            return of_weight, flat.sum(0) if wanted[2] else None

        left = late()
        found = make(None) if left is None else left.put(ctx.leaves, make)
        return of_x, *found
