"""A feature that needs compilation.

What
    The options `enable_async_tensor_parallel` and a memory budget for activations go with
    `compile = on`.
Why
    Both are passes of the compiler: without it they do nothing, in silence or with an error.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      compile = off
      #         ^^^ B608
    }
    target "torchtitan" {
      options {
        enable_async_tensor_parallel = on
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      compile = on
    }
    target "torchtitan" {
      options {
        enable_async_tensor_parallel = on
      }
    }
Source
    torchtitan, August 2026, distributed/tensor_parallel.py;
    activation_checkpoint.MemoryBudgetAC.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B608"
TITLE = "a feature that needs compilation"
READS = ("train.compile",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.train.compile:
        return
    for name in ("enable_async_tensor_parallel", "memory_budget"):
        if options.asked(subject, "torchtitan", name) in (None, False):
            continue
        span, label = subject.label("train.compile", "no pass of the compiler runs")
        yield error(
            CODE,
            f"`{name}` needs compilation",
            span,
            label,
            also=[(options.place(subject, "torchtitan", name), "asked for here")],
            fixes=fix.set_fields(subject, {"train.compile": "on"}),
        )
