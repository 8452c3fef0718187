"""The grid of ranks: which rank stands where, and who forms a group. Pure Python.

Every group, in the compiler and on the ranks, comes from here. All of it is closed form: a single
lookup never walks the ranks, so 131,072 of them are as quick as eight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """Axes with their sizes, the fastest-varying first.

    `Grid((("tp", 2), ("dp", 2), ("pp", 2)))`: ranks 0 and 1 differ in `tp`, 0 and 4 in `pp`.
    """

    sizes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.sizes]
        if len(set(names)) != len(names):
            raise ValueError(f"an axis stands twice in {names}")
        for name, size in self.sizes:
            if size < 1:
                raise ValueError(f"axis {name} has size {size}; the smallest size is 1")

    @classmethod
    def of(cls, sizes: Mapping[str, int], *, order: Sequence[str]) -> Grid:
        """The grid of `sizes` in `order`, fastest first."""
        return cls(tuple((name, sizes[name]) for name in order))

    # ── Axes ──────────────────────────────────────────────────────────────────

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, fastest first."""
        return tuple(name for name, _ in self.sizes)

    @property
    def world(self) -> int:
        """The number of ranks."""
        ranks = 1
        for _, size in self.sizes:
            ranks *= size
        return ranks

    def size(self, *axes: str) -> int:
        """The number of ranks in one group of `axes`."""
        sizes, ranks = dict(self.sizes), 1
        for name in set(axes):
            if name not in sizes:
                self._known(axes)
            ranks *= sizes[name]
        return ranks

    def stride(self, axis: str) -> int:
        """How far apart two ranks are that are neighbours on `axis`."""
        self._known((axis,))
        stride = 1
        for name, size in self.sizes:
            if name == axis:
                break
            stride *= size
        return stride

    # ── Ranks ─────────────────────────────────────────────────────────────────

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where `rank` stands on every axis, fastest first."""
        self._inside(rank)
        coordinates = {}
        for name, size in self.sizes:
            rank, coordinates[name] = divmod(rank, size)
        return coordinates

    def coordinate(self, rank: int, axis: str) -> int:
        """Where `rank` stands on `axis`."""
        self._inside(rank)
        return rank // self.stride(axis) % self.size(axis)

    def rank_of(self, coordinates: Mapping[str, int]) -> int:
        """The rank at `coordinates`; an axis left out counts as 0."""
        self._known(tuple(coordinates))
        rank, stride = 0, 1
        for name, size in self.sizes:
            at = coordinates.get(name, 0)
            if not 0 <= at < size:
                raise ValueError(f"{name} = {at} is outside of an axis of size {size}")
            rank += at * stride
            stride *= size
        return rank

    # ── Groups ────────────────────────────────────────────────────────────────

    def groups(self, axes: Sequence[str]) -> list[list[int]]:
        """All groups of `axes`: the ranks that differ in nothing else.

        One axis gives lines, two give planes. Ranks ascend inside a group, and groups ascend by
        their first rank.
        """
        self._known(axes)
        inside = self._offsets(axes)
        firsts = self._offsets([name for name in self.axes if name not in axes])
        return [[first + offset for offset in inside] for first in firsts]

    def runs(self, axis: str, pieces: int) -> list[list[int]]:
        """Each group of `axis`, or of a plane such as `dp_cp`, cut into `pieces` equal runs of
        neighbours."""
        axes = tuple(axis.split("_"))
        ranks = self.size(*axes)
        size, rest = divmod(ranks, pieces)
        if rest or not size:
            raise ValueError(f"{ranks} ranks of {axis} do not divide into {pieces} runs")
        groups = self.groups(axes)
        return [group[at : at + size] for group in groups for at in range(0, len(group), size)]

    def across(self, axis: str, pieces: int) -> list[list[int]]:
        """The ranks that stand at the same place of each of these runs."""
        runs = self.runs(axis, pieces)
        sets = [runs[at : at + pieces] for at in range(0, len(runs), pieces)]
        return [list(group) for one in sets for group in zip(*one, strict=True)]

    def ends(self, axis: str) -> list[list[int]]:
        """The first and the last rank of each group of `axis`; one rank where there is one."""
        return [sorted({group[0], group[-1]}) for group in self.groups((axis,))]

    def mirrored(self, axis: str) -> list[list[int]]:
        """Of each group of `axis` the ranks i and n - 1 - i of n; n is even."""
        return [
            [group[place], group[-1 - place]]
            for group in self.groups((axis,))
            for place in range(len(group) // 2)
        ]

    def group_of(self, rank: int, axes: Sequence[str]) -> list[int]:
        """The group of `axes` that `rank` belongs to, ascending."""
        first = self.first_of(rank, axes)
        return [first + offset for offset in self._offsets(axes)]

    def first_of(self, rank: int, axes: Sequence[str]) -> int:
        """The first rank of that group."""
        self._inside(rank)
        self._known(axes)
        return rank - sum(self.coordinate(rank, axis) * self.stride(axis) for axis in set(axes))

    def _offsets(self, axes: Sequence[str]) -> list[int]:
        """The ranks of the group of `axes` that rank 0 is in, ascending."""
        offsets, stride = [0], 1
        for name, size in self.sizes:
            if name in axes:
                offsets = [at * stride + offset for at in range(size) for offset in offsets]
            stride *= size
        return offsets

    # ── Refusals ──────────────────────────────────────────────────────────────

    def _known(self, axes: Sequence[str]) -> None:
        for axis in axes:
            if axis not in self.axes:
                raise ValueError(f"no axis {axis} in a grid of {', '.join(self.axes)}")

    def _inside(self, rank: int) -> None:
        if not 0 <= rank < self.world:
            raise ValueError(f"rank {rank} is outside of a world of {self.world}")
