"""What may be chosen: the open fields in the order in which they are decided, and their values.

A value that only repeats another layout is left out where the file does not name it: schedules of a
pipeline of one rank, methods of a ring of one, orders that differ in axes of size 1 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from types import MappingProxyType
from typing import Any, Final

from parlay.compiler.checks.subject import Subject
from parlay.compiler.checks.words import divisors
from parlay.compiler.spec.schema import Open, Setting

MOST_CHUNKS: Final = 8
"""Chunks a pipeline rank that an open `schedule` may have."""
FULL: Final = Setting("full", {"first": None, "every": None})
SELECTED: Final = Setting("selective", {}, ("core_attention",))
MLP: Final = Setting("selective", {}, ("mlp",))
AXES: Final = ("tp", "cp", "dp", "pp")


class Known:
    """What is decided so far: the values of the file under those that were chosen."""

    def __init__(self, subject: Subject, chosen: Mapping[str, Any]) -> None:
        self.subject, self.chosen = subject, chosen

    def __getitem__(self, path: str) -> Any:
        """A value by its path; None where it is open still."""
        if path in self.chosen:
            return self.chosen[path]
        if path == "parallel.dp" and self.subject.derived(path):
            return self.replicas
        return self.subject.value(path)

    def size(self, axis: str) -> int:
        """The degree of an axis; 1 where it is not decided."""
        return self[f"parallel.{axis}"] or 1

    @property
    def free(self) -> int:
        """How many ranks the decided degrees leave to the others; 0 where they do not divide."""
        taken = 1
        for axis in ("tp", "pp", "cp"):
            taken *= self.size(axis)
        free, rest = divmod(self.subject.world or 1, taken)
        return 0 if rest else free

    @property
    def replicas(self) -> int | None:
        """dp where it follows from the others."""
        return self.free or None


@dataclass(frozen=True, slots=True)
class Field:
    """An open field: what it may be once the fields before it are decided."""

    path: str
    restricted: Open
    every: Callable[[Known], tuple[Any, ...]]

    def values(self, known: Known) -> tuple[Any, ...]:
        """The values, as far as the file's `auto in […]` and `auto <= N` leave them."""
        limit = self.restricted.limit
        values = self.restricted.choices
        if values is None:
            values = self.every(known)
        once: list[Any] = []
        for value in values:
            beyond = limit is not None and isinstance(value, int) and value > limit
            if value not in once and not beyond:
                once.append(value)
        return tuple(once)


def fields(subject: Subject) -> tuple[Field, ...]:
    """The open fields of a phase in the order of deciding; dp follows where it is derived."""
    return tuple(
        Field(path, subject.open[path], every)
        for path, every in EVERY.items()
        if path in subject.open and not (path == "parallel.dp" and subject.derived(path))
    )


# ── Values of each field ──────────────────────────────────────────────────────


def _degree(known: Known) -> tuple[int, ...]:
    """The divisors of the ranks that the degrees decided before leave."""
    return tuple(divisors(known.free)) if known.free else (1,)


def _experts(known: Known) -> tuple[int, ...]:
    """Divisors of a pipeline stage's ranks."""
    world = known.subject.world or 1
    model = known.subject.spec.model
    if model is None or model.experts is None:
        return (1,)
    ranks = world // known.size("pp") // known.size("etp")
    return tuple(d for d in divisors(max(1, ranks)) if d <= (model.experts.count or 1))


def _expert_tensor(known: Known) -> tuple[int, ...]:
    model = known.subject.spec.model
    if model is None or model.experts is None:
        return (1,)
    return tuple(divisors(known.size("tp")))


def _zero(known: Known) -> tuple[int, ...]:
    return (0, 1, 2, 3) if known.size("dp") * known.size("cp") > 1 else (0,)


def _shard(known: Known) -> tuple[int, ...]:
    ranks = known.size("dp") * known.size("cp")
    return tuple(divisors(ranks)) if known["parallel.zero"] else (ranks,)


def _schedule(known: Known) -> tuple[Setting, ...]:
    pp, model = known.size("pp"), known.subject.spec.model
    plain = Setting("one_f_one_b")
    if pp == 1:
        return (plain,)
    layers = model.layers if model is not None else None
    most = min(MOST_CHUNKS, (layers or pp) // pp)
    chunks = tuple(Setting("interleaved", {"chunks": v}) for v in range(2, most + 1))
    split = tuple(Setting(name) for name in ("zero_bubble", "zbv", "dualpipe_v"))
    return (plain, Setting("gpipe"), *chunks, *split)


def _method(known: Known) -> tuple[Setting, ...]:
    if known.size("cp") == 1:
        return (Setting("ring"),)
    return tuple(Setting(name) for name in ("ring", "allgather", "ulysses"))


def _order(known: Known) -> tuple[tuple[str, ...], ...]:
    """One order of each kind that tells axes of more than one rank apart."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for order in (AXES, *permutations(AXES)):
        found.setdefault(tuple(axis for axis in order if known.size(axis) > 1), order)
    return tuple(found.values())


def _micro_batch(known: Known) -> tuple[int, ...]:
    batch, replicas = known["train.global_batch"], known.size("dp")
    if not batch or batch % replicas:
        return (1,)
    return tuple(divisors(batch // replicas))


def _recompute(known: Known) -> tuple[Setting, ...]:
    math = known["train.attention"] == "math"
    return (Setting("none"), *((SELECTED,) if math else ()), MLP, FULL)


EVERY: Final[Mapping[str, Callable[[Known], tuple[Any, ...]]]] = {
    "parallel.tp": _degree,
    "parallel.pp": _degree,
    "parallel.cp": _degree,
    "parallel.dp": _degree,
    "parallel.etp": _expert_tensor,
    "parallel.ep": _experts,
    "parallel.schedule": _schedule,
    "parallel.cp_method": _method,
    "parallel.order": _order,
    "parallel.zero": _zero,
    "parallel.shard": _shard,
    "train.micro_batch": _micro_batch,
    "train.recompute": _recompute,
}
"""Every field that `auto` may leave open but `stages`, which is balanced where it is `auto`."""


# ── Counting and listing ──────────────────────────────────────────────────────


NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Counter:
    """Counts layouts without listing them: what later fields hang on is a handful of sizes."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.seen: dict[tuple[Any, ...], int] = {}

    def below(self, left: tuple[Field, ...], chosen: Mapping[str, Any]) -> int:
        """How many ways there are to decide the fields `left` after `chosen`."""
        if not left:
            return 1
        key = (len(left), *_sizes(Known(self.subject, chosen)))
        if key not in self.seen:
            field, *rest = left
            self.seen[key] = sum(
                self.below(tuple(rest), {**chosen, field.path: value})
                for value in field.values(Known(self.subject, chosen))
            )
        return self.seen[key]


def _sizes(known: Known) -> tuple[Any, ...]:
    """What the values of every field follow from."""
    degrees = (known.size(axis) for axis in ("tp", "pp", "cp", "dp", "ep", "etp"))
    return (*degrees, bool(known["parallel.zero"]))


def leaves(
    left: tuple[Field, ...], subject: Subject, decided: Mapping[str, Any] = NOTHING
) -> Iterator[Mapping[str, Any]]:
    """Every way to decide the fields after `decided`, by path."""

    def deeper(left: tuple[Field, ...], chosen: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        if not left:
            yield chosen
            return
        field, *rest = left
        for value in field.values(Known(subject, {**decided, **chosen})):
            yield from deeper(tuple(rest), {**chosen, field.path: value})

    yield from deeper(left, {})
