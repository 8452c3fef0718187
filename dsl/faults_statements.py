"""What the parser tells of statements, blocks and phases; the rest stands in `faults`."""

from __future__ import annotations

from parlay.dsl.diagnostics.record import Diagnostic, Fix, error
from parlay.dsl.faults import replace_by
from parlay.dsl.odd import quoted
from parlay.dsl.source import Span


def quotation_marks(place: Span, raw: str) -> tuple[Fix, ...]:
    """The fix for text that needs them; none where it is empty or holds some."""
    if not raw or '"' in raw or "\\" in raw:
        return ()
    return replace_by("write quotation marks", place, f'"{raw}"')


def field_outside(place: Span, name: str) -> Diagnostic:
    """P041: a field that no block holds."""
    return error(
        "P041",
        f"the field {quoted(name)} stands outside every block",
        place,
        "no block holds it",
        help=("a field stands in its block, as in `parallel { tp = 8 }`; `let` names a value",),
    )


def statement_inside(place: Span, word: str, opener: Span) -> Diagnostic:
    """P042: a statement in a block."""
    what = "a phase" if word == "phase" else f"`{word}`"
    return error(
        "P042",
        f"{what} stands at file level, not in a block",
        place,
        "not in a block",
        also=((opener, "the block starts here"),),
    )


def body_missing(keyword: Span, name: str) -> Diagnostic:
    """P043: a block of one word."""
    return error(
        "P043",
        f"{quoted(name)} stands alone: a block needs `{{ … }}` or `from`, a field `= value`",
        keyword,
        "says nothing",
    )


def head_too_long(place: Span, found: str, name: str) -> Diagnostic:
    """P043: something between a block's name and its brace."""
    return error(
        "P043",
        f"the block {quoted(name)} needs its `{{` before {found}",
        place,
        'a block is written `kind name { … }` or `kind from "preset" { … }`',
    )


def path_needed(place: Span, raw: str) -> Diagnostic:
    """P044: `import` without a string."""
    return error(
        "P044",
        "`import` needs a path in quotation marks",
        place,
        "a string",
        fixes=quotation_marks(place, raw),
    )


def phase_name_needed(place: Span, raw: str) -> Diagnostic:
    """P045: `phase` without a string."""
    message = "a phase needs a name in quotation marks"
    return error("P045", message, place, "a string", fixes=quotation_marks(place, raw))


def phase_body_needed(place: Span, found: str) -> Diagnostic:
    """P045: a phase without a body."""
    message = f"a phase needs `{{ … }}`, not {found}"
    return error("P045", message, place, "a `{` may be missing here")


def allow_incomplete(place: Span, missing: str) -> Diagnostic:
    """P046: `allow` without code or reason."""
    return error(
        "P046",
        f"`allow` needs {missing}",
        place,
        f"{missing} may be missing here",
        help=('it is written `allow N201 "the reason"`',),
    )


def comparison_needed(place: Span, found: str) -> Diagnostic:
    """P047: an `assert` that compares nothing."""
    fixes = replace_by("write `==`", place, "==") if found == "`=`" else ()
    return error(
        "P047",
        f"an `assert` needs a comparison, not {found}",
        place,
        "one of `<`, `<=`, `>`, `>=`, `==`, `!=` may be missing here",
        fixes=fixes,
    )


def comparison_twice(place: Span, sign: str) -> Diagnostic:
    """P048: an `assert` that compares more than once."""
    fixes = replace_by("write a second `assert`", place, "\nassert") if sign == "and" else ()
    return error(
        "P048",
        "an `assert` holds one comparison",
        place,
        "goes on here",
        help=() if fixes else ("two `assert`s hold two comparisons",),
        fixes=fixes,
    )


def preset_needed(place: Span, raw: str) -> Diagnostic:
    """P052: `from` without a string."""
    message = "`from` needs the name of a preset in quotation marks"
    return error("P052", message, place, "a string", fixes=quotation_marks(place, raw))


def field_in_phase(place: Span, name: str) -> Diagnostic:
    """P053: a field right in a phase."""
    return error(
        "P053",
        f"the field {quoted(name)} stands right in a phase",
        place,
        "no block holds it",
        help=('a phase holds blocks, as in `phase "long" { train { seq = 32Ki } }`',),
    )
