"""The asserts of a file against its ledger: which hold, and what to tell of those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from parlay.compiler.ledger.document import Ledger
from parlay.compiler.ledger.values import Value, values
from parlay.compiler.spec.asserting import Known, Sides, named, sides
from parlay.compiler.spec.evaluate import Evaluator
from parlay.compiler.spec.resolve import Phase
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.source import Source
from parlay.dsl.units import Dimension, Quantity, show

OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
SAME: Final = Fraction(1, 10**9)
"""Figures closer than this, relative, are equal: most of them were floats once."""

FASTER: Final = {
    "throughput.mfu": 1,
    "throughput.tokens": 1,
    "throughput.tokens_per_gpu": 1,
    "time.step": -1,
    "run.days": -1,
    "run.gpu_hours": -1,
    "run.cost": -1,
}
"""What grows (1) and what shrinks (-1) in proportion as the step gets faster."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One assert: `value` is its ledger's side (the left one where both or neither name a figure).

    `formulas` are the arithmetic of each figure that it names.
    """

    text: str
    left: Quantity
    right: Quantity
    value: Quantity
    holds: bool
    formulas: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Every assert that has a value, and what is wrong with those that fail or have none."""

    verdicts: tuple[Verdict, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def holds(self) -> bool:
        """Whether every assert has a value and holds."""
        return not self.diagnostics


def judge(phase: Phase, ledger: Ledger, sources: Mapping[str, Source]) -> Judgement:
    """The asserts of a phase against its ledger."""
    if not phase.asserts or phase.evaluator is None:
        return Judgement((), ())
    figures = values(ledger)
    known: Known = {name: figure.known for name, figure in figures.items()}
    verdicts: list[Verdict] = []
    told: list[Diagnostic] = []
    for claim in phase.asserts:
        text = " ".join(sources[claim.span.file].text[claim.span.start : claim.span.end].split())
        text = text.removeprefix("assert").strip()
        found, wrong = sides(phase.evaluator, claim, known)
        told += wrong
        if found is None:
            continue
        about = named(claim, phase.evaluator)
        verdict = _verdict(text, claim, found, about, phase.evaluator, figures)
        verdicts.append(verdict)
        if not verdict.holds:
            said = _beyond_peak(claim, phase.evaluator, verdict, known) or _fails(claim, verdict)
            told.append(_in_phase(said, phase))
    return Judgement(tuple(verdicts), tuple(told))


def _verdict(
    text: str,
    claim: syntax.Assert,
    found: Sides,
    about: tuple[str, ...],
    evaluator: Evaluator,
    figures: Mapping[str, Value],
) -> Verdict:
    right_alone = named(claim, evaluator) and not named(replace(claim, right=claim.left), evaluator)
    value = found.right if right_alone else found.left
    formulas = {name: figures[name].formula for name in about}
    return Verdict(text, *found, value, _holds(claim.operator, *found), formulas)


def _holds(operator: str, left: Quantity, right: Quantity) -> bool:
    equal = abs(left.value - right.value) <= SAME * max(abs(left.value), abs(right.value))
    less = left.value < right.value
    match operator:
        case "<":
            return less and not equal
        case "<=":
            return less or equal
        case ">":
            return not less and not equal
        case ">=":
            return not less or equal
        case "==":
            return equal
    return not equal


def to_json(judgement: Judgement) -> list[dict[str, Any]]:
    """The `asserts` of `parlay ledger --json`, values in base units."""
    return [
        {
            "text": verdict.text,
            "value": _number(verdict.value),
            "holds": verdict.holds,
            "left": _number(verdict.left),
            "right": _number(verdict.right),
            "dimension": verdict.value.dimension.value,
            "formulas": dict(verdict.formulas),
        }
        for verdict in judgement.verdicts
    ]


def _number(quantity: Quantity) -> int | float:
    value = quantity.value
    return value.numerator if value.denominator == 1 else float(value)


# ── Words ─────────────────────────────────────────────────────────────────────


def _fails(claim: syntax.Assert, verdict: Verdict) -> Diagnostic:
    left, right = _pair(verdict.left, verdict.right)
    said = f"{left} {OPPOSITE[claim.operator]} {right}"
    return error(
        "A201",
        f"`{verdict.text}` does not hold: {said}",
        claim.left.span,
        left,
        also=[(claim.right.span, right)],
        notes=_formulas(verdict),
    )


def _formulas(verdict: Verdict) -> list[str]:
    return [f"{name} = {formula}" for name, formula in verdict.formulas.items()]


def _pair(left: Quantity, right: Quantity) -> tuple[str, str]:
    """Both for people, with more digits where they differ and would read the same."""
    dimension = left.dimension if left.dimension is not Dimension.COUNT else right.dimension
    shown = show(left.value, dimension), show(right.value, dimension)
    if left.value == right.value or shown[0] != shown[1]:
        return shown
    scale, unit = (100, "%") if dimension is Dimension.SHARE else (1, "")
    return f"{float(left.value) * scale:.12g}{unit}", f"{float(right.value) * scale:.12g}{unit}"


def _in_phase(said: Diagnostic, phase: Phase) -> Diagnostic:
    if phase.name == "main":
        return said
    return replace(said, notes=(*said.notes, f'in phase "{phase.name}"'))


# ── Faster than the GPU ───────────────────────────────────────────────────────


def _beyond_peak(
    claim: syntax.Assert, evaluator: Evaluator, verdict: Verdict, known: Known
) -> Diagnostic | None:
    """An error of its own where the assert fails at an MFU of 100 % too."""
    mfu = known.get("throughput.mfu")
    about = named(claim, evaluator)
    if not isinstance(mfu, Quantity) or not mfu.value or not any(name in FASTER for name in about):
        return None
    found, _ = sides(evaluator, claim, _faster(known, 1 / mfu.value))
    beyond, _ = sides(evaluator, claim, _faster(known, 10**9 / mfu.value))
    if found is None or beyond is None or _holds(claim.operator, *found):
        return None
    if not _holds(claim.operator, *beyond):
        return None
    needed = _needed(claim, about, verdict, mfu.value)
    asked = "more than an MFU of 100%" if needed is None else f"an MFU of {_percent(needed)}"
    left, right = _pair(*found)
    return error(
        "W280",
        f"`{verdict.text}` asks for {asked}",
        claim.left.span,
        f"{left} at the GPU's peak",
        also=[(claim.right.span, right)],
        notes=_formulas(verdict),
        help=["the peak is the dense one of `train.precision`; another precision has another peak"],
    )


def _faster(known: Known, times: Fraction) -> Known:
    """The same figures of a step that is so many times as fast."""
    return {
        name: value
        if name not in FASTER or isinstance(value, str)
        else Quantity(value.value * times ** FASTER[name], value.dimension)
        for name, value in known.items()
    }


def _needed(
    claim: syntax.Assert, about: tuple[str, ...], verdict: Verdict, mfu: Fraction
) -> Fraction | None:
    """The MFU at which the assert would just hold, where one side is one figure alone."""
    if len(about) != 1:
        return None
    sides_ = ((claim.left, verdict.left, verdict.right), (claim.right, verdict.right, verdict.left))
    for expr, value, target in sides_:
        if isinstance(expr, syntax.Ref) and value.value and target.value > 0:
            ratio: Fraction = (target.value / value.value) ** FASTER[about[0]]
            if ".".join(part.text for part in expr.path) == about[0]:
                return mfu * ratio
    return None


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f}%"
