"""The back ends: what each can express, and its files from a checked phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from parlay.compiler.backends.emission import Emission
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Source


@dataclass(frozen=True, slots=True)
class Target:
    """A back end by name: `module` has `emit(phase, layout, sources)` and `refusals(phase)`."""

    module: str
    says: str


TARGETS: Final[Mapping[str, Target]] = {
    "torch": Target(
        "parlay.compiler.backends.torch",
        "PyTorch training code for dense decoders of the Llama family: tp with and without "
        "sequence parallelism, pp by one_f_one_b, dp; fp32, and bf16 over fp32 masters",
    ),
}

Emitter = Callable[[Phase, Layout, Mapping[str, Source]], Emission]


def emitter(target: str) -> Emitter:
    """The emitting function of a known target."""
    found: Any = import_module(TARGETS[target].module)
    return found.emit  # type: ignore[no-any-return]


def refusals(target: str, phase: Phase) -> Iterator[Diagnostic]:
    """A `B` diagnostic for every field that asks for what the target cannot express."""
    found: Any = import_module(TARGETS[target].module)
    yield from found.refusals(phase)
