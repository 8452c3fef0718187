"""Bf16 gradients in a pipeline with ZeRO.

What
    With pp above 1, `zero` of at least 1 and bf16, `gradients = fp32`.
Why
    Reducing bf16 gradients in the pipeline engine under ZeRO is not implemented; with fp32
    accumulation it is.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      zero = 1
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      gradients = bf16
      #           ^^^^ B504
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      zero = 1
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      gradients = fp32
    }
Source
    DeepSpeed, August 2026, runtime/pipe/engine.py; gpt-neox issue 963 and its pull request
    1032.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B504"
TITLE = "bf16 gradients in a pipeline with ZeRO"
READS = ("train.gradients", "train.precision", "parallel.zero", "parallel.pp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel, train = subject.parallel, subject.train
    if parallel.pp == 1 or parallel.zero == 0:
        return
    if train.precision != "bf16" or train.gradients == "fp32":
        return
    span, label = subject.label("train.gradients", "summed in 16 bits")
    yield error(
        CODE,
        "a pipeline with ZeRO sums bf16 gradients in fp32 alone",
        span,
        label,
        also=[
            subject.label("parallel.zero", "shards the optimizer"),
            subject.label("parallel.pp", f"{parallel.pp} pipeline ranks"),
        ],
        fixes=fix.set_fields(subject, {"train.gradients": "fp32"}),
    )
