"""Blocks of the catalog, resolved once."""

from __future__ import annotations

from functools import cache

from parlay.compiler import catalog
from parlay.compiler.spec.blocks import Cluster, Experts, Gpu, Model, Spec
from parlay.compiler.spec.resolve import resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source


def _resolved(text: str) -> Spec:
    file, told = parse(Source("preset.par", text))
    assert not told, told
    phases, _ = resolve(file, lambda _: (None, ()))
    return phases[0].spec


@cache
def base() -> Spec:
    """A spec with every default, on eight GPUs."""
    return _resolved(
        'model from "llama2-7b" cluster { node from "dgx-h100" } parallel { dp = 8 } '
        "train { seq = 4096, micro_batch = 1, global_batch = 8 }"
    )


@cache
def model(name: str) -> Model:
    """A model of the catalog."""
    found = _resolved(f'model from "{name}"').model
    assert found is not None
    return found


@cache
def cluster(node: str) -> Cluster:
    """One node of the catalog."""
    found = _resolved(f'cluster {{ node from "{node}" }}').cluster
    assert found is not None
    return found


@cache
def gpu(name: str) -> Gpu:
    """A GPU of the catalog."""
    text = f'cluster {{ node {{ gpus = 8, gpu from "{name}" }} }}'
    found = _resolved(text).cluster
    assert found is not None
    return found.node.gpu


def experts() -> Experts:
    """A plain mixture, to be overridden."""
    found = model("mixtral-8x7b").experts
    assert found is not None
    return found


@cache
def like(*, hidden: int, heads: int, kv_heads: int, experts: int, ffn: int) -> Model | None:
    """The catalog's model of these widths, whatever it is called; its depth does not matter."""
    for name in catalog.names("model"):
        found = model(name)
        mixture = found.experts
        count, width = (mixture.count, mixture.ffn) if mixture else (0, found.ffn)
        same = (found.hidden, found.heads, count, width) == (hidden, heads, experts, ffn)
        if same and (found.kv_heads == kv_heads or found.mla is not None):
            return found
    return None
