"""Counts what a rank sends: every collective and message, by group, kind and bytes.

`Counter` stands between torch and its collectives, so it sees what autograd calls in a backward,
messages between stages, coalesced calls and functional collectives too. The bytes of a call are
those of its message, the full tensor: the buffer of an all-reduce, the output of an all-gather, the
input of a reduce-scatter or all-to-all, what is sent or received.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.axes import Grid
from torch.utils._python_dispatch import TorchDispatchMode

UNKNOWN = "unknown"

NAMESPACES = ("c10d", "_c10d_functional")

# Operator -> what it is, and which argument is the message; `out` is what it returns.
OPERATORS: dict[str, dict[str, tuple[str, str]]] = {
    "c10d": {
        "allreduce_": ("all_reduce", "tensors"),
        "allreduce_coalesced_": ("all_reduce", "tensors"),
        "_allgather_base_": ("all_gather", "output_tensor"),
        "allgather_": ("all_gather", "output_tensors"),
        "allgather_coalesced_": ("all_gather", "output_lists"),
        "allgather_into_tensor_coalesced_": ("all_gather", "outputs"),
        "_reduce_scatter_base_": ("reduce_scatter", "input_tensor"),
        "reduce_scatter_": ("reduce_scatter", "input_tensors"),
        "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "inputs"),
        "alltoall_base_": ("all_to_all", "input"),
        "alltoall_": ("all_to_all", "input_tensors"),
        "broadcast_": ("broadcast", "tensors"),
        "send": ("send", "tensors"),
        "recv_": ("recv", "tensors"),
        "recv_any_source_": ("recv", "tensors"),
        "reduce_": ("reduce", "tensors"),
        "gather_": ("gather", "input_tensors"),
        "scatter_": ("scatter", "output_tensors"),
        "barrier": ("barrier", ""),
        "monitored_barrier_": ("barrier", ""),
    },
    "_c10d_functional": {
        "all_reduce": ("all_reduce", "input"),
        "all_reduce_": ("all_reduce", "input"),
        "all_reduce_coalesced": ("all_reduce", "inputs"),
        "all_reduce_coalesced_": ("all_reduce", "inputs"),
        "all_gather_into_tensor": ("all_gather", "out"),
        "all_gather_into_tensor_out": ("all_gather", "out"),
        "all_gather_into_tensor_coalesced": ("all_gather", "out"),
        "reduce_scatter_tensor": ("reduce_scatter", "input"),
        "reduce_scatter_tensor_out": ("reduce_scatter", "input"),
        "reduce_scatter_tensor_coalesced": ("reduce_scatter", "inputs"),
        "all_to_all_single": ("all_to_all", "input"),
        "broadcast": ("broadcast", "input"),
        "broadcast_": ("broadcast", "input"),
        "isend": ("send", "tensor"),
        "irecv": ("recv", "tensor"),
    },
}

SILENT = {"wait_tensor", "_wrap_tensor_autograd", "check_for_nan"}
"""Operators of these namespaces that send nothing."""


@dataclass
class Tally:
    calls: int = 0
    bytes: int = 0


class Counter(TorchDispatchMode):
    """`with Counter(groups) as counter: ...`, where `groups` names process groups by group_name.

    A group that `groups` does not have is counted as "unknown". A group of one rank sends nothing
    and is not counted. A coalesced call is one call, with the bytes of all its tensors.
    """

    def __init__(self, groups: Mapping[str, str]) -> None:
        super().__init__()
        self.groups = groups
        self.tallies: dict[tuple[str, str, str], Tally] = {}

    def rows(self) -> list[dict[str, Any]]:
        """[{"group", "collective", "dtype", "calls", "bytes"}], sorted."""
        return [
            {
                "group": group,
                "collective": collective,
                "dtype": dtype,
                "calls": tally.calls,
                "bytes": tally.bytes,
            }
            for (group, collective, dtype), tally in sorted(self.tallies.items())
        ]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace in NAMESPACES:
            names = [argument.name for argument in func._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **(kwargs or {}), "out": out}
            self._count(func.namespace, func._opname, given)
        return out

    def _count(self, namespace: str, operator: str, given: dict[str, Any]) -> None:
        if operator in SILENT:
            return
        name, size = _group(given)
        if size == 1:
            return
        group = self.groups.get(name, UNKNOWN)
        if operator == "batch_p2p_ops":
            for kind, tensor in zip(given["op_list"], given["tensors"], strict=True):
                self._add(group, "send" if "send" in kind else "recv", [tensor])
            return
        # What this table does not know is counted under its own name, with all that it was given.
        collective, message = OPERATORS[namespace].get(operator, (operator, ""))
        known = operator in OPERATORS[namespace]
        self._add(group, collective, list(tensors(given.get(message) if known else given)))

    def _add(self, group: str, collective: str, message: list[torch.Tensor]) -> None:
        dtype = str(message[0].dtype).removeprefix("torch.") if message else "none"
        tally = self.tallies.setdefault((group, collective, dtype), Tally())
        tally.calls += 1
        tally.bytes += sum(tensor.numel() * tensor.element_size() for tensor in message)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists of lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def _group(given: dict[str, Any]) -> tuple[str, int]:
    """The name and the size of the process group that an operator was given."""
    group: Any = given.get("process_group", given.get("group_name"))
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)
    elif isinstance(group, torch.ScriptObject):
        group = dist.ProcessGroup.unbox(group)
    return group.group_name, group.size()


# ── Which group is which ──────────────────────────────────────────────────────


def axes_of(ranks: list[int], *, grid: Grid) -> str | None:
    """The axes that `ranks` differ on, joined by `_`; None where they are no whole group of them.

    Parts of them have names too: `pp.ends` is the first and the last of an axis, `pp.mirror` others
    of a pipeline that are as far from either end, `tp/2` two
    neighbours, `dp%2` every second rank, `cp_dp/4` four neighbours of a plane. This names a group
    by who is in it, whatever the code that made it calls it.
    """
    places = [grid.coordinates(rank) for rank in ranks]
    axes = [axis for axis in grid.axes if len({place[axis] for place in places}) > 1]
    if grid.group_of(ranks[0], axes) == sorted(ranks):
        return "_".join(axes)
    if len(axes) == 1 and sorted(ranks) in grid.ends(axes[0]):
        return f"{axes[0]}.ends"
    if axes == ["pp"] and len(ranks) == 2 and sorted(ranks) in grid.mirrored("pp"):
        return "pp.mirror"
    plane = "_".join(axes)
    pieces, rest = divmod(grid.size(*axes), len(ranks)) if axes else (0, 1)
    if not rest and sorted(ranks) in grid.runs(plane, pieces):
        return f"{plane}/{len(ranks)}"
    if not rest and sorted(ranks) in grid.across(plane, len(ranks)):
        return f"{plane}%{pieces}"
    return None


def name_of(ranks: list[int], *, grid: Grid, experts: Grid | None) -> str | None:
    """`axes_of` the first of the two grids that has these ranks as a group."""
    name = axes_of(ranks, grid=grid)
    return name if name is not None or experts is None else axes_of(ranks, grid=experts)


def named_groups(grid: Grid, experts: Grid | None = None) -> dict[str, str]:
    """For `Counter`: all process groups that this rank is in, named by their members, on the grid
    of experts where they are none of the other one."""
    if not dist.is_initialized():
        return {}
    found = {}
    for group in list(dist.distributed_c10d._world.pg_map):
        name = name_of(dist.get_process_group_ranks(group), grid=grid, experts=experts)
        if name is not None:
            found[group.group_name] = name
    return found
