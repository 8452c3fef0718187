"""A calibration of another machine.

What
    An error where a measured figure is above what the cluster's parts are stated to reach, or below
    a hundredth of that. The one that is farthest off is marked.
Why
    A measurement is always a little slower than the data sheet. One that is faster, or slower by
    two orders of magnitude, was made on other machines (or the stated figure is wrong), and every
    step would be priced by it.
Example
    model from "llama3-8b"
    cluster {
      nodes = 1
      node from "dgx-a100"
      calibration {
        bf16 {
          rate = 702TFLOP/s
          #      ^^^^^^^^^^ N211
          size = 8192
        }
      }
    }
    parallel {
      zero = 1
    }
Instead
    model from "llama3-8b"
    cluster {
      nodes = 1
      node from "dgx-h100"
      calibration {
        bf16 {
          rate = 702TFLOP/s
          size = 8192
        }
      }
    }
    parallel {
      zero = 1
    }
Source
    NVIDIA, nccl-tests, PERFORMANCE.md: what bus bandwidth is held against. In-switch reduction lets
    an all-reduce alone pass its wire's speed, up to twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import log
from typing import Final

from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.blocks.calibration import Calibration, Call, Calls, Product
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.units import Dimension, show

CODE = "N211"
TITLE = "a calibration of another machine"
READS = ("cluster.node.gpu.memory",)
ALLOWED = True

ABOVE: Final = {"gpu": 1.02, "wire": 1.25, "all_reduce": 2.0}
"""How far above the stated figure a clock, a rounded data sheet or a switch that sums may come."""
BELOW: Final = 1 / 100

Figure = tuple[str, float, str, float, Dimension, float]
"""Path, measured value, path of what is stated, stated value, dimension, times allowed above."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    calibration = subject.cluster.calibration
    # A figure in error is none.
    broken = any(path.startswith("cluster.") for path in subject.origins.broken)
    if calibration is None or broken:
        return
    off = [each for each in _figures(subject, calibration) if not BELOW <= _times(each) <= each[-1]]
    if not off:
        return
    off.sort(key=lambda each: -abs(log(_times(each))))
    path, measured, known, stated, dimension, _ = off[0]
    span, label = subject.label(path, f"measured, {_times(off[0]):.3g} of what is stated")
    yield error(
        CODE,
        f"{_name(path)} is {show(Fraction(measured), dimension)}, but {known} says "
        f"{show(Fraction(stated), dimension)}",
        span,
        label,
        also=[subject.label(known, "stated")],
        notes=[
            f"{_name(each[0])}: {show(Fraction(each[1]), each[4])} / "
            f"{show(Fraction(each[3]), each[4])} = {_times(each):.3g}"
            for each in off
        ],
        help=["`parlay calibrate -o FILE` on this cluster measures it anew"],
    )


def _times(figure: Figure) -> float:
    return figure[1] / figure[3]


def _name(path: str) -> str:
    return path.removeprefix("cluster.calibration.")


def _figures(subject: Subject, calibration: Calibration) -> Iterator[Figure]:
    node, base = subject.cluster.node, "cluster.calibration"
    gpu, most = node.gpu, ABOVE["gpu"]
    for name in ("bf16", "fp16", "fp32"):
        product: Product | None = getattr(calibration, name)
        peak: float | None = getattr(gpu, f"{name}_flops")
        # A figure in error is None.
        if product is not None and product.rate_flops and peak:
            path, known = f"{base}.{name}.rate", f"cluster.node.gpu.{name}"
            yield path, product.rate_flops, known, peak, Dimension.COMPUTE, most
    copied, rate = calibration.copy_bytes_per_s, gpu.bandwidth_bytes_per_s
    if copied and rate:
        yield f"{base}.copy", copied, "cluster.node.gpu.bandwidth", rate, Dimension.RATE, most
    host = node.host.bandwidth_bytes_per_s if node.host else None
    if calibration.host_bytes_per_s and host:
        path, known = f"{base}.host", "cluster.node.host.bandwidth"
        yield path, calibration.host_bytes_per_s, known, host, Dimension.RATE, ABOVE["wire"]
    inside, domain = calibration.link, subject.value("cluster.node.link.domain")
    speed = subject.value("cluster.node.link.bandwidth")
    if inside and inside.ranks and domain and speed and inside.ranks <= domain:
        yield from _calls(f"{base}.link", inside, "cluster.node.link.bandwidth", speed)
    cards, gpus = subject.value("cluster.node.nic.count"), node.gpus
    card = subject.value("cluster.node.nic.bandwidth")
    if calibration.fabric and cards and card and gpus:
        known = "cluster.node.nic.bandwidth"
        yield from _calls(f"{base}.fabric", calibration.fabric, known, card * cards / gpus)


def _calls(path: str, calls: Calls, known: str, speed: float) -> Iterator[Figure]:
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"):
        call: Call | None = getattr(calls, name)
        rate = call.bandwidth_bytes_per_s if call else None
        if rate:
            most = ABOVE.get(name, ABOVE["wire"])
            yield f"{path}.{name}.bandwidth", rate, known, speed, Dimension.RATE, most
