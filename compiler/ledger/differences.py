"""What differs between two ledgers, and whether a checkpoint of one fits the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.document import Ledger
from parlay.compiler.ledger.held import padded_vocab
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


@dataclass(frozen=True, slots=True)
class Reshard:
    """Whether a checkpoint of the first loads in the second, and whether it is cut anew."""

    loads: bool
    reshards: bool
    why: tuple[str, ...]


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


# ── Checkpoints ───────────────────────────────────────────────────────────────


def resharding(a: Ledger, b: Ledger) -> Reshard:
    """A checkpoint loads where every weight has the same name and (unpadded) shape.

    It reshards where a rank of the second holds other pieces: another tp, pp, ep, etp or stages,
    another padding, or optimizer state cut over other ranks.
    """
    if _weights(a) != _weights(b):
        return Reshard(False, False, tuple(_shape_changes(a, b)) or ("the models differ",))
    why = list(_cuts(a, b))
    return Reshard(True, bool(why), tuple(why))


def _weights(book: Ledger) -> Any:
    model = book.spec.model
    assert model is not None
    if model.layers is None:
        return model.params
    return {row.name: (row.shape, times) for row, times in parameters.weights(model).groups()}


def _shape_changes(a: Ledger, b: Ledger) -> Iterator[str]:
    before, after = _weights(a), _weights(b)
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return
    for name in {**before, **after}:
        if name not in after or name not in before:
            yield f"{name} is in one of them alone"
        elif before[name] != after[name]:
            yield f"{name}: {_shape(before[name])} against {_shape(after[name])}"
            return


def _shape(found: tuple[tuple[int, ...], int]) -> str:
    shape, times = found
    return "x".join(map(str, shape)) + (f" in {times} layers" if times > 1 else "")


def _cuts(a: Ledger, b: Ledger) -> Iterator[str]:
    x, y = a.spec.parallel, b.spec.parallel
    for name in ("tp", "pp", "ep", "etp"):
        if getattr(x, name) != getattr(y, name):
            yield f"{name} {getattr(x, name)} -> {getattr(y, name)}"
    stages = [[(s.stage, s.first, s.last) for s in book.layout.stages] for book in (a, b)]
    if x.pp == y.pp and stages[0] != stages[1]:
        yield "other layers on each stage"
    if a.layout.stages and b.layout.stages and padded_vocab(a.spec) != padded_vocab(b.spec):
        yield f"vocabulary padded to {padded_vocab(a.spec)} -> {padded_vocab(b.spec)} rows"
    if x.zero != y.zero and (x.zero == 0) != (y.zero == 0):
        yield f"zero {x.zero} -> {y.zero}"
    elif x.zero and y.zero and a.layout.size("shard") != b.layout.size("shard"):
        yield f"state over {a.layout.size('shard')} -> {b.layout.size('shard')} ranks"
    elif (x.zero == 3) != (y.zero == 3):
        yield f"zero {x.zero} -> {y.zero}"
