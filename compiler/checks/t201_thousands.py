"""A decimal thousand where powers of two are usual.

What
    A warning where a sequence, a width or a vocabulary is written with `k`.
Why
    `8k` is 8,000; a sequence of "8k" tokens almost always means 8,192, which is `8Ki`. A length of
    8,000 is legal, but cuts badly over ranks and tiles. In a token budget `k` is what it says.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8k
      #     ^^ T201
      micro_batch = 1
      global_batch = 256
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 256
    }
Source
    IEC 80000-13: k is 1000, Ki is 1024.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import literals, suggest
from parlay.compiler.checks.literals import Literal
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "T201"
TITLE = "a decimal thousand where powers of two are usual"
READS = ()
ALLOWED = False

SIZES: Final = (
    "train.seq",
    "model.context",
    "model.window.size",
    "model.hidden",
    "model.ffn",
    "model.head_dim",
    "model.vocab",
    "model.experts.ffn",
    "model.experts.shared_ffn",
    "model.mla.q_rank",
    "model.mla.kv_rank",
    "parallel.vocab_multiple",
)


def check(subject: Subject) -> Iterator[Diagnostic]:
    told = set()
    for path in SIZES:
        literal = literals.written(subject, path)
        if literal is None or literal.unit != "k" or literal.span in told:
            continue
        told.add(literal.span)
        yield _slip(subject, path, literal)


def _slip(subject: Subject, path: str, literal: Literal) -> Diagnostic:
    plain, binary = literal.number * 1000, literal.number * 1024
    said = f"{float(plain):,.12g}"
    name = path.rpartition(".")[2]
    texts = [
        text
        for text, value in ((literal.with_unit("Ki"), binary), (str(plain), plain))
        if value.denominator == 1
        and (path == "model.window.size" or suggest.holds(subject, {path: int(value)}))
    ]
    return warning(
        CODE,
        f"`{name} = {literal.text}` is {said} exactly",
        literal.span,
        f"{literal.with_unit('Ki')} would be {float(binary):,.10g}",
        notes=["k counts thousands, Ki counts 1,024s"],
        help=[f"`{literal.with_unit('Ki')}` or `{float(plain):.12g}` says which is meant"],
        fixes=literals.replaced(subject, literal, texts),
    )
