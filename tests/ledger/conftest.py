"""Models of the catalog, without the resolver."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from parlay.compiler import catalog
from parlay.compiler.spec.blocks import Experts, Mla, Model
from parlay.compiler.spec.schema import REQUIRED, Derived, Setting, fields_of

NESTED = {"mla": Mla, "experts": Experts}


@pytest.fixture(scope="session")
def preset_model() -> Callable[..., Model]:
    """A model of the catalog, with fields replaced."""
    return _preset_model


def _preset_model(name: str, **changed: Any) -> Model:
    preset = catalog.load("model", name)
    assert preset is not None, name
    return cast(Model, _build(Model, {**preset.values["model"], **changed}))


def _build(block: type[Any], given: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for schema in fields_of(block):
        value: Any
        if schema.name in given:
            written = given[schema.name]
            if schema.name in NESTED:
                value = written and _build(NESTED[schema.name], written)
            else:
                value = _value(written)
            value = schema.normal(value) if schema.normal else value
        elif isinstance(schema.default, Derived):
            value = schema.default.function(
                *(values[path.rsplit(".", 1)[1]] for path in schema.default.paths)
            )
        else:
            value = None if schema.default is REQUIRED else schema.default
        values[schema.attribute] = value
    return block(**values)


def _value(written: Any) -> Any:
    if isinstance(written, list):
        return tuple(written)
    if not isinstance(written, str):
        return written
    if call := re.fullmatch(r"(\w+)\((.*)\)", written):
        options = (part.split("=") for part in call[2].split(","))
        return Setting(call[1], {key.strip(): float(value) for key, value in options})
    try:
        return float(written)
    except ValueError:
        return written
