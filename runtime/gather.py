"""Weights are made whole when they are used, and freed when they are not (ZeRO-3).

A stage uses its units one after the other: what stands before the layers, each layer, what stands
behind them. A unit is gathered before its forward and once more before its backward, while the one
before it runs: at most two are whole, and a tied embedding. What stands before the layers waits for
its backward, which has the most gradients. A tied embedding of one stage is used twice in a
forward: it stays whole from the head's forward to its backward, and is gathered no third time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parlay.runtime.unit_members import FIRST_UNIT, children, stages_of
from parlay.runtime.units import UnitWeights
from torch import Tensor, nn
from torch.autograd import Variable


def gather_on_use(model: nn.Module, weights: UnitWeights, *, overlap: bool = True) -> None:
    """Hooks into the stages of `model` that gather and free the units of `weights`.

    Without `overlap` a unit is gathered when it is used, not while the one before it runs.
    """
    for stage in stages_of(model):
        _Stage(stage, weights, overlap)


class _Stage:
    """The turns of one stage, in the order of its forward; `units[turn]` are whole in it."""

    def __init__(self, stage: Any, weights: UnitWeights, overlap: bool) -> None:
        self.weights, self.overlap = weights, overlap
        self.back = False
        layers = list(stage.layers.values())
        parts = dict(children(stage))
        uses = {name: self._units(modules) for name, modules in parts.items()}
        if "last" not in parts and _ends(stage):
            uses["last"] = []
        table = _table(stage) if "last" in uses else None
        if table is not None:
            (unit,) = self._units([table])
            uses["last"] += [unit] if unit not in uses["last"] else []
        self.units = list(uses.values())
        self.first, self.last = FIRST_UNIT in uses, "last" in uses
        self.again = list(self.units)
        self.tied = table is not None and not hasattr(stage, "stage")
        if self.tied and not hasattr(stage, "embedding_norm"):
            self.again[0] = []
        stage.register_forward_pre_hook(self._start)
        for turn, layer in enumerate(layers, start=self.first):
            layer.register_forward_pre_hook(self._before(turn))
            layer.register_forward_hook(self._after(turn, final=layer is layers[-1]))
        stage.register_forward_hook(self._end)

    def _units(self, modules: list[nn.Module]) -> list[Any]:
        of = self.weights.unit_of
        found = [of.get(id(p)) for module in modules for p in module.parameters()]
        return list(dict.fromkeys(unit for unit in found if unit is not None))

    # ── Forward ───────────────────────────────────────────────────────────────

    def _start(self, *_: Any) -> None:
        self.back = False
        if self.first:
            self._enter(0)

    def _before(self, turn: int) -> Any:
        def before(_: nn.Module, given: tuple[Any, ...]) -> None:
            if self.back:  # computed again: it is whole
                return
            if turn == 1 and self.first and self.again[0] and given[0].requires_grad:
                given[0].register_hook(lambda _: self._enter_back(0))
            self._enter(turn)

        return before

    def _after(self, turn: int, *, final: bool) -> Any:
        def after(_: nn.Module, given: Any, out: Tensor) -> None:
            if self.back:
                return
            if out.requires_grad:
                out.register_hook(lambda _: self._enter_back(turn))
            if final and self.last:
                self._enter(turn + 1)
            elif final:
                self._free(self.units[turn])

        return after

    def _end(self, _: nn.Module, given: Any, out: Tensor) -> None:
        if not self.last:
            return
        turn = len(self.units) - 1
        if not self.tied or not out.requires_grad:
            self._free(self.units[turn])
        if out.requires_grad:
            out.register_hook(lambda _: self._enter_back(turn))

    def _enter(self, turn: int) -> None:
        """The turn's units are whole; those before it are freed, those behind it on their way."""
        self._move(self.units, turn, turn - 1, turn + 1)

    # ── Backward ──────────────────────────────────────────────────────────────

    def _enter_back(self, turn: int) -> None:
        self.back = True
        if turn <= self.first:
            # Gradients that are put off need no weights: they do not wait for those to be freed.
            self._at_end(lambda: self._free(self.units[turn]))
        # What stands before the layers is not made whole beside the first one's backward.
        self._move(self.again, turn, turn + 1, turn - 1 if turn > self.first else -1)

    @staticmethod
    def _at_end(do: Callable[[], None]) -> None:
        """Does `do` when the backward that runs has ended."""
        Variable._execution_engine.queue_callback(do)

    def _move(self, units: list[list[Any]], turn: int, left: int, coming: int) -> None:
        there = range(len(units))
        if left in there:
            self._free([unit for unit in units[left] if unit not in units[turn]])
        assert self.weights.own is not None
        for unit in units[turn]:
            unit.gather(self.weights.own)
        for unit in units[turn]:
            unit.wait()
        if self.overlap and coming in there:
            for unit in units[coming]:
                unit.gather(self.weights.own)

    def _free(self, units: list[Any]) -> None:
        for unit in units:
            unit.free()


def _ends(stage: Any) -> bool:
    """Whether a stage has the head."""
    return not hasattr(stage, "stage") or stage.stage.head


def _table(stage: Any) -> nn.Module | None:
    """The embedding that is the head's weight, too, where there is no other."""
    head = getattr(stage, "head", None)
    if head is not None and hasattr(head, "weight"):
        return None
    return getattr(stage, "embedding", None)
