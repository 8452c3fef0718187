"""What differs between two ledgers, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.ledger.document import Ledger
from parlay.compiler.ledger.values import values
from parlay.compiler.spec.schema import Nested, fields_of
from parlay.compiler.spec.shown import shown

ALMOST: Final = 1e-12
PARTS: Final = {"memory": "memory", "communication": "communication"}


@dataclass(frozen=True, slots=True)
class Change:
    """One figure or field that differs; `unit` is a dimension, None for what is no quantity."""

    part: str
    name: str
    a: Any
    b: Any
    unit: str | None = None

    @property
    def relative(self) -> float | None:
        """The change over the first value."""
        if self.unit is None or not self.a or self.b is None:
            return None
        return float(self.b / self.a - 1)


def changes(a: Ledger, b: Ledger) -> Iterator[Change]:
    """Fields, groups, stages, then figures."""
    yield from _fields(a, b)
    yield from _groups(a, b)
    yield from _stages(a, b)
    before, after = values(a), values(b)
    for name in before:
        x, y = before[name].quantity, after[name].quantity
        if x is None and y is None:
            continue
        unit = (x or y).dimension.value  # type: ignore[union-attr]
        left = None if x is None else float(x.value)
        right = None if y is None else float(y.value)
        if left is None or right is None or not _same(left, right):
            part = PARTS.get(name.partition(".")[0], "time and cost")
            yield Change(part, name, left, right, unit)


def _same(left: float, right: float) -> bool:
    return abs(left - right) <= ALMOST * max(abs(left), abs(right))


def _fields(a: Ledger, b: Ledger) -> Iterator[Change]:
    before, after = dict(_flat(a.spec)), dict(_flat(b.spec))
    for path in {**before, **after}:
        x, y = before.get(path), after.get(path)
        if x != y:
            yield Change("file", path, x, y)


def _flat(block: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every field of a block and of those in it, as people read them."""
    for schema in fields_of(type(block)):
        value = getattr(block, schema.attribute)
        below = f"{path}.{schema.name}" if path else schema.name
        if isinstance(schema.types[0], Nested):
            if value is not None:
                yield from _flat(value, below)
        elif value is not None:
            yield below, shown(value, schema.types)


def _groups(a: Ledger, b: Ledger) -> Iterator[Change]:
    """Sizes and reach of the groups with more than one rank."""
    for kind in {**a.layout.kinds, **b.layout.kinds}:
        said = [_group(book, kind) for book in (a, b)]
        if said[0] != said[1]:
            yield Change("groups", kind, *said)


def _group(book: Ledger, kind: str) -> str | None:
    if kind not in book.layout.kinds or book.layout.size(kind) == 1:
        return None
    reach = book.layout.reach(kind)
    nodes = f"{reach.nodes} nodes" if reach.nodes > 1 else "one node"
    return f"{reach.size} ranks, {nodes}, {reach.link}"


def _stages(a: Ledger, b: Ledger) -> Iterator[Change]:
    said = [[stage.layers for stage in book.layout.stages] for book in (a, b)]
    if said[0] != said[1]:
        yield Change("groups", "layers of each stage", *(_runs(each) for each in said))


def _runs(counts: list[int]) -> str:
    """`[7, 8, 8, 7]` --> `7, 2 x 8, 7`."""
    parts: list[list[int]] = []
    for count in counts:
        if parts and parts[-1][1] == count:
            parts[-1][0] += 1
        else:
            parts.append([1, count])
    return ", ".join(str(each) if times == 1 else f"{times} x {each}" for times, each in parts)
