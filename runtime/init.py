"""Initial weights: the same ones in any layout.

The rows of a weight are drawn in blocks, each from a seed of its own, so that a rank draws only the
blocks it holds rows of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from math import sqrt
from typing import Any

import torch
from parlay.runtime.mesh import Axis
from parlay.runtime.plan import Plan
from parlay.runtime.weights import Copies, Dealt, copies_of, cut_of, end_of, routed
from torch import Tensor, nn

BLOCK = 256
"""The rows of a block."""

_VOCABULARY = ("embedding.weight", "head.weight")
_RESIDUAL = (".o.weight", ".down.weight")
_SCORES = ("attention.sinks",)
"""Vectors that are drawn as a matrix of one column."""
_ZEROS = (".bias", ".correction")


@torch.no_grad()
def fill(
    model: nn.Module,
    *,
    plan: Plan,
    cut: Mapping[str, int] | None = None,
    axis: Axis | None = None,
    copies: Copies = (),
    dealt: Dealt | None = None,
    gathered: Callable[[Tensor], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Fills the parameters of `model`: norm weights with ones, biases with zeros, others drawn.

    Where `cut` names a dim for a weight, the parameter is this rank's piece of it along that dim;
    where `copies` names ranks of `axis`, these neighbours have the same piece, and `dealt` says
    which routed experts it holds. Each of these is drawn on its own, as the matrix `NAME/NUMBER`.
    Under `gathered(parameter)` a weight that is cut over other ranks is whole; where it gives a
    slice, these elements alone have to be right, since they are all that this rank keeps. Where the
    plan names `weights` nothing is drawn: they are read, or a save is.
    """
    if getattr(plan, "weights", None) is not None:
        return
    for name, parameter in model.named_parameters():
        with gathered(parameter) as given:
            kept = given if isinstance(given, slice) else slice(0, parameter.numel())
            if dealt is not None and routed(name):
                _fill_experts(name, parameter, plan=plan, dealt=dealt, kept=kept)
            else:
                _fill(name, parameter, plan=plan, cut=cut, axis=axis, copies=copies, kept=kept)


def _fill_experts(name: str, parameter: Tensor, *, plan: Plan, dealt: Dealt, kept: slice) -> None:
    """Fills the weight of this rank's experts [experts, outputs, inputs]."""
    first = 0 if dealt.ep is None else dealt.ep.rank * len(parameter)
    end, dim = end_of(name), dealt.cut[end_of(name)] - 1
    size = parameter[0].numel()
    for place, matrix in enumerate(parameter):
        start, stop = max(kept.start - place * size, 0), min(kept.stop - place * size, size)
        if start < stop:
            _fill(
                name,
                matrix,
                plan=plan,
                cut={end: dim},
                axis=dealt.etp,
                copies=(),
                kept=slice(start, stop),
                which=f"/{first + place}",
            )


def _fill(
    name: str,
    parameter: Tensor,
    *,
    plan: Plan,
    cut: Mapping[str, int] | None,
    axis: Axis | None,
    copies: Copies,
    kept: slice,
    which: str = "",
) -> None:
    """Fills the elements `kept` of a parameter, or, with `which` behind its name, of an expert's;
    others may be zeros."""
    if parameter.dim() == 1 and not name.endswith(_SCORES):
        parameter.fill_(0.0 if name.endswith(_ZEROS) else 1.0)
        return
    if name.endswith(".lora_b"):  # adapters start at nothing
        parameter.zero_()
        return
    dim = cut_of(name, cut or {})
    rank, size = (axis.rank, axis.size) if axis is not None and dim is not None else (0, 1)
    alike = copies_of(name, copies)
    if alike is not None:
        rank, size = rank // alike.size, size // alike.size
    parameter = parameter if parameter.dim() > 1 else parameter.unsqueeze(1)
    rows, columns = parameter.shape
    shape = [rows * size if dim == 0 else rows, columns * size if dim == 1 else columns]
    if name.endswith(_VOCABULARY):
        shape[0] = plan.model.vocab
    std = plan.init.std
    if f".{name}".endswith(_RESIDUAL):
        std /= sqrt(2 * plan.model.layers)
    # This rank's piece of the weight; rows from shape[0] on are padding and stay zero.
    first = rank * rows if dim == 0 else 0
    stop = min(first + rows, shape[0])
    left = rank * columns if dim == 1 else 0
    parameter.zero_()
    at, stop = first + kept.start // columns, min(stop, first - (-kept.stop // columns))
    while at < stop:
        block, skipped = divmod(at, BLOCK)
        drawn = draw(name + which, block, rows=shape[0], columns=shape[1], seed=plan.seed) * std
        piece = drawn[skipped : skipped + stop - at, left : left + columns]
        parameter[at - first : at - first + len(piece)] = piece
        at += len(piece)


def draw(name: str, block: int, *, rows: int, columns: int, seed: int) -> Tensor:
    """Block `block` of a weight [rows, columns]: float32, standard deviation 1."""
    key = int.from_bytes(sha256(f"{seed}/{name}/{block}".encode()).digest()[:8], "big") >> 1
    rows = min(BLOCK, rows - block * BLOCK)
    return torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(key), dtype=torch.float32
    )
