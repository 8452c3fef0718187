"""Rotary features of different wave lengths that are stretched apart, for longer sequences.

Of r features that turn, i and i + r/2 turn together by `theta`^(-2i/r) radians a token. What is
stretched turns `factor` times slower. A feature's turns in `original` tokens say which that is.
"""

from __future__ import annotations

from math import ceil, floor, log, pi

import torch
from parlay.runtime.plan import Section
from torch import Tensor


def llama3(theta: float, r: int, asked: Section, *, device: torch.device) -> Tensor:
    """[r/2] float64 radians a token, as Llama 3.1 has them.

    What turns fewer than `low_freq` times is stretched, what turns more than `high_freq` times
    stays, and between them the share of what stays grows evenly with the turns.
    """
    own = _own(theta, r, device)
    turns = asked.original / (2 * pi) * own
    stays = ((turns - asked.low_freq) / (asked.high_freq - asked.low_freq)).clamp(0, 1)
    return _mixed(own, stays, asked.factor)


def yarn(theta: float, r: int, asked: Section, *, device: torch.device) -> Tensor:
    """[r/2] float64 radians a token (arXiv:2309.00071, section 3.2).

    Features up to the one that turns `beta_fast` times stay, those from the one that turns
    `beta_slow` times on are stretched, and between them the share of what stays falls evenly with
    the number of the feature. `truncate` moves both ends out to whole numbers.
    """
    first, last = (
        r * log(asked.original / (2 * pi * turns)) / (2 * log(theta))
        for turns in (asked.beta_fast, asked.beta_slow)
    )
    if asked.truncate:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, r - 1)
    numbers = torch.arange(r // 2, dtype=torch.float64, device=device)
    width = last - first if last != first else 1e-3  # a step where both ends meet
    stays = 1 - ((numbers - first) / width).clamp(0, 1)
    return _mixed(_own(theta, r, device), stays, asked.factor)


def longrope(theta: float, r: int, asked: Section, *, device: torch.device) -> Tensor:
    """[r/2] float64 radians a token (arXiv:2402.13753): each feature by a factor of its own."""
    return _own(theta, r, device) / torch.tensor(asked.factors, dtype=torch.float64, device=device)


def _own(theta: float, r: int, device: torch.device) -> Tensor:
    """What features turn a token where nothing is stretched."""
    even = torch.arange(0, r, 2, dtype=torch.float64, device=device)
    return theta ** (-even / r)


def _mixed(own: Tensor, stays: Tensor, factor: float) -> Tensor:
    """`stays` of `own`, and the rest of what is stretched."""
    return own * stays + own / factor * (1 - stays)
