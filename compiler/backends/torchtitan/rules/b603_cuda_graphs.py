"""CUDA graphs with a pipeline or experts.

What
    With pp or ep above 1 the option `disable_cuda_graphs` is not off.
Why
    A graph replays fixed shapes. Stages wait for each other in between, and the number of an
    expert's tokens changes from step to step.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      #    ^ B603
      zero = 0
    }
    target "torchtitan" {
      options {
        disable_cuda_graphs = off
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      zero = 0
    }
    target "torchtitan" {
      options {
        disable_cuda_graphs = on
      }
    }
Source
    torchtitan, August 2026, config of training.disable_cuda_graphs.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B603"
TITLE = "CUDA graphs with a pipeline or experts"
READS = ("parallel.pp", "parallel.ep")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    axis = "pp" if parallel.pp > 1 else "ep"
    if options.asked(subject, "torchtitan", "disable_cuda_graphs") is not False:
        return
    if getattr(parallel, axis) == 1:
        return
    span, label = subject.label(f"parallel.{axis}", "no fixed shapes to replay")
    option = options.place(subject, "torchtitan", "disable_cuda_graphs")
    yield error(
        CODE,
        f"{axis} = {getattr(parallel, axis)} does not go with CUDA graphs",
        span,
        label,
        also=[(option, "keeps them on")],
        fixes=options.set_option(subject, "torchtitan", "disable_cuda_graphs", "on"),
    )
