"""Matrices of an 8-bit or 4-bit recipe are no multiple of its blocks.

What
    Under `fp8` and `nvfp4` the rows and widths that each rank multiplies are multiples of 16, under
    `mxfp8` of 32: tokens of a rank, hidden, and its share of ffn and of the heads' width.
Why
    The matrix units read such operands in blocks. A shape that is no multiple is refused by the
    kernel library, at the first step.
Example
    model from "qwen3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 4 }
    train {
      seq = 16_368
      #     ^^^^^^ L231
      micro_batch = 1
      global_batch = 8
      precision = fp8
    }
Instead
    model from "qwen3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 4 }
    train {
      seq = 16Ki
      micro_batch = 1
      global_batch = 8
      precision = fp8
    }
Source
    Transformer Engine: both dimensions of an FP8 operand divide by 16, of an MXFP8 one by 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import sequence, suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L231"
TITLE = "matrices of an 8-bit or 4-bit recipe are no multiple of its blocks"
READS = (
    *sequence.READS,
    "train.precision",
    "train.micro_batch",
    "model.hidden",
    "model.heads",
    "model.head_dim",
    "model.ffn",
)
ALLOWED = False

BLOCKS: Final = {"fp8": 16, "mxfp8": 32, "nvfp4": 16}


def check(subject: Subject) -> Iterator[Diagnostic]:
    block = BLOCKS.get(subject.train.precision)
    if block is None:
        return
    yield from _rows(subject, block)
    model, tp = subject.model, subject.parallel.tp
    if model.hidden % block:
        yield _width(subject, block, "model.hidden", model.hidden)
    for path, width in (
        ("model.ffn", model.ffn),
        ("model.heads", model.heads * model.head_dim),
    ):
        # What tp does not divide is told elsewhere.
        if width % tp == 0 and width // tp % block:
            yield _width(subject, block, path, width // tp)
    experts, etp = model.experts, subject.parallel.etp
    if experts is not None and experts.ffn and etp and experts.ffn % etp == 0:
        share = experts.ffn // etp
        if share % block:
            yield _width(subject, block, "model.experts.ffn", share)


def _rows(subject: Subject, block: int) -> Iterator[Diagnostic]:
    """Tokens of one microbatch on one rank, between the gather and scatter of its matrices."""
    train, parallel = subject.train, subject.parallel
    tensor = sequence.tensor_unit(parallel)
    cuts = parallel.cp * tensor
    tokens = train.micro_batch * train.seq
    if tokens % cuts or tokens // cuts % block == 0:
        return
    unit = sequence.whole_unit(parallel) * block
    values = words.near(train.seq, unit, least=unit)
    near = suggest.choices(subject, "train.seq", values, wanted=train.seq)
    span, label = subject.label("train.seq", f"{tokens // cuts} rows on each rank")
    also = [subject.label("train.precision", f"rows come in blocks of {block}")]
    also += [
        subject.label(f"parallel.{axis}", f"cuts the sequence in {size}")
        for axis, size in (("cp", parallel.cp), ("tp", tensor))
        if size > 1
    ]
    yield error(
        CODE,
        f"{tokens // cuts} rows are no multiple of {block} under {train.precision}",
        span,
        label,
        also=also,
        notes=[words.leaves(tokens // cuts, block)],
        help=near.help,
        fixes=near.fixes,
    )


def _width(subject: Subject, block: int, path: str, width: int) -> Diagnostic:
    train = subject.train
    axis = "etp" if path == "model.experts.ffn" else "tp"
    cut = getattr(subject.parallel, axis)
    span, label = subject.label(path, f"{width} wide on each rank")
    also = [subject.label("train.precision", f"widths come in blocks of {block}")]
    if path != "model.hidden" and cut > 1:
        also.append(subject.label(f"parallel.{axis}", f"cuts it in {cut}"))
    moved = path != "model.hidden" and axis == "tp"
    near = suggest.layouts(subject) if moved else suggest.Help()
    return error(
        CODE,
        f"a width of {width} is no multiple of {block} under {train.precision}",
        span,
        label,
        also=also,
        notes=[words.leaves(width, block)],
        help=near.help,
        fixes=near.fixes,
    )
