"""What multi-head latent attention sends over tp (arXiv:2405.04434, section 2.1).

Latents and the rotated features of keys are made by whole weights, of the tokens that a rank has;
the heads that are made of them are cut. So what travels is a few features a token, together in one
message, in place of the residual stream. A query that is not compressed is made of the stream.
"""

from __future__ import annotations

from typing import NamedTuple

from parlay.compiler.spec.blocks import Model


class Latents(NamedTuple):
    """Features of a token: those that travel forward, and their gradients backward; those that are
    gathered again for the gradients of weights; and whether the stream travels besides."""

    sent: int
    again: int
    stream: bool


def latents(model: Model) -> Latents | None:
    """The column side of attention; None where keys and values are made of the stream alone."""
    mla = model.mla
    if mla is None:
        return None
    low = (mla.q_rank or 0) + mla.kv_rank
    return Latents(low + mla.rope_dim, low, mla.q_rank is None)
