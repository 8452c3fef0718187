"""The table of efficiencies, and which of its rows price a spec.

`efficiency.toml` is the one documented table. A component's factor, what its nominal seconds are
multiplied by, is `1 / family` · `framework` · `stack`:

- the accelerator's family, found by its dense peak at bf16 (or fp16), never by its name;
- the framework: how its kernels and its overlap compare;
- the stack: a framework's generation, as `train.stack` names it, `bridge-26.04` on top of `bridge`.

A stack that is not in the table is looked up as its nearest older generation (`bridge-26.05` -->
`bridge-26.04`), then without its last part, then as a framework or, without a generation, as the
newest one (`nemo` --> `nemo-24`); what is unknown is priced like `parlay`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from parlay.compiler.ledger.time.machine import low_peak, wide_peak
from parlay.compiler.ledger.time.parts import COMPONENTS
from parlay.compiler.spec.blocks import Gpu, Spec

COMMUNICATION: Final = ("tp", "cp", "ep", "pp", "dp")
COMPUTE: Final = tuple(c for c in COMPONENTS if c not in (*COMMUNICATION, "host", "straggle"))
GROUPED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "all": COMPONENTS,
        "compute": COMPUTE,
        "communication": COMMUNICATION,
        "products": ("gemm", "gemm_low", "expert", "expert_low"),
        "low": ("gemm_low", "expert_low"),
        "mixture": ("expert", "expert_low", "permute", "ep"),
        "memory": ("pointwise", "quantise", "permute", "loss", "accumulate"),
    }
)
"""Names that stand for several components in a row of the table."""
SETTINGS: Final = ("overlap_dp", "overlap_cp", "bucket", "documents")
"""Numbers of a row that are no factors."""
GRAPHED: Final = 0.4
"""Of the host's time for experts, what is left where CUDA graphs replay attention, router and
counts: products and exchanges, whose sizes no graph knows ahead (word `graphs` of a stack)."""
MOST: Final = 0.95
"""No product reaches more of the dense peak, whatever a family's, framework's and stack's rows come
to where no run had all three."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What prices one spec: a factor by component, and how much of the traffic can hide.

    `overlap_dp` and `overlap_cp` are the shares of gradient and parameter traffic, and of the ring
    of context parallelism, that run beside computation. `early_stop` says that full recompute
    leaves out a layer's last product, `dispatch_once` that a token goes once to a domain, however
    many of its experts lie there (DeepEP). `bucket` is the length of a gradient message in
    parameters; `broadcast` says that ZeRO-1 sends parameters rank by rank. `documents` is the mean
    length of documents that are packed into a sequence and see themselves alone, None where tokens
    see all before them; `adapters` is `qkv` where a stack trains those alone. `host` is what
    graphs leave of the host's time for experts, a share. `measured` are the components whose
    family's row a calibration stands in for.
    """

    family: str
    framework: str
    stack: str
    factors: Mapping[str, float]
    units: int
    peak: float | None
    overlap_dp: float
    overlap_cp: float
    early_stop: bool
    dispatch_once: bool
    bucket: float
    broadcast: bool
    documents: float | None
    adapters: str
    host: float
    measured: frozenset[str] = frozenset()


# Read with the module: who asks for a ledger's time asks for it, and a plan does a thousand times.
# Not by importlib.resources, whose imports take as long as the table does.
_TABLE: Final[Mapping[str, Any]] = MappingProxyType(
    tomllib.loads(Path(__file__).with_name("efficiency.toml").read_text(encoding="utf-8"))
)


def load() -> Mapping[str, Any]:
    """The table as it stands in the package."""
    return _TABLE


def band(spec: Spec, table: Mapping[str, Any] | None = None) -> float:
    """The error that held for half of the held-out runs of a spec's class, a share."""
    known = (table or load()).get("band", {})
    return float(known.get(kind_of(spec), 0.15))


def kind_of(spec: Spec) -> str:
    """The class of a spec: a mixture of experts, fine-tuning, or dense by precision."""
    assert spec.train is not None and spec.model is not None
    if spec.train.lora is not None:
        return "finetune"
    if spec.model.experts is not None:
        return "moe"
    low = {"fp8": "dense_fp8", "mxfp8": "dense_fp8", "nvfp4": "dense_fp4"}
    return low.get(spec.train.precision, "dense_bf16")


def rows(spec: Spec, table: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """The family, framework and stacks, general to special, whose rows price `spec`."""
    assert spec.cluster is not None and spec.train is not None
    stacks, framework = named(spec.train.stack, table)
    return family(spec.cluster.node.gpu, table), framework, stacks


def named(stack: str, table: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """The rows of a stack, general to special, and its framework."""
    known = table["stack"]
    name = stack
    while name:
        parent = name.rpartition("-")[0]
        if name not in known and name not in table["framework"]:
            name = _nearest(name, known) or name
        if name in known:
            parts = name.split("-")
            chain = ("-".join(parts[: i + 1]) for i in range(len(parts)))
            found = tuple(link for link in chain if link in known)
            return found, str(known[found[0]]["framework"])
        if name in table["framework"]:
            return (), name
        name = parent
    return ("parlay",), str(known["parlay"]["framework"])


def adapters_of(stack: str) -> str:
    """Which projections have adapters under a stack: `all`, or `qkv`."""
    found = (load()["stack"][name].get("adapters") for name in reversed(named(stack, load())[0]))
    return next((str(word) for word in found if word is not None), "all")


def _nearest(name: str, known: Mapping[str, Any]) -> str | None:
    """The nearest older generation of a stack, its newest where `name` states none."""
    parent, _, last = name.rpartition("-")
    stated = _generation(last)
    if stated is None:
        parent = name
    dated = {
        made: each
        for each in known
        if each.startswith(f"{parent}-") and (made := _generation(each[len(parent) + 1 :]))
    }
    older = [made for made in dated if stated is None or made < stated]
    return dated[max(older)] if older else None


def _generation(word: str) -> tuple[int, ...] | None:
    """`26.04` --> (26, 4); None for a word that is no generation."""
    numbers = word.split(".")
    return tuple(map(int, numbers)) if all(n.isdecimal() for n in numbers) else None


def family(gpu: Gpu, table: Mapping[str, Any]) -> str:
    """The family whose dense peaks at bf16 and fp4 are nearest."""
    stated = {"peak_flops": gpu.bf16_flops or gpu.fp16_flops, "fp4_flops": gpu.fp4_flops}
    if stated["peak_flops"] is None:
        return str(table["unstated"]["family"])

    def distance(row: Mapping[str, Any]) -> float:
        return sum(
            abs(log(row[name] / value)) for name, value in stated.items() if value and name in row
        )

    families = table["family"]
    return str(min(families, key=lambda name: distance(families[name])))


def of(spec: Spec, table: Mapping[str, Any] | None = None) -> Efficiency:
    """What prices `spec`; `table` in place of the package's own, as the fit uses it."""
    assert spec.cluster is not None and spec.train is not None
    gpu, train = spec.cluster.node.gpu, spec.train
    if table is None:
        return _packaged(gpu, train.precision, train.stack)
    return _of(gpu, train.precision, train.stack, table)


def recipe_moves(precision: str) -> tuple[str, ...]:
    """What a recipe's own efficiency counts for: grouped kernels have theirs at fp8."""
    return GROUPED["low"] if precision == "nvfp4" else ("gemm_low",)


@lru_cache(maxsize=256)
def _packaged(gpu: Gpu, precision: str, stack: str) -> Efficiency:
    return _of(gpu, precision, stack, load())


def _of(gpu: Gpu, precision: str, stack: str, table: Mapping[str, Any]) -> Efficiency:
    kind = family(gpu, table)
    stacks, framework = named(stack, table)
    row = table["family"][kind]
    factors = {name: 1.0 / row.get(name, 1.0) for name in COMPONENTS}
    recipe = row.get(precision, 1.0)
    for name in recipe_moves(precision):
        factors[name] /= recipe
    settings: dict[str, Any] = {}
    for level in (table["framework"][framework], *(table["stack"][name] for name in stacks)):
        for name, value in level.items():
            if isinstance(value, float) and name not in SETTINGS:
                for component in GROUPED.get(name, (name,)):
                    factors[component] *= value
            else:
                settings[name] = value
    for name in GROUPED["products"]:
        factors[name] = max(factors[name], 1.0 / MOST)
    known = wide_peak(gpu, precision) or low_peak(gpu, precision)
    words = stack.split("-")
    return Efficiency(
        family=kind,
        framework=framework,
        stack=stacks[-1] if stacks else framework,
        factors=MappingProxyType(factors),
        units=row["units"],
        peak=None if known else row["peak_flops"] * row.get("unstated_share", 1.0),
        overlap_dp=settings.get("overlap_dp", 0.8),
        overlap_cp=settings.get("overlap_cp", 0.8),
        early_stop=settings.get("early_stop", False),
        dispatch_once=settings.get("dispatch_once", False) or "deepep" in words,
        bucket=settings.get("bucket", 40e6),
        broadcast=settings.get("broadcast", False),
        documents=settings.get("documents"),
        adapters=settings.get("adapters", "all"),
        host=GRAPHED if "graphs" in words else 1.0,
    )
