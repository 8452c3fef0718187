"""The commonest mistake: a degree that does not divide a size of the model."""

from __future__ import annotations

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error


def indivisible(
    subject: Subject, code: str, *, size: str, degree: str, needs: str, one: str, many: str = ""
) -> Diagnostic:
    """`tp = 8 does not divide kv_heads = 6`, at the degree, with the size and the remainder.

    `size` and `degree` are paths, `needs` says what each rank needs, and the size is counted in
    `one` (plural `many`).
    """
    whole, part = subject.value(size), subject.value(degree)
    span, label = subject.label(degree, needs)
    return error(
        code,
        f"{_name(degree)} = {part} does not divide {_name(size)} = {whole}",
        span,
        label,
        also=[subject.label(size, words.counted(whole, one, many))],
        notes=[words.leaves(whole, part)],
        help=(near := suggest.layouts(subject)).help,
        fixes=near.fixes,
    )


def _name(path: str) -> str:
    """A field as messages call it: `tp`, but `experts.ffn`."""
    parts = path.split(".")
    return parts[-1] if parts[-2] in ("model", "parallel", "train") else ".".join(parts[-2:])
