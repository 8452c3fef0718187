"""How far a group reaches: over how many nodes and fast domains, counted without walking the ranks.

A group is a lattice: its first rank plus every sum of multiples of its axes' strides. How many
nodes of `unit` ranks it touches depends on its first rank modulo `unit` alone, so everything here
is a table of `unit` entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Axes = tuple[tuple[int, int], ...]  # stride and size, fastest first


@dataclass(frozen=True, slots=True)
class Spread:
    """Blocks of consecutive ranks that one group touches: the most, and the mean over groups."""

    worst: int
    mean: Fraction | int


ONE = Spread(1, 1)


def nested(
    sizes: Sequence[tuple[str, int]], axes: Sequence[str], unit: int, *, ends: bool
) -> Spread | None:
    """The same where blocks cut the grid evenly; None where they do not.

    A block of `unit` ranks that holds whole axes and an even part of one more is a digit of the
    grid like any other: every group touches as many blocks as its axes above have steps. `ends`
    keeps the first and the last step of its axis.
    """
    blocks, stride = 1, 1
    for name, size in sizes:
        if size == 1:
            continue
        inside, rest = divmod(unit, stride)  # steps of this axis in one block
        if inside and (rest or (inside < size and size % inside)):
            return None
        touched = max(1, size // inside) if inside else size
        if name in axes and touched > 1:
            blocks *= 2 if ends else touched
        stride *= size
    return Spread(blocks, blocks)


@cache
def spread(inside: Axes, outside: Axes, unit: int) -> Spread:
    """How many blocks of `unit` ranks the groups with axes `inside` touch.

    `outside` are the axes on which the groups' first ranks differ; both ascend in stride.
    """
    inside = tuple((stride, size) for stride, size in inside if size > 1)
    world = 1 + sum(stride * (size - 1) for stride, size in (*inside, *outside))
    if not inside or unit >= world:
        return ONE
    # changes[x]: borders of blocks that the ranks of a group cross, in order, from residue x on.
    changes = [0] * unit
    extent = 0  # from the first to the last rank of the axes seen so far
    for stride, size in inside:
        jumps = [int((x + extent) // unit != (x + stride) // unit) for x in range(unit)]
        within = _window(changes, stride, size)
        between = _window(jumps, stride, size - 1)
        changes = [a + b for a, b in zip(within, between, strict=True)]
        extent += stride * (size - 1)
    firsts = [0] * unit  # how many groups begin at each residue
    firsts[0] = 1
    for stride, size in outside:
        firsts = _window(firsts, -stride, size)
    worst = max(count for count, first in zip(changes, firsts, strict=True) if first)
    total = sum(count * first for count, first in zip(changes, firsts, strict=True))
    return Spread(1 + worst, 1 + Fraction(total, sum(firsts)))


def _window(values: Sequence[int], step: int, count: int) -> list[int]:
    """For every x, the sum of `values[x + c·step]` over c < count, indices taken in a ring."""
    length = len(values)
    step %= length
    period = 1
    at = step
    while at != 0:
        at = (at + step) % length
        period += 1
    rounds, rest = divmod(count, period)
    sums = [0] * length
    for start in range(length // period):
        ring = [values[(start + c * step) % length] for c in range(period)]
        whole = rounds * sum(ring)
        part = sum(ring[:rest])
        for c in range(period):
            sums[(start + c * step) % length] = whole + part
            part += ring[(c + rest) % period] - ring[c]
    return sums
