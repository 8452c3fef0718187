"""The ranks of this job: process groups in the order that the emitted mesh.py says.

A `Mesh` has one `Axis` for each axis of its grid (`mesh.tp`), one for each plane it was asked for
(`mesh.tp_pp`), `mesh.world`, and what `split`, `across` and `ends` add: parts of an axis that hold
the same weights, or shards of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.axes import Grid
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The group that this rank is in along an axis or a plane, and its place in it."""

    name: str
    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    rank: int

    @property
    def size(self) -> int:
        """The number of ranks in the group."""
        return len(self.ranks)

    @property
    def first(self) -> bool:
        """Whether this rank is the first of the group."""
        return self.rank == 0

    @property
    def last(self) -> bool:
        """Whether this rank is the last of the group."""
        return self.rank == self.size - 1


class Mesh:
    """The groups of `grid`: an axis each, and a group for each of `planes`.

    Starts `torch.distributed` from torchrun's environment, unless it already runs.
    """

    tp: Axis
    cp: Axis
    dp: Axis
    pp: Axis
    world: Axis
    etp: Axis
    ep: Axis
    edp: Axis
    kv: Axis
    shard: Axis
    replicate: Axis
    inner: Axis
    outer: Axis
    embedding: Axis
    mirror: Axis

    def __init__(self, grid: Grid, *, planes: Sequence[tuple[str, ...]] = ()) -> None:
        self.grid = grid
        self.device = own_device()
        start(self.device)
        self.rank, world = dist.get_rank(), dist.get_world_size()
        if world != grid.world:
            degrees = " · ".join(f"{name} {size}" for name, size in grid.sizes)
            raise ValueError(f"{degrees} takes {grid.world} ranks; this job has {world}")
        self._axes = {
            axes: self._axis(axes) for axes in [*((name,) for name in grid.axes), *planes]
        }
        self._axes[()] = Axis(
            name="world", group=dist.group.WORLD, ranks=tuple(range(world)), rank=self.rank
        )
        for axis in self._axes.values():
            setattr(self, axis.name, axis)
        if self.device.type == "cuda" and "pp" in grid.axes:
            # NCCL wants every rank of a group in its first call, and the pipeline's first messages
            # are between two.
            dist.all_reduce(torch.zeros((), device=self.device), group=self.pp.group)
        self._names = {axis.group.group_name: axis.name for axis in self._axes.values()}

    def split(self, axis: str, pieces: int, *, name: str) -> None:
        """Adds `name`: each group of `axis` cut into `pieces` equal runs of neighbours."""
        self._add(name, self.grid.runs(axis, pieces))

    def across(self, axis: str, pieces: int, *, name: str) -> None:
        """Adds `name`: the ranks at the same place of each of these runs."""
        self._add(name, self.grid.across(axis, pieces))

    def ends(self, axis: str, *, name: str) -> None:
        """Adds `name`: the first and the last rank of each group of `axis`.

        A rank in between is in a group of its own, in which nothing can be sent.
        """
        self._add(name, self.grid.ends(axis))

    def mirrored(self, axis: str, *, name: str) -> None:
        """Adds `name`: of each group of `axis` the ranks i and n - 1 - i of n."""
        self._add(name, self.grid.mirrored(axis))

    def overlay(self, grid: Grid) -> None:
        """Adds the axes of another grid over the same ranks, the experts' one, but those of which
        there are groups."""
        if grid.world != self.grid.world:
            raise ValueError(f"a grid of {grid.world} ranks over one of {self.grid.world}")
        for axis in grid.axes:
            if (axis,) not in self._axes:
                self._add(axis, grid.groups((axis,)))

    def __getattr__(self, name: str) -> Axis:
        have = ", ".join(axis.name for axis in self.__dict__.get("_axes", {}).values())
        raise AttributeError(f"the mesh has no group {name}; it has {have}")

    def name_of(self, group_name: str) -> str | None:
        """The axis or plane whose process group has this `group_name`."""
        return self._names.get(group_name)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The same axes as a DeviceMesh, slowest axis first as it wants them."""
        sizes = tuple(reversed(self.grid.sizes))
        return DeviceMesh.from_group(
            [self._axes[(name,)].group for name, _ in sizes],
            self.device.type,
            mesh=torch.arange(self.grid.world).view([size for _, size in sizes]),
            mesh_dim_names=tuple(name for name, _ in sizes),
        )

    def _axis(self, axes: tuple[str, ...]) -> Axis:
        return self._made("_".join(axes), self.grid.group_of(self.rank, axes))

    def _add(self, name: str, groups: list[list[int]]) -> None:
        mine = next((ranks for ranks in groups if self.rank in ranks), [self.rank])
        axis = self._made(name, mine)
        setattr(self, name, axis)
        self._axes[name,] = axis
        self._names[axis.group.group_name] = name

    def _made(self, name: str, ranks: list[int]) -> Axis:
        """The group of this rank alone, known to its members alone: a job of 8,192 ranks has
        thousands. Every rank makes its groups in the same order, so that none waits in a ring."""
        group: Any = dist.new_group(ranks, use_local_synchronization=True, group_desc=name)
        return Axis(name=name, group=group, ranks=tuple(ranks), rank=ranks.index(self.rank))


def own_device() -> torch.device:
    """The GPU of this rank; the CPU where there is none, or where ranks already talk by gloo."""
    gloo = dist.is_initialized() and dist.get_backend() != "nccl"
    if torch.cuda.is_available() and not gloo:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def start(device: torch.device) -> None:
    """Starts `torch.distributed`: NCCL on GPUs, gloo on CPUs. Does nothing where it runs.

    No `device_id` is given: with it each group would have a communicator and its memory at once,
    also one that nothing is sent in.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
