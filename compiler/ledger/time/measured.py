"""A calibration in the place of the table: what this cluster was measured at.

It stands for the machine alone. A measured product replaces the family's share for products at
that precision, a measured copy its shares for all that is bound by memory; the rows of the
framework and of the stack, which are of software, stay. Wires take the measured speed of each
collective (`machine.Wire.measured`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from parlay.compiler.ledger.time import gemm
from parlay.compiler.ledger.time.efficiency import GROUPED, Efficiency, load
from parlay.compiler.ledger.time.machine import Machine
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.blocks.calibration import Calibration, Product

APART: Final = ("fp64", "fp32", "fp16")
"""Precisions whose products are not at bf16."""


def priceable(spec: Spec) -> bool:
    """Whether a step can be priced: a peak and a memory bandwidth are stated, or were measured."""
    if spec.train is None or spec.cluster is None:
        return False
    gpu, calibration = spec.cluster.node.gpu, spec.cluster.calibration
    stated = bool(gpu.bf16_flops or gpu.fp16_flops)
    product = _product(calibration, spec.train.precision) if calibration else None
    copied = calibration.copy_bytes_per_s if calibration else None
    return (stated or product is not None) and bool(gpu.bandwidth_bytes_per_s or copied)


def over(found: Efficiency, spec: Spec, table: Mapping[str, Any] | None = None) -> Efficiency:
    """`found` with the family's shares replaced by what `spec`'s calibration says."""
    assert spec.cluster is not None
    calibration = spec.cluster.calibration
    if calibration is None:
        return found
    assert spec.train is not None
    product = _product(calibration, spec.train.precision)
    if found.peak is not None and product is not None:
        # No peak is stated: what a product reaches stands in, for attention too, and nothing is
        # known of waves of tiles.
        found = replace(found, peak=product.rate_flops, units=1)
    shares = dict(_shares(found, spec, calibration))
    if not shares:
        return found
    row = (table or load())["family"][found.family]
    factors = dict(found.factors)
    for component, share in shares.items():
        factors[component] *= row.get(component, 1.0) / share
    return replace(found, factors=MappingProxyType(factors), measured=frozenset(shares))


def _shares(found: Efficiency, spec: Spec, calibration: Calibration) -> Iterator[tuple[str, float]]:
    """Measured over nominal rate, by component."""
    assert spec.train is not None
    product = _product(calibration, spec.train.precision)
    offload = spec.parallel.offload
    away = offload is not None and offload.name != "none"
    if away and calibration.host_bytes_per_s is not None:
        yield "optimizer", 1.0
    if product is None and calibration.copy_bytes_per_s is None:
        return
    machine = Machine.of(spec, units=found.units, peak=found.peak)
    if product is not None:
        side = product.size
        nominal = gemm.seconds(side, side, side, machine)
        yield "gemm", nominal / (2.0 * side**3 / product.rate_flops)
    if calibration.copy_bytes_per_s is not None:
        share = calibration.copy_bytes_per_s / machine.memory_rate
        for component in GROUPED["memory"]:
            yield component, share
        if not away:
            yield "optimizer", share


def _product(calibration: Calibration, precision: str) -> Product | None:
    name = precision if precision in APART else "bf16"
    found: Product | None = getattr(calibration, name, None)
    return found
