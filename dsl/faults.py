"""What the parser tells: one function a kind of mistake, from facts to words and fix."""

from __future__ import annotations

from parlay.dsl.diagnostics.record import Diagnostic, Edit, Fix, Severity, error
from parlay.dsl.odd import quoted
from parlay.dsl.source import Span


def replace_by(title: str, span: Span, text: str) -> tuple[Fix, ...]:
    """The one fix that replaces a place by `text`."""
    return (Fix(title, (Edit(span, text),)),)


def _after(span: Span) -> Span:
    return Span(span.file, span.end, span.end)


# ── The whole file ────────────────────────────────────────────────────────────


def empty(name: str, length: int) -> Diagnostic:
    """P007: nothing but white space and comments."""
    return error(
        "P007",
        "the file holds no statement",
        Span(name, 0, 0),
        "nothing but comments" if length else "empty",
        help=("a job needs at least a `model`, a `cluster` and a `parallel` block",),
    )


def too_many(name: str, end: int, told: int) -> Diagnostic:
    """P070: the rest of the mistakes is not told."""
    place = Span(name, end, end)
    message = f"the file has more than {told} mistakes in its syntax; the rest is not told"
    return error("P070", message, place, "from here on").at(Severity.NOTE)


# ── Brackets and separators ───────────────────────────────────────────────────


def unclosed(opener: Span, sign: str, closer: str, gap: Span) -> Diagnostic:
    """P030: a bracket without its partner."""
    line = "\n" if closer == "}" else ""
    return error(
        "P030",
        f"`{sign}` is not closed",
        opener,
        "opened here",
        also=((gap, f"a `{closer}` may be missing here"),),
        fixes=replace_by(f"close it with `{closer}`", gap, line + closer),
    )


def mismatched(closer: Span, opener: Span, sign: str) -> Diagnostic:
    """P031: closed by a bracket of another kind."""
    right = {"{": "}", "[": "]", "(": ")"}[sign]
    return error(
        "P031",
        f"`{sign}` is closed by a bracket of another kind",
        closer,
        f"`{right}` is needed",
        also=((opener, "opened here"),),
        fixes=replace_by(f"write `{right}`", closer, right),
    )


def stray_closer(closer: Span, sign: str) -> Diagnostic:
    """P031: closes nothing."""
    return error(
        "P031",
        f"`{sign}` closes nothing",
        closer,
        "no bracket of its kind is open",
        fixes=replace_by(f"take the `{sign}` out", closer, ""),
    )


def too_deep(opener: Span, limit: int) -> Diagnostic:
    """P032: brackets within brackets."""
    return error(
        "P032",
        f"braces, brackets and parentheses are more than {limit} deep",
        opener,
        f"number {limit + 1}, counted from the outermost",
    )


def too_large(operator: Span, limit: int) -> Diagnostic:
    """P033: operators within operators."""
    return error(
        "P033",
        f"the expression is more than {limit} operators deep",
        operator,
        "the operator beyond",
        help=("a `let` may hold a part of it",),
    )


def comma_missing(gap: Span, following: str, where: str, opener: Span) -> Diagnostic:
    """P037: two items without a comma."""
    return error(
        "P037",
        f"a `,` may be missing before {following}",
        gap,
        f"items of {where} are separated by commas",
        also=((opener, f"{where} starts here"),),
        fixes=replace_by("write a `,`", gap, ","),
    )


def closer_missing(place: Span, found: str, wanted: str, where: str, opener: Span) -> Diagnostic:
    """P037: something within brackets that neither goes on nor closes."""
    return error(
        "P037",
        f"{wanted} may be missing before {found}",
        place,
        f"{where} cannot go on with this",
        also=((opener, "opened here"),),
    )


def stray_comma(comma: Span, top: bool) -> Diagnostic:
    """P038: a comma that separates nothing."""
    return error(
        "P038",
        "a comma separates nothing here",
        comma,
        "statements need none between them" if top else "one comma between two items at most",
        fixes=replace_by("take the comma out", comma, ""),
    )


def semicolon(place: Span, replacement: str) -> Diagnostic:
    """P019: `;`."""
    title = "write a `,`" if replacement == "," else "take the `;` out"
    return error(
        "P019",
        "`;` separates nothing in this language",
        place,
        "a comma or a new line stands between fields",
        fixes=replace_by(title, place, replacement),
    )


# ── Fields and values ─────────────────────────────────────────────────────────


def value_missing(place: Span, what: str, found: str) -> Diagnostic:
    """P034: nothing that is a value where one is needed."""
    return error("P034", f"{what} needs a value, not {found}", place, "a value may be missing here")


def plus_sign(place: Span) -> Diagnostic:
    """P034: a plus before a number."""
    return error(
        "P034",
        "a value has no `+` before it",
        place,
        "a number is positive as it stands",
        fixes=replace_by("take the `+` out", place, ""),
    )


def equals_missing(name: Span, text: str) -> Diagnostic:
    """P035: a field's value without `=`."""
    return error(
        "P035",
        f"a `=` may be missing after {quoted(text)}",
        name,
        "a field is written `name = value`",
        fixes=replace_by("write `=`", _after(name), " ="),
    )


def not_equals(place: Span, sign: str, text: str, *, spaced: bool) -> Diagnostic:
    """P036: another sign where `=` is needed; `spaced` where a space stands before it."""
    compares = " (`==` compares, in an `assert`)" if sign == "==" else ""
    if sign == "<=":
        fixes = replace_by("write `= auto <=`", place, "= auto <=")
    else:
        fixes = replace_by("write `=`", place, "=" if spaced or sign != ":" else " =")
    return error(
        "P036",
        f"{quoted(text)} takes its value by `=`, not `{sign}`{compares}",
        place,
        "`=` is needed",
        fixes=fixes,
    )


def keyword_as_name(place: Span, word: str, what: str) -> Diagnostic:
    """P039: a word of the language's own."""
    return error(
        "P039",
        f"`{word}` is a word of the language and cannot be {what}",
        place,
        "another name is needed",
    )


def quoted_name(place: Span, name: str) -> Diagnostic:
    """P051: a field's name in quotation marks."""
    return error(
        "P051",
        "the name of a field stands without quotation marks",
        place,
        "a name, not a string",
        fixes=replace_by(f"write {quoted(name)}", place, name) if name.isidentifier() else (),
    )


def unexpected(place: Span, found: str, wanted: str) -> Diagnostic:
    """P040: something that cannot stand here."""
    return error("P040", f"{wanted} cannot start with {found}", place, f"{wanted} is needed here")


def name_missing(place: Span, what: str, found: str) -> Diagnostic:
    """P050: a name is needed."""
    return error("P050", f"{what} needs a name, not {found}", place, "a name may be missing here")


def path_as_field(path: Span, text: str, fix: str | None, whole: Span) -> Diagnostic:
    """P056: `parallel.tp = 8`."""
    return error(
        "P056",
        f"a path such as {quoted(text)} is read, not written",
        path,
        "a field is set in its block",
        fixes=replace_by(f"write {quoted(fix)}", whole, fix) if fix else (),
    )


def equals_before_block(place: Span, name: str) -> Diagnostic:
    """P057: `parallel = { … }`."""
    return error(
        "P057",
        f"the block {quoted(name)} takes no `=` before its `{{`",
        place,
        "a block is written `name { … }`",
        fixes=replace_by("take it out", place, ""),
    )


def comparison_outside(place: Span, sign: str) -> Diagnostic:
    """P049: `tp = a < b`."""
    return error(
        "P049",
        f"`{sign}` compares, which only an `assert` does",
        place,
        "a value ends before this",
        help=("`auto <= 8` bounds what the compiler may choose",),
    )


def auto_inside(place: Span) -> Diagnostic:
    """P058: `auto` within an expression."""
    return error(
        "P058",
        "`auto` is a whole value and takes no part in an expression",
        place,
        "stands for a value that is not known here",
        help=("`auto in [2, 4]` or `auto <= 8` restrict the choice",),
    )


def auto_restriction(place: Span, sign: str) -> Diagnostic:
    """P055: `auto >= 2`, `auto in 8`."""
    known = "`auto` is restricted by `in [ … ]` or by `<=`"
    if sign == "in":
        return error("P055", "`auto in` needs a list", place, "a `[` may be missing here")
    fixes = replace_by("write `<=`", place, "<=") if sign in ("<", "=") else ()
    return error("P055", f"`auto {sign}` restricts nothing", place, known, fixes=fixes)
