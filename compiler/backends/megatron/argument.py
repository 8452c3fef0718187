"""One argument of Megatron-LM, and what is told where there is none for a field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error, warning

CODE: Final = "B310"
NOT_APPLIED: Final = "B314"


@dataclass(frozen=True, slots=True)
class Argument:
    """An option with its values, and the field of the file that it stands for.

    `chosen` marks what the back end chose where the file says nothing: `options` may replace it.
    """

    option: str
    values: tuple[str, ...] = ()
    path: str = ""
    chosen: bool = False


Piece = Argument | Diagnostic
"""What a part of the file becomes: an argument, or the reason why there is none."""


def given(option: str, *values: object, path: str) -> Argument:
    """The argument that a field asks for."""
    return Argument(option, tuple(map(text, values)), path)


def chosen(option: str, *values: object, path: str = "") -> Argument:
    """An argument that the back end chose."""
    return Argument(option, tuple(map(text, values)), path, chosen=True)


def text(value: object) -> str:
    """A value as a command line has it: `1e-05` and `8`, whole floats without a point."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def refused(
    phase: Phase, path: str, what: str, *, words: str = "not expressed", help: Iterable[str] = ()
) -> Diagnostic:
    """The error at a field that asks for what Megatron-LM lacks."""
    place, label = phase.origins.label(path, words)
    said = f"target megatron cannot express {what}"
    return error(CODE, said, place, label, help=list(help))


def not_applied(phase: Phase, path: str, what: str, *, words: str, help: str) -> Diagnostic:
    """The warning at a field that changes nothing of what is trained, and that is not applied."""
    place, label = phase.origins.label(path, words)
    return warning(NOT_APPLIED, what, place, label, help=[help])


def field(phase: Phase, path: str) -> str:
    """`name = value` of a field, in backticks."""
    origin = phase.origins.get(path)
    name = path.rpartition(".")[2]
    return f"`{name} = {origin.shown}`" if origin else f"`{name}`"
