"""Specs and layouts from text."""

from __future__ import annotations

from parlay.compiler.layout import Layout, lay_out
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import resolve
from parlay.dsl.parse import parse
from parlay.dsl.source import Source


def job(text: str) -> tuple[Spec, Layout]:
    """The first phase of a `.par` without presets' files beyond the catalog, laid out."""
    file, told = parse(Source("job.par", text))
    phases, more = resolve(file, lambda _: (None, ()))
    assert not told and not more, (told, more)
    return phases[0].spec, lay_out(phases[0].spec)


MODEL = "layers = 8  hidden = 64  heads = 4  ffn = 128  vocab = 256"


def small(parallel: str = "", train: str = "", *, model: str = "", gpus: int = 8) -> str:
    """A small model on one node."""
    return f"""
model {{ {MODEL}  {model} }}
cluster {{ node {{ gpus = {gpus}  gpu {{ memory = 80GB }} }} }}
parallel {{ {parallel} }}
train {{ seq = 128  micro_batch = 1  global_batch = 32  {train} }}
"""
