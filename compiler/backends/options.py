"""A file's `target "…" { options { … } }`: what is asked for, and what contradicts the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, error
from parlay.dsl.source import Span

Table = Mapping[str, tuple[str, Callable[[Subject], Any]]]
"""Option -> the field that says the same, and what that field makes of it."""


def asked(subject: Subject, target: str, name: str) -> Any:
    """The value of an option as it is written; None where the file does not set it."""
    block = subject.targets.get(target)
    return None if block is None else (block.options or {}).get(name)


def place(subject: Subject, target: str, name: str) -> Span:
    """Where an option's value stands."""
    return subject.span(f"target.{target}.options.{name}")


def set_option(subject: Subject, target: str, name: str, text: str) -> tuple[Fix, ...]:
    """The fix that gives an option another value."""
    edit = Edit(place(subject, target, name), text)
    return (Fix(f"{name} = {text}", (edit,)),) if subject.editable else ()


def add_option(subject: Subject, target: str, beside: str, name: str, text: str) -> tuple[Fix, ...]:
    """The fix that gives an option that is not there a value, right after another."""
    at = place(subject, target, beside)
    edit = Edit(Span(at.file, at.end, at.end), f", {name} = {text}")
    return (Fix(f"{name} = {text}", (edit,)),) if subject.editable else ()


def contradictions(subject: Subject, target: str, code: str, table: Table) -> Iterator[Diagnostic]:
    """An error for each option that says other than the field it stands for."""
    for name, (path, expected) in table.items():
        given = asked(subject, target, name)
        if given is None or not subject.has((path,)):
            continue
        wanted = expected(subject)
        if wanted is None or given == wanted:
            continue
        yield error(
            code,
            f"`{name} = {shown(given)}` contradicts the file, which makes it {shown(wanted)}",
            place(subject, target, name),
            "a setting of the target alone",
            also=[subject.label(path, f"{path.rpartition('.')[2]} says it for every target")],
            help=[f"`{name}` follows from the file and need not be given"],
            fixes=set_option(subject, target, name, shown(wanted)),
        )


def shown(value: Any) -> str:
    """An option's value as the language writes it."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
