"""Whether a checkpoint of one layout loads in another, and what is cut anew when it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from parlay.compiler.layout import Layout
from parlay.compiler.ledger import parameters
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.spec.blocks import Spec


class Holder(Protocol):
    """A job laid out: a `Ledger`, or a `Placed`."""

    @property
    def spec(self) -> Spec:
        """The resolved file; its model has every field."""

    @property
    def layout(self) -> Layout:
        """Groups, stages and placement."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A job and its layout, the least that can be held against another."""

    spec: Spec
    layout: Layout


@dataclass(frozen=True, slots=True)
class Cut:
    """One reason for other pieces, and the field (by path) that makes it."""

    path: str
    words: str


@dataclass(frozen=True, slots=True)
class Reload:
    """Whether a checkpoint of the first loads in the second; `cuts` say why it is cut anew.

    Where it does not load, `cuts` say what does not fit.
    """

    loads: bool
    cuts: tuple[Cut, ...]

    @property
    def reshards(self) -> bool:
        """Whether some rank of the second holds other pieces than a rank of the first."""
        return self.loads and bool(self.cuts)


def reload(a: Holder, b: Holder) -> Reload:
    """A checkpoint loads where every weight has the same name and (unpadded) shape.

    It reshards where a rank of the second holds other pieces: another tp, pp, ep, etp or stages,
    another padding, or optimizer state cut over other ranks.
    """
    if _weights(a) != _weights(b):
        changed = tuple(Cut("model", words) for words in _shape_changes(a, b))
        return Reload(False, changed or (Cut("model", "the models differ"),))
    return Reload(True, tuple(_cuts(a, b)))


def _weights(held: Holder) -> Any:
    model = held.spec.model
    assert model is not None
    if model.layers is None:
        return model.params
    return {row.name: (row.shape, times) for row, times in parameters.weights(model).groups()}


def _shape_changes(a: Holder, b: Holder) -> Iterator[str]:
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


def _cuts(a: Holder, b: Holder) -> Iterator[Cut]:
    x, y = a.spec.parallel, b.spec.parallel
    for name in ("tp", "pp", "ep", "etp"):
        if getattr(x, name) != getattr(y, name):
            yield Cut(f"parallel.{name}", f"{name} {getattr(x, name)} -> {getattr(y, name)}")
    stages = [[(s.stage, s.first, s.last) for s in each.layout.stages] for each in (a, b)]
    if x.pp == y.pp and stages[0] != stages[1]:
        path = "parallel.stages" if x.schedule == y.schedule else "parallel.schedule"
        yield Cut(path, "other layers on each stage")
    if a.layout.stages and b.layout.stages and padded_vocab(a.spec) != padded_vocab(b.spec):
        rows = f"{padded_vocab(a.spec)} -> {padded_vocab(b.spec)} rows"
        name = "tp" if x.vocab_multiple == y.vocab_multiple else "vocab_multiple"
        yield Cut(f"parallel.{name}", f"vocabulary padded to {rows}")
    sharded = [each.layout.size("shard") for each in (a, b)]
    if x.zero != y.zero and (0 in (x.zero, y.zero) or 3 in (x.zero, y.zero)):
        yield Cut("parallel.zero", f"zero {x.zero} -> {y.zero}")
    elif x.zero and y.zero and sharded[0] != sharded[1]:
        yield Cut("parallel.shard", f"state over {sharded[0]} -> {sharded[1]} ranks")
