"""How the one table of blocks and fields is written: field types, and the functions that declare.

The blocks themselves stand in `blocks.py` as frozen dataclasses. Each of their fields carries a
`FieldSchema` in its metadata; the parser's completions, the reference page, the validator, the
editor's hover text and the resolved spec all come from that one place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from parlay.dsl.units import Dimension

REQUIRED: Any = object()  # the file or a preset must give it

# ── Types of fields ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of one dimension; `integer` ones become `int`, the others `float`."""

    dimension: Dimension
    integer: bool = False
    minimum: Fraction | int | None = None
    maximum: Fraction | int | None = None
    above: Fraction | int | None = None  # strict lower bound


@dataclass(frozen=True, slots=True)
class Switch:
    """`on` or `off`, a `bool`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One name of an enumeration."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One form of a variant: its options by name, and the bare words it may hold."""

    name: str
    options: tuple[FieldSchema, ...] = ()
    flags: tuple[str, ...] = ()
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """A name with options: `adamw(lr = 3e-4)`."""

    cases: tuple[Case, ...]

    def case(self, name: str) -> Case | None:
        """The case of that name."""
        return next((case for case in self.cases if case.name == name), None)


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[…]` of one type."""

    item: FieldType


@dataclass(frozen=True, slots=True)
class Nested:
    """A block inside the block; `preset` is the catalog's kind where `from "…"` may stand."""

    block: type[Any]
    preset: str | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """A block whose fields belong to somebody else: any name, kept as written."""


FieldType = Quantity | Switch | Text | Choice | Variant | ListOf | Nested | Free


@dataclass(frozen=True, slots=True)
class Derived:
    """A default that follows from other fields; `words` say how."""

    words: str
    paths: tuple[str, ...]
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class FieldSchema:
    """One field of a block or option of a variant.

    `name` is its name in the language, `attribute` that of the resolved spec (with its unit);
    `default` is a value of the resolved spec, a `Derived`, None (may be absent) or `REQUIRED`.
    `open` says that `auto` may stand there.
    """

    name: str
    attribute: str
    types: tuple[FieldType, ...]
    default: Any
    doc: str
    open: bool = False
    normal: Callable[[Any], Any] | None = None  # several spellings -> the one value of the spec


def declare(schema: FieldSchema) -> Any:
    """The dataclass field that carries `schema`."""
    return dataclasses.field(default=None, metadata={"schema": schema})


# ── Values of the resolved spec ───────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Setting:
    """A resolved variant: its name, its options and its bare words."""

    name: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    flags: tuple[str, ...] = ()

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def get(self, option: str, default: Any = None) -> Any:
        """An option's value, or `default` where this case has no such option."""
        return self.options.get(option, default)


@dataclass(frozen=True, slots=True)
class Open:
    """`auto` left to the planner: the values it may take, where the file restricts them."""

    choices: tuple[int, ...] | None = None
    limit: int | None = None


# ── Declaring fields ──────────────────────────────────────────────────────────


def _field(
    name: str,
    types: tuple[FieldType, ...],
    default: Any,
    doc: str,
    *,
    attribute: str | None = None,
    open: bool = False,
    normal: Callable[[Any], Any] | None = None,
) -> Any:
    return declare(FieldSchema(name, attribute or name, types, default, doc, open, normal))


def count(
    name: str,
    doc: str,
    default: Any = REQUIRED,
    *,
    minimum: int = 1,
    maximum: int = 10**18,
    open: bool = False,
) -> Any:
    """A whole number from `minimum` to `maximum`."""
    kind = Quantity(Dimension.COUNT, integer=True, minimum=minimum, maximum=maximum)
    return _field(name, (kind,), default, doc, open=open)


def real(
    name: str,
    doc: str,
    default: Any = REQUIRED,
    *,
    minimum: int | None = 0,
    above: int | None = None,
    maximum: int | None = None,
) -> Any:
    """A bare number, whole or not."""
    kind = Quantity(Dimension.COUNT, minimum=minimum, above=above, maximum=maximum)
    return _field(name, (kind,), default, doc)


def share(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """A share of a whole: `90%` or `0.9`."""
    return _field(name, (Quantity(Dimension.SHARE, minimum=0, maximum=1),), default, doc)


def data(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """Bytes."""
    kind = Quantity(Dimension.DATA, integer=True, minimum=0)
    return _field(name, (kind,), default, doc, attribute=f"{name}_bytes")


def rate(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """Bytes per second, one direction."""
    kind = Quantity(Dimension.RATE, above=0)
    return _field(name, (kind,), default, doc, attribute=f"{name}_bytes_per_s")


def compute(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """Dense floating-point operations per second."""
    kind = Quantity(Dimension.COMPUTE, above=0)
    return _field(name, (kind,), default, doc, attribute=f"{name}_flops")


def time(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """Seconds."""
    kind = Quantity(Dimension.TIME, minimum=0)
    return _field(name, (kind,), default, doc, attribute=f"{name}_s")


def money(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """Dollars an hour."""
    kind = Quantity(Dimension.MONEY, minimum=0)
    return _field(name, (kind,), default, doc, attribute=f"{name}_per_h")


def switch(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """`on` or `off`."""
    return _field(name, (Switch(),), default, doc)


def text(name: str, doc: str, default: Any = REQUIRED) -> Any:
    """A string."""
    return _field(name, (Text(),), default, doc)


def choice(
    name: str, values: tuple[str, ...], doc: str, default: Any = REQUIRED, *, open: bool = False
) -> Any:
    """One of `values`."""
    return _field(name, (Choice(values),), default, doc, open=open)


def variant(
    name: str, cases: tuple[Case, ...], doc: str, default: Any = REQUIRED, *, open: bool = False
) -> Any:
    """One of several forms with options, a `Setting`."""
    return _field(name, (Variant(cases),), default, doc, open=open)


def listing(
    name: str, item: FieldType, doc: str, default: Any = REQUIRED, *, open: bool = False
) -> Any:
    """A list of `item`, a tuple."""
    return _field(name, (ListOf(item),), default, doc, open=open)


def either(
    name: str,
    types: tuple[FieldType, ...],
    doc: str,
    default: Any = REQUIRED,
    *,
    open: bool = False,
    normal: Callable[[Any], Any] | None = None,
) -> Any:
    """A value of one of several types, told apart by how it is written."""
    return _field(name, types, default, doc, open=open, normal=normal)


def block(
    name: str, kind: type[Any], doc: str, *, preset: str | None = None, required: bool = False
) -> Any:
    """A block inside the block.

    Where the file has none, it is built from its defaults, or absent (None) if it lacks some.
    """
    return _field(name, (Nested(kind, preset),), REQUIRED if required else None, doc)


def option(name: str, types: FieldType, doc: str, default: Any = REQUIRED) -> FieldSchema:
    """An option of a variant's case."""
    return FieldSchema(name, name, (types,), default, doc)


WHOLE = Quantity(Dimension.COUNT, integer=True, minimum=1)
WHOLE_0 = Quantity(Dimension.COUNT, integer=True, minimum=0)
REAL_0 = Quantity(Dimension.COUNT, minimum=0)
SHARE = Quantity(Dimension.SHARE, minimum=0, maximum=1)
SWITCH = Switch()


_fields: dict[type[Any], tuple[FieldSchema, ...]] = {}


def fields_of(block: type[Any]) -> tuple[FieldSchema, ...]:
    """The fields of a block in their order."""
    if block not in _fields:
        _fields[block] = tuple(
            f.metadata["schema"] for f in dataclasses.fields(block) if "schema" in f.metadata
        )
    return _fields[block]


_named: dict[type[Any], dict[str, FieldSchema]] = {}


def field_of(block: type[Any], name: str) -> FieldSchema | None:
    """The field called `name` in the language."""
    if block not in _named:
        _named[block] = {schema.name: schema for schema in fields_of(block)}
    return _named[block].get(name)
