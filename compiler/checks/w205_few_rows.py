"""Microbatches too small for the matrix units.

What
    A warning where the tokens of one microbatch on one rank are fewer than the floating-point
    operations that the GPU does while it reads one byte.
Why
    A product of m rows with a large weight does about m operations for each byte of the weight. A
    GPU that does 295 in the time of one byte (H100 at bf16) waits for its memory with fewer rows.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 128
      #     ^^^ W205
      micro_batch = 1
      global_batch = 256
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 128
      micro_batch = 32
      global_batch = 256
    }
Source
    The roofline model, doi:10.1145/1498765.1498785: peak over bandwidth is the least intensity.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W205"
TITLE = "microbatches too small for the matrix units"
READS = (
    "train.seq",
    "train.micro_batch",
    "parallel.cp",
    "cluster.node.gpu.bandwidth",
    "train.precision",
)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    gpu, train, cp = subject.cluster.node.gpu, subject.train, subject.parallel.cp
    peak = gpu.fp16_flops if train.precision == "fp16" else gpu.bf16_flops
    assert gpu.bandwidth_bytes_per_s is not None
    if peak is None or train.precision == "fp32":
        return
    rows = train.micro_batch * train.seq / cp
    least = peak / gpu.bandwidth_bytes_per_s
    if rows >= least:
        return
    span, label = subject.label("train.seq", f"{rows:g} rows on each rank")
    also = [subject.label("train.micro_batch", words.counted(train.micro_batch, "sequence"))]
    if cp > 1:
        also.append(subject.label("parallel.cp", f"cuts each sequence in {cp}"))
    near = _larger(subject, least)
    yield warning(
        CODE,
        f"{rows:g} rows leave the matrix units waiting for memory, {least:.0f} would not",
        span,
        label,
        also=also,
        notes=[
            f"{peak / 1e12:.4g} TFLOP/s / {words.speed(gpu.bandwidth_bytes_per_s)} = {least:.0f} "
            "operations a byte"
        ],
        help=near.help,
        fixes=near.fixes,
    )


def _larger(subject: Subject, least: float) -> suggest.Help:
    """The smallest micro-batch with enough rows that divides the batch of a replica."""
    if not subject.has(("train.global_batch", "parallel.dp")):
        return suggest.Help()
    train, parallel = subject.train, subject.parallel
    each, rest = divmod(train.global_batch, parallel.dp)
    if rest:
        return suggest.Help()
    fitting = [d for d in words.divisors(each) if d * train.seq / parallel.cp >= least][:2]
    return suggest.choices(subject, "train.micro_batch", fitting, wanted=train.micro_batch, most=1)
