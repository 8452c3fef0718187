"""Which catalog GPUs a file may mean, and what their data sheets say."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Final, NamedTuple

from parlay.compiler import catalog
from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.origins import Kind
from parlay.dsl.units import UNITS

GPU: Final = "cluster.node.gpu"
PEAKS: Final = ("bf16", "fp16", "fp8", "fp4")
WIRED: Final = ("nvlink", "nvswitch")


class Wire(NamedTuple):
    """The wire of one catalog node: its GPU's name, its kind, bytes per second one way."""

    gpu: str
    kind: str
    bandwidth: float


@cache
def value(gpu: str, field: str) -> float | None:
    """A catalog GPU's `memory` in bytes, `bf16` in FLOP per second, …; None where it has none."""
    preset = catalog.load("gpu", gpu)
    text = preset.values["gpu"].get(field) if preset else None
    return None if text is None else _read(text)


def text(gpu: str, field: str) -> str:
    """The same as the catalog writes it."""
    preset = catalog.load("gpu", gpu)
    assert preset is not None
    return str(preset.values["gpu"][field])


def preset(subject: Subject, block: str = GPU) -> str | None:
    """The name of the preset that gave a value right in `block`; None where none did."""
    for path, origin in subject.origins.fields.items():
        above, _, _ = path.rpartition(".")
        if above == block and origin.kind is Kind.PRESET:
            return origin.words
    return None


def meant(subject: Subject, *, but: str = "") -> tuple[str, ...]:
    """The catalog GPUs that the file's may be: its preset, else those with its peaks, else all.

    `but` is a field in doubt, which identifies nothing.
    """
    named = preset(subject)
    if named is not None:
        return (named,)
    gpu = subject.cluster.node.gpu
    known = {
        name: peak
        for name in (*PEAKS, "bandwidth")
        if name != but and (peak := _of(gpu, name)) is not None
    }
    everything = catalog.names("gpu")
    if not known:
        return everything
    same = tuple(
        name for name in everything if all(_near(value(name, f), peak) for f, peak in known.items())
    )
    return same or everything


@cache
def wires() -> tuple[Wire, ...]:
    """The NVLinks of the catalog's nodes."""
    found = []
    for name in catalog.names("node"):
        node = catalog.load("node", name)
        assert node is not None
        link = node.values["node"].get("link")
        gpu = node.values["node"]["gpu"].get("from", "")
        if link and link["kind"] in WIRED:
            found.append(Wire(gpu, link["kind"], _read(link["bandwidth"])))
    return tuple(found)


def close(first: float, second: float, *, within: float = 0.01) -> bool:
    """Whether two figures are the same but for rounding."""
    return abs(first - second) <= within * max(first, second)


def _of(gpu: object, field: str) -> float | None:
    name = f"{field}_bytes_per_s" if field == "bandwidth" else f"{field}_flops"
    # A node whose accelerator is in error has none.
    found: float | None = getattr(gpu, name, None)
    return found


def _near(first: float | None, second: float) -> bool:
    return first is not None and close(first, second)


def _read(text: str) -> float:
    """A catalog figure in its base unit: `81559MiB`, `450GB/s`, `989.4TFLOP/s`."""
    unit = text.lstrip("0123456789.")
    [(_, factor)] = UNITS[unit]
    return float(Fraction(text.removesuffix(unit)) * factor)
