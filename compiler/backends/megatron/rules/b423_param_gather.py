"""Overlapped gathers without a distributed optimizer.

What
    The option `overlap_param_gather` goes with `zero` of at least 1 and `overlap = on`.
Why
    The parameters that it gathers beside the forward are those that the distributed optimizer
    has sharded; its gathers follow the overlapped reduction of the gradients.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      zero = 0
      #      ^ B423
    }
    target "megatron" {
      options {
        overlap_param_gather = on
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      zero = 1
    }
    target "megatron" {
      options {
        overlap_param_gather = on
      }
    }
Source
    Megatron-LM, August 2026, training/arguments.py: overlap_param_gather needs
    use_distributed_optimizer and overlap_grad_reduce.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B423"
TITLE = "overlapped gathers without a distributed optimizer"
READS = ("parallel.zero", "parallel.overlap")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if options.asked(subject, "megatron", "overlap_param_gather") is not True:
        return
    parallel = subject.parallel
    if parallel.zero == 0:
        path, needs, value = "parallel.zero", "a distributed optimizer", "1"
    elif not parallel.overlap:
        path, needs, value = "parallel.overlap", "overlapped gradients", "on"
    else:
        return
    yield error(
        CODE,
        f"overlap_param_gather needs {needs}",
        *subject.label(path, f"needs {needs}"),
        also=[(options.place(subject, "megatron", "overlap_param_gather"), "asked for here")],
        fixes=fix.set_fields(subject, {path: value}),
    )
