"""What `parlay calibrate -o` wrote, to the fields of a `cluster.calibration` block.

The file's `calibration` object has the names of the block's fields, numbers in base units: bytes,
seconds and FLOPs. It is read whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from parlay.compiler.catalog import Preset
from parlay.compiler.importers import written
from parlay.compiler.importers.hf import Unreadable, json_object
from parlay.compiler.spec.blocks.calibration import Calibration
from parlay.compiler.spec.schema import REQUIRED, Nested, Quantity, field_of, fields_of
from parlay.dsl.units import Dimension, literal, show

VERSION: Final = 1
MOST: Final = {
    Dimension.COMPUTE: 10**18,
    Dimension.RATE: 10**15,
    Dimension.TIME: 1,
    Dimension.COUNT: 10**6,
}
"""What no accelerator, wire or call of today comes near, in base units."""
LONGEST: Final = 120


def read(path: Path, name: str) -> Preset:
    """The figures of the file at `path`, called `name` where a spec tells its source.

    Raises `Unreadable` with the reason.
    """
    document = json_object(path)
    version = document.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise Unreadable(f"version {_shown(version)} is not known; known is {VERSION}")
    figures = document.get("calibration")
    if not isinstance(figures, dict):
        raise Unreadable("it has no `calibration`; `parlay calibrate -o FILE` writes one")
    values = _block(Calibration, figures, "")
    if not values.keys() - {"device"}:
        raise Unreadable("its `calibration` holds no figure")
    values["source"] = written.string(name)
    frozen = MappingProxyType({"calibration": MappingProxyType(values)})
    return Preset("calibration", path.name, str(path), None, frozen)


def _block(kind: type[Any], figures: Mapping[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in figures.items():
        schema = field_of(kind, name) if name != "source" else None
        if schema is None:
            raise Unreadable(f"{_shown(path + name)} is no figure of a calibration")
        type_ = schema.types[0]
        if isinstance(type_, Nested):
            if not isinstance(value, dict):
                raise Unreadable(f"{path}{name} = {_shown(value)} is no object")
            found[name] = MappingProxyType(_block(type_.block, value, f"{path}{name}."))
        elif isinstance(type_, Quantity):
            found[name] = _number(value, type_, path + name)
        elif isinstance(value, str):
            plain = "".join(c for c in value if c.isascii() and c.isprintable())
            found[name] = written.string(plain[:LONGEST])
        else:
            raise Unreadable(f"{path}{name} = {_shown(value)} is no string")
    lacking = [f.name for f in fields_of(kind) if f.default is REQUIRED and f.name not in found]
    if lacking:
        raise Unreadable(f"{path.removesuffix('.')} lacks {' and '.join(lacking)}")
    return found


def _number(value: Any, type_: Quantity, path: str) -> str:
    """The figure as the language writes it, exactly."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not isfinite(value):
        raise Unreadable(f"{path} = {_shown(value)} is no number")
    exact = Fraction(str(value))
    most = Fraction(MOST[type_.dimension])
    if exact <= 0 or exact > most:
        bound = show(most, type_.dimension)
        raise Unreadable(f"{path} = {_shown(value)} is not above 0 and at most {bound}")
    if type_.integer and exact.denominator != 1:
        raise Unreadable(f"{path} = {_shown(value)} is no whole number")
    return literal(exact, type_.dimension)


def _shown(value: object) -> str:
    return repr(value)[:60]
