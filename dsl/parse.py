"""Text to tree: the front door. Whatever the text, there is a tree and what is wrong with it."""

from __future__ import annotations

from parlay.dsl import faults
from parlay.dsl.diagnostics.record import Diagnostic, Severity
from parlay.dsl.parse_blocks import Blocks
from parlay.dsl.source import Source, Span
from parlay.dsl.syntax import File
from parlay.dsl.tokens import MOST_MISTAKES, tokenize


def parse(source: Source) -> tuple[File, tuple[Diagnostic, ...]]:
    """The tree of `source` and every mistake of its syntax, in the order of the text.

    Nothing is raised. Without an error the tree is complete; with one, what could be read is in it:
    a broken field or statement is left out and its name stands in the `lost` of its block or of the
    file; what stands beside it is there. Nesting is at most 64
    deep and every value at most 128 nodes high, so walking the tree needs no care for the stack.
    A warning (a hidden character in a comment) leaves the tree complete.
    """
    lexed = tokenize(source)
    comments = tuple(lexed.comments)
    whole = Span(source.name, 0, len(source.text))
    if len(lexed.diagnostics) > MOST_MISTAKES:
        return File((), comments, whole), _told(source, lexed.diagnostics)
    parser = Blocks(source, lexed)
    statements, lost = parser.file()
    told = [*lexed.diagnostics, *parser.told]
    if not statements and not any(one.severity is Severity.ERROR for one in told):
        told.append(faults.empty(source.name, len(source.text.strip())))
    return File(statements, comments, whole, lost), _told(source, told)


def _told(source: Source, diagnostics: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """In the order of the text, and not more than anybody reads."""
    in_order = sorted(diagnostics, key=lambda one: one.span[1:] if one.span else (0, 0))
    if len(in_order) > MOST_MISTAKES:
        del in_order[MOST_MISTAKES:]
        last = in_order[-1].span
        end = last.end if last else len(source.text)
        in_order.append(faults.too_many(source.name, end, MOST_MISTAKES))
    return tuple(in_order)
