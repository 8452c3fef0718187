"""What the ranks sent beside what plan.json predicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from parlay.runtime.axes import Grid
from parlay.runtime.compare import place_of
from parlay.runtime.count import axes_of
from parlay.runtime.count import name_of as name_by_members

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
    experts: Grid | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """`counts` has, by rank and step, the rows of a Counter. Returns the rows of all stages, and a
    sentence for each that differs.

    Each rank is held against the prediction of its stage, in each step; a stage's row shows a rank
    that differs, if one does. Groups are the same if their members are: where a replica is all
    there is, `world` is `tp_pp`. `kv_heads` are what the group `kv` cuts tp by, `shard` the ranks
    of dp and cp that share one copy of the training state, by default all. Where cp is cut in runs
    of `cp_inner`, its all-to-alls go over these, and its rings over the ranks at the same place of
    each. `experts` is the grid of experts: what their ranks exchange follows from the tokens, so
    that its calls are held against the prediction on each rank, and its bytes over all ranks of ep
    and etp together.
    """
    name_of = partial(members, grid=grid, kv_heads=kv_heads, shard=shard, experts=experts)
    predicted = [_mirrored(_parted(row, grid, cp_inner), grid) for row in predicted]
    expected, names = _expected(predicted, name_of)
    by_tokens = {_key(row, name_of) for row in predicted if _by_tokens(row)}
    totals = _totals(counts, by_tokens, name_of, experts)
    shown: dict[tuple[int, Key], tuple[int, int]] = {}
    wrong = []
    for rank, steps in enumerate(counts):
        place = place_of(rank, grid=grid)
        due = expected.get(place.stage, {})
        for step, rows in enumerate(steps):
            ran = _summed(rows, name_of)
            for key in sorted(due.keys() | ran.keys()):
                amount, wanted = ran.get(key, (0, 0)), due.get(key, (0, 0))
                if key in by_tokens and experts is not None:
                    amount = amount[0], totals[step, key, _plane(rank, experts)]
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


def _parted(row: Mapping[str, Any], grid: Grid, cp_inner: int | None) -> Mapping[str, Any]:
    """The row, with the part of cp that it goes over as its group."""
    parts = {"all_to_all": grid.runs, "send": grid.across, "recv": grid.across}
    if row["group"] != "cp" or cp_inner is None or row["collective"] not in parts:
        return row
    if "cp" not in grid.axes:
        return row
    ranks = parts[row["collective"]]("cp", grid.size("cp") // cp_inner)[0]
    return {**row, "group": axes_of(ranks, grid=grid) or "cp"}


def _mirrored(row: Mapping[str, Any], grid: Grid) -> Mapping[str, Any]:
    """The row, with the pair of the stage's ranks as its group: the outermost are both ends."""
    if row["group"] != "mirror" or "pp" not in grid.axes:
        return row
    pp, stage = grid.size("pp"), row["stage"]
    outermost = stage in (0, pp - 1)
    return {**row, "group": "pp" if pp == 2 else "pp.ends" if outermost else "pp.mirror"}


def _by_tokens(row: Mapping[str, Any]) -> bool:
    """Whether how much a rank sends follows from the experts that tokens choose."""
    rows = row["collective"] == "all_to_all" and row["dtype"] != "int64"
    return rows and row["group"] in ("ep", "etp")


def _totals(
    counts: Sequence[Sequence[Sequence[Mapping[str, Any]]]],
    by_tokens: Collection[Key],
    name_of: Callable[[str], str],
    experts: Grid | None,
) -> Counter[tuple[int, Key, int]]:
    """The mean bytes of the ranks between which tokens travel, by step, key and their first."""
    totals: Counter[tuple[int, Key, int]] = Counter()
    if experts is None:
        return totals
    for rank, steps in enumerate(counts):
        for step, rows in enumerate(steps):
            for key, (_, size) in _summed(rows, name_of).items():
                if key in by_tokens:
                    totals[step, key, _plane(rank, experts)] += size
    ranks = experts.size(*_dealt(experts))
    return Counter({at: total // ranks for at, total in totals.items()})


def _plane(rank: int, experts: Grid) -> int:
    """The first of the ranks that `rank` exchanges tokens with."""
    return experts.first_of(rank, _dealt(experts))


def _dealt(experts: Grid) -> tuple[str, ...]:
    return tuple(axis for axis in experts.axes if axis in ("ep", "etp"))


def members(
    group: str,
    grid: Grid,
    kv_heads: int = 1,
    shard: int | None = None,
    experts: Grid | None = None,
) -> str:
    """A group's name by its members: its axes that are above 1, in the order of the grid.

    `embedding` is the ends of pp and `kv` the ranks of tp with the same one of `kv_heads`; both
    have the name of their axis where they are all of it. `shard` are so many neighbours on dp and
    cp, `replicate` the ranks at the same place of each of them.
    """
    # Copies of experts are on the ranks that copies of all else are on.
    group = {"expert_shard": "edp", "expert_replicate": "replicate"}.get(group, group)
    if experts is not None and group in ("ep", "etp", "edp"):
        ranks = experts.group_of(0, (group,))
        return name_by_members(ranks, grid=grid, experts=experts) or group
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
    predicted: Iterable[Mapping[str, Any]], name_of: Callable[[str], str]
) -> tuple[dict[int, Amounts], dict[Key, str]]:
    by_stage: dict[int, list[Mapping[str, Any]]] = {}
    names: dict[Key, str] = {}
    for row in predicted:
        by_stage.setdefault(row["stage"], []).append(row)
        key = _key(row, name_of)
        if key[0] == row["group"]:
            names[key] = row["group"]
        names.setdefault(key, row["group"])
    return {stage: _summed(rows, name_of) for stage, rows in by_stage.items()}, names


def _key(row: Mapping[str, Any], name_of: Callable[[str], str]) -> Key:
    return name_of(row["group"]), row["collective"], row["dtype"]


def _summed(rows: Iterable[Mapping[str, Any]], name_of: Callable[[str], str]) -> Amounts:
    amounts: Amounts = {}
    for row in rows:
        key = _key(row, name_of)
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
