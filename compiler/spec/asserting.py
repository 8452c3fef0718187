"""What an `assert` may name besides fields and lets, and the values of its two sides.

The ledger's values have names of their own (`memory.peak`); a `let` of the same name wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from parlay.compiler.spec import arithmetic, problems
from parlay.compiler.spec.evaluate import Evaluator
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.units import Dimension, Quantity

CATEGORIES: Final = (
    *("weights", "gradients", "optimizer", "activations", "logits", "gathered", "buffers"),
    *("temporaries", "reserve"),
)
GROUPS: Final = (
    *("tp", "cp", "pp", "dp", "dp_cp", "tp_cp", "tp_pp", "model", "shard", "replicate", "ep"),
    *("etp", "etp_ep", "edp", "expert_shard", "expert_replicate", "embedding", "kv", "world"),
)
VALUES: Final[Mapping[str, Dimension]] = {
    "memory.peak": Dimension.DATA,
    **{f"memory.{category}": Dimension.DATA for category in CATEGORIES},
    "memory.host_per_node": Dimension.DATA,
    "pipeline.bubble": Dimension.SHARE,
    "pipeline.bubble_over_ideal": Dimension.SHARE,
    "throughput.mfu": Dimension.SHARE,
    "throughput.hfu": Dimension.SHARE,
    "throughput.tokens": Dimension.COUNT,
    "throughput.tokens_per_gpu": Dimension.COUNT,
    **{f"communication.{group}.bytes": Dimension.DATA for group in GROUPS},
    "time.step": Dimension.TIME,
    "time.compute": Dimension.TIME,
    "time.exposed_communication": Dimension.TIME,
    "run.days": Dimension.COUNT,
    "run.gpu_hours": Dimension.COUNT,
    "run.cost": Dimension.COUNT,
    "goodput": Dimension.SHARE,
}
"""Name -> what it measures. `run.days` may be compared with a time too, `run.cost` is in $."""

DAYS: Final = "run.days"
_PLAIN: Final = (Dimension.COUNT, Dimension.SHARE)
Known = Mapping[str, "Quantity | str"]
"""The ledger's values by name; a sentence where one has no value."""


class Sides(NamedTuple):
    """The values of both sides of an assert, in dimensions that compare."""

    left: Quantity
    right: Quantity


def sides(
    evaluator: Evaluator, claim: syntax.Assert, values: Known
) -> tuple[Sides | None, tuple[Diagnostic, ...]]:
    """Both sides of `claim`, or None with what is wrong with it."""
    found, told = _sides(evaluator, claim, values)
    days = values.get(DAYS)
    if found is None and DAYS in named(claim, evaluator) and isinstance(days, Quantity):
        # `run.days <= 30` and `run.days <= 30d` are both plain speech.
        as_time = {**values, DAYS: Quantity(days.value * 86400, Dimension.TIME)}
        again, _ = _sides(evaluator, claim, as_time)
        if again is not None:
            return again, ()
    return found, told


def examine(evaluator: Evaluator, claims: Sequence[syntax.Assert]) -> None:
    """Tells what is wrong with the asserts before there is a ledger: names, dimensions."""
    # No value is known yet; unlike ones keep differences from coming out as 0.
    standing = {
        name: Quantity(1 + Fraction(1, 7919 + 2 * place), dimension)
        for place, (name, dimension) in enumerate(VALUES.items())
    }
    for claim in claims:
        for diagnostic in sides(evaluator, claim, standing)[1]:
            evaluator.tell(diagnostic)


def named(claim: syntax.Assert, evaluator: Evaluator) -> tuple[str, ...]:
    """The ledger's values that an assert names, left to right, each once."""
    found = (
        ".".join(part.text for part in ref.path)
        for side in (claim.left, claim.right)
        for ref in _refs(side)
    )
    return tuple(dict.fromkeys(n for n in found if n in VALUES and n not in evaluator.table.lets))


def _sides(
    evaluator: Evaluator, claim: syntax.Assert, values: Known
) -> tuple[Sides | None, tuple[Diagnostic, ...]]:
    names = _Names(evaluator, values)
    about = named(claim, evaluator)
    wanted = VALUES[about[0]] if about else None
    left = arithmetic.number(names, claim.left, wanted)
    right = arithmetic.number(names, claim.right, wanted)
    if left is None or right is None:
        return None, tuple(names.told)
    plain = left.dimension in _PLAIN and right.dimension in _PLAIN
    if left.dimension is not right.dimension and not plain:
        return None, (
            *names.told,
            problems.mixed_dimensions(claim.operator, left.dimension, right.dimension, claim.span),
        )
    return Sides(left, right), tuple(names.told)


class _Names:
    """Fields and lets of a phase, and the ledger's values above them."""

    def __init__(self, evaluator: Evaluator, values: Known) -> None:
        self.told: list[Diagnostic] = []
        self._evaluator = evaluator
        self._values = values

    def tell(self, diagnostic: Diagnostic) -> None:
        self.told.append(diagnostic)

    def refer(self, ref: syntax.Ref) -> Quantity | None:
        name = ".".join(part.text for part in ref.path)
        if name in VALUES and name not in self._evaluator.table.lets:
            value = self._values.get(name, "nothing in this job has it")
            if isinstance(value, Quantity):
                return value
            self.tell(problems.no_value(ref, value))
            return None
        before = len(self._evaluator.diagnostics)
        found = self._evaluator.refer(ref)
        for diagnostic in self._evaluator.diagnostics[before:]:
            if diagnostic.code == "T011":
                diagnostic = problems.unknown_name(ref, [*VALUES, *self._evaluator.names()])
            self.tell(diagnostic)
        del self._evaluator.diagnostics[before:]
        return found


def _refs(expr: syntax.Expr) -> Iterator[syntax.Ref]:
    """Every reference in an expression, left to right; chains of any length."""
    waiting: list[syntax.Expr] = [expr]
    while waiting:
        at = waiting.pop()
        match at:
            case syntax.Ref():
                yield at
            case syntax.Group():
                waiting.append(at.inner)
            case syntax.Unary():
                waiting.append(at.operand)
            case syntax.Binary():
                waiting += [at.right, at.left]
            case syntax.Call():
                waiting += [argument.value for argument in reversed(at.arguments)]
