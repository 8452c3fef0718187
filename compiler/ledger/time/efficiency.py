"""The table of efficiencies, and which of its rows price a spec.

`efficiency.toml` is the one documented table. A component's factor, what its nominal seconds are
multiplied by, is `1 / family` · `framework` · `stack`:

- the accelerator's family, found by its dense peak at bf16 (or fp16), never by its name;
- the framework: how its kernels and its overlap compare;
- the stack: a framework's generation, as `train.stack` names it.

A stack is looked up as written, then without its last part (`nemo-25.09` --> `nemo`), then as a
framework; what is unknown is priced like `parlay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import log
from types import MappingProxyType
from typing import Any, Final

from parlay.compiler.ledger.time.machine import low_peak, wide_peak
from parlay.compiler.ledger.time.parts import COMPONENTS
from parlay.compiler.spec.blocks import Gpu, Spec

COMMUNICATION: Final = ("tp", "cp", "ep", "pp", "dp")
COMPUTE: Final = tuple(c for c in COMPONENTS if c not in (*COMMUNICATION, "straggle"))
GROUPED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "all": COMPONENTS,
        "compute": COMPUTE,
        "communication": COMMUNICATION,
        "products": ("gemm", "gemm_low", "expert", "expert_low"),
        "low": ("gemm_low", "expert_low"),
        "mixture": ("expert", "expert_low", "permute", "ep"),
        "memory": ("pointwise", "quantise", "permute", "loss"),
    }
)
"""Names that stand for several components in a row of the table."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What prices one spec: a factor by component, and how much of the traffic can hide.

    `overlap_dp` and `overlap_cp` are the shares of gradient and parameter traffic, and of the ring
    of context parallelism, that run beside computation; `band` the expected error, a share.
    """

    family: str
    framework: str
    stack: str
    factors: Mapping[str, float]
    units: int
    peak: float | None
    overlap_dp: float
    overlap_cp: float
    band: float


def load() -> Mapping[str, Any]:
    """The table as it stands in the package."""
    return _table()


@cache
def _table() -> Mapping[str, Any]:
    import tomllib

    text = (resources.files("parlay.compiler.ledger.time") / "efficiency.toml").read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


def rows(spec: Spec, table: Mapping[str, Any]) -> tuple[str, str, str]:
    """The family, framework and stack whose rows price `spec`."""
    assert spec.cluster is not None and spec.train is not None
    stack, framework = named(spec.train.stack, table)
    return family(spec.cluster.node.gpu, table), framework, stack


def named(stack: str, table: Mapping[str, Any]) -> tuple[str, str]:
    """The row of a stack, and its framework."""
    name = stack
    while name:
        if name in table["stack"]:
            return name, str(table["stack"][name]["framework"])
        if name in table["framework"]:
            return "", name
        name = name.rpartition("-")[0]
    return "parlay", str(table["stack"]["parlay"]["framework"])


def family(gpu: Gpu, table: Mapping[str, Any]) -> str:
    """The family whose peak is nearest; a GPU without a stated peak by its memory's size."""
    families = table["family"]
    peak = gpu.bf16_flops or gpu.fp16_flops or gpu.fp32_flops
    if peak is None:
        return str(table["unstated"]["family"])
    return str(min(families, key=lambda name: abs(log(families[name]["peak_flops"] / peak))))


def of(spec: Spec, table: Mapping[str, Any] | None = None) -> Efficiency:
    """What prices `spec`; `table` in place of the package's own, as the fit uses it."""
    table = table or load()
    assert spec.cluster is not None and spec.train is not None
    kind, framework, stack = rows(spec, table)
    gpu, precision = spec.cluster.node.gpu, spec.train.precision
    row = table["family"][kind]
    factors = {name: 1.0 / row.get(name, 1.0) for name in COMPONENTS}
    recipe = row.get(precision, 1.0)
    for name in GROUPED["low"]:
        factors[name] /= recipe
    levels = (table["framework"][framework], table["stack"].get(stack, {}))
    for level in levels:
        for name, value in level.items():
            for component in GROUPED.get(name, (name,)):
                if component in factors:
                    factors[component] *= value
    overlap = levels[1].get("overlap_dp", levels[0].get("overlap_dp", 0.8))
    known = wide_peak(gpu, precision) or low_peak(gpu, precision)
    return Efficiency(
        family=kind,
        framework=framework,
        stack=stack,
        factors=MappingProxyType(factors),
        units=row["units"],
        peak=None if known else row["peak_flops"] * row.get("unstated_share", 1.0),
        overlap_dp=overlap,
        overlap_cp=levels[1].get("overlap_cp", levels[0].get("overlap_cp", 0.8)),
        band=row.get("band", 0.15),
    )
