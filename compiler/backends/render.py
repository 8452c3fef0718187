"""Templates to text: strict about names, values printed as Python literals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


class Code(str):
    """Text that is code already, made by the compiler and never by a user."""

    __slots__ = ()


def _final(value: Any) -> str:
    return value if isinstance(value, Code) else repr(value)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("parlay.templates", ""),
        undefined=StrictUndefined,
        finalize=_final,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, context: Mapping[str, Any]) -> str:
    """The text of a template; what is not `Code` comes out as a Python literal."""
    return _environment().get_template(template).render(context)
