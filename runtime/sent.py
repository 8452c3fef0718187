"""What the ranks sent beside what plan.json predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from parlay.runtime.axes import Grid
from parlay.runtime.compare import place_of
from parlay.runtime.count import axes_of

Key = tuple[str, str, str]
"""Group, collective, dtype."""

Amounts = dict[Key, tuple[int, int]]
"""Calls and bytes."""


def compare_sent(
    counts: Sequence[Sequence[Sequence[Mapping[str, Any]]]],
    *,
    predicted: Iterable[Mapping[str, Any]],
    grid: Grid,
    kv_heads: int = 1,
    shard: int | None = None,
    cp_inner: int | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """`counts` has, by rank and step, the rows of a Counter. Returns the rows of all stages, and a
    sentence for each that differs.

    Each rank is held against the prediction of its stage, in each step; a stage's row shows a rank
    that differs, if one does. Groups are the same if their members are: where a replica is all
    there is, `world` is `tp_pp`. `kv_heads` are what the group `kv` cuts tp by, `shard` the ranks
    of dp and cp that share one copy of the training state, by default all. Where cp is cut in runs
    of `cp_inner`, its all-to-alls go over these, and its rings over the ranks at the same place of
    each.
    """

    def name_of(row: Mapping[str, Any]) -> str:
        group: str = row["group"]
        if group == "cp" and cp_inner is not None and "cp" in grid.axes:
            parts = grid.runs if row["collective"] == "all_to_all" else grid.across
            return axes_of(parts("cp", grid.size("cp") // cp_inner)[0], grid=grid) or group
        return members(group, grid, kv_heads, shard)

    expected, names = _expected(predicted, name_of)
    shown: dict[tuple[int, Key], tuple[int, int]] = {}
    wrong = []
    for rank, steps in enumerate(counts):
        place = place_of(rank, grid=grid)
        due = expected.get(place.stage, {})
        for step, rows in enumerate(steps):
            ran = _summed(rows, lambda row: members(row["group"], grid, kv_heads, shard))
            for key in sorted(due.keys() | ran.keys()):
                amount, wanted = ran.get(key, (0, 0)), due.get(key, (0, 0))
                at = place.stage, key
                if amount == wanted:
                    shown.setdefault(at, amount)
                elif shown.get(at, wanted) == wanted:
                    shown[at] = amount  # the first that differs is told for all of its stage
                    wrong.append(_sentence(key, names, amount, wanted, place.words, step))
    rows_out = [
        _row(stage, key, names, amount, expected.get(stage, {}).get(key, (0, 0)))
        for (stage, key), amount in sorted(shown.items())
    ]
    return rows_out, wrong


def members(group: str, grid: Grid, kv_heads: int = 1, shard: int | None = None) -> str:
    """A group's name by its members: its axes that are above 1, in the order of the grid.

    `embedding` is the ends of pp and `kv` the ranks of tp with the same one of `kv_heads`; both
    have the name of their axis where they are all of it. `shard` are so many neighbours on dp and
    cp, `replicate` the ranks at the same place of each of them.
    """
    if group == "embedding" and "pp" in grid.axes:
        return "pp" if grid.size("pp") == 2 else "pp.ends"
    if group == "kv" and "tp" in grid.axes:
        return "tp" if kv_heads == 1 else f"tp/{grid.size('tp') // kv_heads}"
    plane = "_".join(axis for axis in grid.axes if axis in ("dp", "cp"))
    if group in ("shard", "replicate") and plane:
        size = grid.size(*plane.split("_"))
        own = shard if shard is not None else size
        if own in (1, size):
            return members("dp_cp", grid)
        parts = grid.runs if group == "shard" else grid.across
        return axes_of(parts(plane, size // own)[0], grid=grid) or group
    axes = grid.axes if group == "world" else tuple(group.split("_"))
    if group == "dp_cp":
        axes = tuple(plane.split("_"))
    if not set(axes) <= set(grid.axes):
        return group
    return "_".join(axis for axis in grid.axes if axis in axes and grid.size(axis) > 1)


def _expected(
    predicted: Iterable[Mapping[str, Any]], name_of: Callable[[Mapping[str, Any]], str]
) -> tuple[dict[int, Amounts], dict[Key, str]]:
    by_stage: dict[int, list[Mapping[str, Any]]] = {}
    names: dict[Key, str] = {}
    for row in predicted:
        by_stage.setdefault(row["stage"], []).append(row)
        key = name_of(row), row["collective"], row["dtype"]
        if key[0] == row["group"]:
            names[key] = row["group"]
        names.setdefault(key, row["group"])
    return {stage: _summed(rows, name_of) for stage, rows in by_stage.items()}, names


def _summed(
    rows: Iterable[Mapping[str, Any]], name_of: Callable[[Mapping[str, Any]], str]
) -> Amounts:
    amounts: Amounts = {}
    for row in rows:
        key = name_of(row), row["collective"], row["dtype"]
        calls, size = amounts.get(key, (0, 0))
        amounts[key] = calls + row["calls"], size + row["bytes"]
    return amounts


def _row(
    stage: int, key: Key, names: Mapping[Key, str], amount: tuple[int, int], due: tuple[int, int]
) -> dict[str, Any]:
    group, collective, dtype = key
    return {
        "stage": stage,
        "group": names.get(key, group),
        "collective": collective,
        "dtype": dtype,
        "calls": amount[0],
        "bytes": amount[1],
        "predicted_calls": due[0],
        "predicted_bytes": due[1],
    }


def _sentence(
    key: Key,
    names: Mapping[Key, str],
    amount: tuple[int, int],
    due: tuple[int, int],
    where: str,
    step: int,
) -> str:
    group, collective, dtype = key
    return (
        f"{collective} over {names.get(key, group)} ({dtype}): {amount[0]} calls with "
        f"{amount[1]} bytes, predicted {due[0]} with {due[1]}, on {where} in step {step}"
    )
