"""Models of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from parlay.compiler.spec.blocks import Model
from parlay.compiler.spec.resolve import resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source


@pytest.fixture(scope="session")
def preset_model() -> Callable[..., Model]:
    """A model of the catalog, with attributes replaced."""
    return _preset_model


def _preset_model(name: str, **changed: Any) -> Model:
    return replace(_resolved(name), **changed)


@cache
def _resolved(name: str) -> Model:
    file, told = parse(Source("model.par", f'model from "{name}"'))
    assert not told
    phases, _ = resolve(file, lambda _: (None, ()))
    model = phases[0].spec.model
    assert model is not None
    return model
