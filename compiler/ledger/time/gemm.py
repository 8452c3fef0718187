"""Matrix products: nominal seconds of (m x k)·(k x n), with the losses that follow from the shape.

A GPU works on tiles of 128 x 128 to 128 x 256, a wave of one or two tiles a multiprocessor at a
time; what the last tile and the last wave leave empty is lost (NVIDIA, "Matrix Multiplication
Background"; the tile and wave study of Hugging Face's BLOOM chronicles). A short k leaves the
pipeline of loads half filled. A product is also bound by the bytes it moves.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from parlay.compiler.ledger.time.machine import Machine

TILE_M, TILE_N = 128, 128
FILL_S = 0.9e-6
"""Seconds that a tile's pipeline of loads takes to fill, and its result to leave."""


def lost(m: float, n: float, k: float, units: int, flops: float) -> float:
    """By how much the shape slows a product down: 1 where nothing is lost."""
    tiles_m, tiles_n = ceil(m / TILE_M), ceil(n / TILE_N)
    tile = (tiles_m * TILE_M / m) * (tiles_n * TILE_N / n)
    waves = tiles_m * tiles_n / units
    # Half a wave is lost in the mean; kernels with split k or persistent tiles win part of it back.
    wave = 1.0 + 0.5 * (ceil(waves) / waves - 1.0) if waves > 1 else waves**-0.7
    inside = 2.0 * TILE_M * TILE_N * k / (flops / units)  # of one tile, at full rate
    odd = 1.0 if k % 8 == 0 and n % 8 == 0 else 1.5
    return (1.0 + 0.5 * (tile - 1.0)) * wave * (1.0 + FILL_S / inside) * odd


@lru_cache(maxsize=4096)
def _seconds(
    m: float, n: float, k: float, flops: float, rate: float, units: int, width: float
) -> float:
    work = 2.0 * m * n * k / flops * lost(m, n, k, units, flops)
    moved = (width * (m * k + n * k) + 2.0 * m * n) / rate
    return float((work**4 + moved**4) ** 0.25)


def seconds(m: float, n: float, k: float, machine: Machine, *, low: bool = False) -> float:
    """Nominal seconds at the dense peak; `low` for fp8 or fp4. No work, no time."""
    if not (m and n and k):
        return 0.0
    flops = machine.low_flops if low else machine.wide_flops
    return _seconds(m, n, k, flops, machine.memory_rate, machine.units, 1.0 if low else 2.0)


def backward(
    m: float, n: float, k: float, machine: Machine, *, low: bool = False, frozen: bool = False
) -> float:
    """The two products of the backward: (m x n)·(n x k) and, unless frozen, (n x m)·(m x k)."""
    gradient = seconds(m, k, n, machine, low=low)
    return gradient if frozen else gradient + seconds(n, k, m, machine, low=low)
