"""Which rule is asked when: as soon as everything that it reads is decided, and once for all alike.

A rule that reads degrees and one list of a stem is asked about the entries of that list; whatever
reads more is asked about whole layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any, Final

from parlay.compiler.checks import all_rules, microbatches
from parlay.compiler.checks.rules import Rule
from parlay.compiler.checks.subject import LAYOUT, WHOLE, Subject
from parlay.compiler.layout import Layout
from parlay.compiler.layout.orders import dense_order
from parlay.compiler.planner.spelling import spelling
from parlay.compiler.planner.stem import LATE, LISTS
from parlay.compiler.spec.blocks import Parallel
from parlay.compiler.spec.schema import Derived, Setting, fields_of
from parlay.dsl.diagnostics import Severity

PEAK: Final = "M204"
"""The peak of a step, which the score of a layout has: it is not worked out twice."""
TP_FAR: Final = "N201"
"""tp beyond the fast domain, which follows from its size and its stride in the grid of ranks."""
PLACING: Final = frozenset((TP_FAR, "L230"))
"""Rules that read of a layout where ranks stand and how state is cut over them, no stages."""


class Asking:
    """The rules of a phase by the moment at which they are asked.

    `degrees[n]` follow the first n degrees, `lists[name]` are about the entries of a list (those of
    `work` may read the schedule, those of `state` the order), `whole` about whole layouts.
    """

    def __init__(self, subject: Subject, degrees: Sequence[str]) -> None:
        self.degrees: list[list[Rule]] = [[] for _ in range(len(degrees) + 1)]
        self.lists: dict[str, list[Rule]] = {name: [] for name in LISTS}
        self.whole: list[Rule] = []
        self._reads = _Reads(subject, degrees)
        self._known: dict[tuple[Any, ...], str | None] = {}
        for rule in judges():
            if rule.ALLOWED and rule.CODE in subject.origins.allowed:
                continue
            level, late = self._reads.of(rule)
            name = _list_of(late)
            if not late:
                # A layout stands only when all is decided that it follows from.
                self.degrees[-1 if LAYOUT in rule.READS else level].append(rule)
            elif name is not None:
                self.lists[name].append(rule)
            else:
                self.whole.append(rule)

    def of(self, name: str, subject: Subject) -> Callable[..., str | None]:
        """What the rules of a list say of its entries on a job: the code of an error, or None.

        The layout of an entry goes with it where rules read that.
        """
        rules = self.lists[name]
        paths = {path for rule in rules for path in rule.READS if path != LAYOUT}
        given = {path: _named(subject.value(path)) for path in paths}

        def code_of(chosen: Mapping[str, Any], layout: Layout | None = None) -> str | None:
            named = {**given, **{path: _named(value) for path, value in chosen.items()}}
            for rule in rules:
                values = [named[path] for path in rule.READS if path != LAYOUT]
                if rule.READS == microbatches.READS:
                    # Of batch, microbatch and replicas it asks how many there are of each.
                    batch, micro, replicas, *rest = values
                    values = [*divmod(batch, micro * replicas), *rest]
                if LAYOUT in rule.READS:
                    if layout is None:
                        continue
                    # How state is cut: whether the experts' can be.
                    cut = (layout.expert is None, layout.sharded_expert is None)
                    values = [*cut, named.get("parallel.zero") == 0]
                key = (rule.CODE, tuple(values))
                if key not in self._known:
                    self._known[key] = fault(rule, subject.with_values(chosen))
                if self._known[key] is not None:
                    return self._known[key]
            return None

        return code_of

    def fault(self, rules: Sequence[Rule], subject: Subject) -> str | None:
        """The code of the first error that one of `rules` finds, asked once for the same values."""
        for rule in rules:
            code = self._fault(rule, subject)
            if code is not None:
                return code
        return None

    @property
    def near(self) -> bool:
        """Whether it is asked of orders how far tp reaches."""
        return any(rule.CODE == TP_FAR for rule in self.lists["order"])

    def far(self, subject: Subject, order: Mapping[str, Any]) -> str | None:
        """The code where the ranks of tp are not near each other in an order of a stem."""
        rules = [rule for rule in self.lists["order"] if rule.CODE == TP_FAR]
        if not rules:
            return None
        parallel = subject.parallel
        stride = stride_of_tp(replace(parallel, order=order["parallel.order"]))
        key = (TP_FAR, (parallel.tp, stride))
        if key not in self._known:
            self._known[key] = fault(rules[0], subject.with_values(order))
        return self._known[key]

    def _fault(self, rule: Rule, subject: Subject) -> str | None:
        values: tuple[Any, ...]
        if rule.CODE == TP_FAR:
            values = (subject.parallel.tp, stride_of_tp(subject.parallel))
        elif LAYOUT in rule.READS or WHOLE in rule.READS:
            return fault(rule, subject)
        else:
            values = tuple([_named(subject.value(path)) for path in rule.READS])
        key = (rule.CODE, values)
        if key not in self._known:
            self._known[key] = fault(rule, subject)
        return self._known[key]


@cache
def judges() -> tuple[Rule, ...]:
    """The general rules that tell errors, but the peak's: those that only warn are left out."""
    # A rule that refuses names the maker of errors, or the helper that makes them for several.
    makers = {"error", "indivisible", "divide"}
    return tuple(
        rule for rule in all_rules() if rule.CODE != PEAK and not makers.isdisjoint(vars(rule))
    )


def fault(rule: Rule, subject: Subject) -> str | None:
    """The code of the first error that a rule finds; None where it finds none."""
    if not subject.has(rule.READS):
        return None
    return next(
        (each.code for each in rule.check(subject) if each.severity is Severity.ERROR), None
    )


def _named(value: Any) -> Any:
    """A value as a key."""
    return spelling(value) if isinstance(value, Setting | list | dict) else value


def stride_of_tp(parallel: Parallel) -> int:
    """How far apart neighbours of one group of tp are."""
    order = dense_order(parallel.order)
    return prod(getattr(parallel, axis) for axis in order[: order.index("tp")])


def _list_of(late: frozenset[str]) -> str | None:
    """The list whose entries say all that is read; None where no single one does."""
    beside: Mapping[str, tuple[str, ...]] = {"work": LISTS["schedule"], "state": LISTS["order"]}
    for name in ("schedule", "method", "order", "work", "state"):
        if late <= {*LISTS[name], *beside.get(name, ())}:
            return name
    return None


class _Reads:
    """After how many degrees what a rule reads has its value, and what of it comes later."""

    def __init__(self, subject: Subject, degrees: Sequence[str]) -> None:
        self.open = frozenset(subject.open)
        self.level = {path: index + 1 for index, path in enumerate(degrees)}
        self.follows: dict[str, frozenset[str]] = {}
        for _ in range(2):  # shard follows from dp, which follows from the degrees
            for schema in fields_of(Parallel):
                path, default = f"parallel.{schema.name}", schema.default
                if isinstance(default, Derived) and subject.derived(path):
                    self.level[path] = max(map(self._level, default.paths))
                    late = [self._late(each) for each in default.paths]
                    self.follows[path] = frozenset[str]().union(*late)

    def of(self, rule: Rule) -> tuple[int, frozenset[str]]:
        """The number of degrees, and the paths of lists."""
        paths = set(rule.READS)
        if LAYOUT in paths:
            paths |= {f"parallel.{axis}" for axis in ("tp", "cp", "pp", "dp", "ep", "etp")}
            paths |= {"parallel.order", "parallel.shard"}
            if rule.CODE == TP_FAR:  # one group of tp, wherever state is cut
                paths -= {"parallel.shard"}
            if rule.CODE not in PLACING:
                paths |= {"parallel.schedule", "parallel.stages"}
        late = frozenset[str]().union(*map(self._late, paths))
        if WHOLE in paths:
            late |= LATE
        return max(map(self._level, paths), default=0), late

    def _level(self, path: Any) -> int:
        while path:
            if path in self.level:
                return self.level[path]
            path = path.rpartition(".")[0]
        return 0

    def _late(self, path: str) -> frozenset[str]:
        if path in self.follows:
            return self.follows[path]
        return frozenset((path,)) if path in LATE and path in self.open else frozenset()
