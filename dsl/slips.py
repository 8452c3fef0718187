"""What the lexer tells: one function a kind of mistake, from facts to words and fix."""

from __future__ import annotations

from contextlib import suppress

from parlay.dsl.diagnostics.record import Diagnostic, Edit, Fix, error
from parlay.dsl.nearest import nearest
from parlay.dsl.odd import code_points, quoted
from parlay.dsl.source import Source, Span
from parlay.dsl.units import UNITS, Dimension, units_of

# ── Characters ────────────────────────────────────────────────────────────────

_MEANT = {
    "&": "an `assert` holds one comparison; two hold both",
    "|": "an `assert` holds one comparison",
    "^": "there is no power operator; `2 * 2` or `1e6` may serve",
    "%": "`%` is the unit of a share and belongs to its number: `90%`",
    "$": "a price is written `2.5$/h`",
    "!": "`!=` compares",
    "@": "the language has no decorators",
    "\\": "a line needs no continuation mark: newlines never matter",
    "~": "an approximate figure is written as a plain number",
}


def stray_characters(span: Span, text: str) -> Diagnostic:
    """P010: what the language has no use for."""
    meant = _MEANT.get(text[0])
    return error(
        "P010",
        f"{quoted(text)} has no meaning here",
        span,
        "not part of the language",
        notes=() if text.isascii() else (f"this is {code_points(text)}",),
        help=(meant,) if meant else (),
    )


def hidden_characters(span: Span, text: str, where: str) -> Diagnostic:
    """P011: control characters, marks of writing direction, what takes no room."""
    many = len(text) > 1
    lone = text == "\r"
    tab = text.strip("\t") == ""
    plain = "\n" if lone else " " if tab else ""
    if lone:
        message = "a carriage return stands without its line feed"
    elif tab:
        message = f"a tab stands in {where}"
    else:
        message = f"{'characters' if many else 'a character'} without a shape in {where}"
    title = "end the line here" if lone else "write a space" if tab else "take out what is not seen"
    return error(
        "P011",
        message,
        span,
        code_points(text),
        notes=("what is read must be what is seen: such characters hide or reorder text",),
        fixes=(Fix(title, (Edit(span, plain),)),),
    )


def look_alike(span: Span, text: str, plain: str) -> Diagnostic:
    """P012: a character that looks like one of the language."""
    if plain == " ":
        message = f"a space of another kind ({code_points(text)})"
    else:
        message = f"{quoted(text)} only looks like {quoted(plain)}"
    odd = "".join(character for character in text if not character.isascii())
    return error(
        "P012",
        message,
        span,
        f"{code_points(odd)} here",
        fixes=(Fix(f"write {quoted(plain)}", (Edit(span, plain),)),),
    )


def foreign_letters(span: Span, word: str) -> Diagnostic:
    """P013: a name with letters that names do not have."""
    odd = "".join(character for character in word if not character.isascii())
    return error(
        "P013",
        f"{quoted(word)} is no name: names are ASCII letters, digits and `_`",
        span,
        code_points(odd),
        help=("other letters may stand in strings and comments",),
    )


# ── Strings and comments ──────────────────────────────────────────────────────


def open_string(span: Span) -> Diagnostic:
    """P014: no closing mark on the line."""
    end = Span(span.file, span.end, span.end)
    return error(
        "P014",
        "the string is not closed",
        span,
        'a `"` may be missing at its end',
        fixes=(Fix('close the string with `"`', (Edit(end, '"'),)),),
    )


def line_break_in_string(span: Span, line_break: Span) -> Diagnostic:
    """P015: a string over two lines."""
    return error(
        "P015",
        "a string goes on over the end of its line",
        span,
        "a string stands on one line",
        help=("`\\n` inside the string writes a line break",),
        fixes=(Fix("write the line break as `\\n`", (Edit(line_break, "\\n"),)),),
    )


def unknown_escape(span: Span, character: str) -> Diagnostic:
    """P016: a backslash before something else than `"`, `\\` or `n`."""
    backslash = Span(span.file, span.start, span.start + 1)
    return error(
        "P016",
        f"`\\{character}` is not an escape",
        span,
        'the escapes are `\\"`, `\\\\` and `\\n`',
        fixes=(Fix("write the backslash itself, `\\\\`", (Edit(backslash, "\\\\"),)),),
    )


def foreign_quotes(span: Span, mark: str, inner: str) -> Diagnostic:
    """P017: quotation marks of another kind."""
    meant = '"' + inner.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return error(
        "P017",
        f'a string needs `"`, not `{mark}`',
        span,
        "quotation marks of another kind",
        fixes=(Fix(f"write {quoted(meant)}", (Edit(span, meant),)),),
    )


def block_comment(source: Source, start: int, end: int, closed: bool) -> Diagnostic:
    """P018: `/* … */`."""
    span = Span(source.name, start, end)
    line_rest = source.text[end:].partition("\n")[0]
    fixes: tuple[Fix, ...] = ()
    inner = source.text[start + 2 : end - 2 if closed else end]
    if not line_rest.strip() or line_rest.lstrip().startswith("#"):
        lines = [line.strip().removeprefix("*").strip() for line in inner.split("\n")]
        kept = [line for line in lines if line] or [""]
        text = "\n".join(f"# {line}".rstrip() for line in kept)
        fixes = (Fix("write the comment with `#`", (Edit(span, text),)),)
    return error(
        "P018",
        "a comment starts with `#`",
        Span(source.name, start, start + 2),
        "a comment of another language",
        help=() if fixes else ("a comment runs from `#` to the end of its line",),
        fixes=fixes,
    )


def slash_comment(slashes: Span) -> Diagnostic:
    """P018: `// …`, which divides."""
    return error(
        "P018",
        "a comment starts with `#`; `//` divides",
        slashes,
        "a comment of another language",
        fixes=(Fix("write the comment with `#`", (Edit(slashes, "#"),)),),
    )


# ── Numbers ───────────────────────────────────────────────────────────────────


def too_many_digits(span: Span, digits: int, limit: int) -> Diagnostic:
    """P020: more digits than any figure needs."""
    return error(
        "P020",
        f"the number has {digits:,} digits; at most {limit} are read",
        span,
        "too long",
        help=("an exponent or a unit shortens it: `1e21`, `15.6T`",),
    )


def exponent_out_of_range(span: Span, limit: int) -> Diagnostic:
    """P021: beyond every quantity of a training job."""
    return error(
        "P021",
        f"the exponent is outside -{limit} to {limit}",
        span,
        "no quantity of a training job is so large or so small",
    )


_MEANT_UNITS = {
    "K": ("k", "Ki"),
    "G": ("B", "Gi", "GB"),
    "b": ("B",),
    "bn": ("B",),
    "m": ("min", "ms", "M"),
    "mins": ("min",),
    "sec": ("s",),
    "secs": ("s",),
    "hr": ("h",),
    "hrs": ("h",),
    "hours": ("h",),
    "day": ("d",),
    "days": ("d",),
    "µs": ("us",),
    "μs": ("us",),
    "KB": ("kB", "KiB"),
    "Kb": ("kB",),
    "kb": ("kB",),
    "gb": ("GB",),
    "tb": ("TB",),
    "mb": ("MB",),
    "Gb": ("GB", "Gb/s"),
    "Gbps": ("Gb/s",),
    "gbps": ("Gb/s",),
    "Gbit/s": ("Gb/s",),
    "GBps": ("GB/s",),
    "TBps": ("TB/s",),
    "TFLOPS": ("TFLOP/s",),
    "TFLOPs": ("TFLOP/s",),
    "TFlops": ("TFLOP/s",),
    "tflops": ("TFLOP/s",),
    "TFLOPS/s": ("TFLOP/s",),
    "PFLOPS": ("PFLOP/s",),
    "PFLOPs": ("PFLOP/s",),
    "GFLOPS": ("GFLOP/s",),
    "GFLOPs": ("GFLOP/s",),
}


def unknown_unit(unit: Span, text: str, plain: str) -> Diagnostic:
    """P022: letters after a number that are no unit; `plain` is `text` in ASCII."""
    if plain in UNITS:
        meant = [plain]
    else:
        known = [name for name in UNITS if name]
        meant = list(_MEANT_UNITS.get(plain, ())) or nearest(plain, known)
        # Without a near name, a rate is answered with the rates.
        if not meant and "/" in plain:
            meant = list(units_of(Dimension.RATE))
    help: tuple[str, ...] = ()
    if len(meant) == 1:
        help = (f"`{meant[0]}` may be meant",)
    elif meant:
        listed = ", ".join(f"`{name}`" for name in meant[:-1])
        help = (f"{listed} or `{meant[-1]}` may be meant",)
    if "/" in text:
        help = (*help, "a division has a space before its `/`")
    return error(
        "P022",
        f"{quoted(text)} is not a unit",
        unit,
        "no such unit",
        help=help,
        fixes=tuple(Fix(f"write `{name}`", (Edit(unit, name),)) for name in meant),
    )


def space_before_unit(whole: Span, gap: Span, number: str, unit: str) -> Diagnostic:
    """P023: `8 Ki`."""
    return error(
        "P023",
        f"a space stands between number and unit: {quoted(number + unit)} is one word",
        whole,
        "a quantity is written without spaces",
        fixes=(Fix(f"write {quoted(number + unit)}", (Edit(gap, ""),)),),
    )


def bare_fraction(before: Span) -> Diagnostic:
    """P024: `.5`."""
    return error(
        "P024",
        "a number needs a digit before its point",
        Span(before.file, before.start, before.start + 1),
        "`0.` is meant",
        fixes=(Fix("write the zero", (Edit(before, "0"),)),),
    )


def malformed_number(source: Source, at: int, good: int, end: int) -> Diagnostic:
    """P024: `5.`, `1__0`, `1.2.3`, `0x10`, `1e`; the text up to `good` is a number."""
    rest = source.text[good:end]
    span = Span(source.name, at, end)
    fixes: tuple[Fix, ...] = ()
    if rest == ".":
        label, fixes = (
            "a digit is missing after the point",
            (Fix("take the point out", (Edit(Span(source.name, good, end), ""),)),),
        )
    elif rest.startswith("_"):
        label = "`_` stands between two digits, one at a time"
        digits = rest.replace("_", "")
        if digits.isascii() and (digits.isdigit() or not digits):
            fixes = (Fix("take the `_` out", (Edit(Span(source.name, good, end), digits),)),)
    elif rest[0] in "xXob":
        label = "numbers are decimal"
        # `0b12` and `0x` are no numbers; one of more digits is no number of a file.
        with suppress(ValueError):
            if end - at <= 34:
                value = str(int(source.text[at:end], 0))
                fixes = (Fix(f"write `{value}`", (Edit(span, value),)),)
    elif rest in ("e", "E"):
        label = "the exponent needs digits"
    else:
        label = "one point and one exponent at most"
    return error("P024", f"{quoted(source.text[at:end])} is not a number", span, label, fixes=fixes)
