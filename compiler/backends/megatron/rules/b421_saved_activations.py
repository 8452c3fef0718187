"""Distributed saved activations without their conditions.

What
    The option `distribute_saved_activations` needs tp above 1, `recompute = full` and no
    sequence parallelism.
Why
    It cuts the inputs of recomputed layers over the TP ranks. Under sequence parallelism they
    are cut already.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      sequence_parallel = off
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
    }
    target "megatron" {
      options {
        distribute_saved_activations = on
        #                              ^^ B421
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      sequence_parallel = off
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
    target "megatron" {
      options {
        distribute_saved_activations = on
      }
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py:
    distribute_saved_activations.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B421"
TITLE = "distributed saved activations without their conditions"
READS = ("parallel.tp", "parallel.sequence_parallel", "train.recompute")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    name = "distribute_saved_activations"
    if options.asked(subject, "megatron", name) is not True:
        return
    parallel, recompute = subject.parallel, subject.train.recompute
    wrong = {
        "parallel.tp": (parallel.tp == 1, "tp above 1"),
        "train.recompute": (recompute.name != "full", "full recomputation"),
        "parallel.sequence_parallel": (parallel.sequence_parallel, "no sequence parallelism"),
    }
    for path, (there, needs) in wrong.items():
        if there:
            yield error(
                CODE,
                f"{name} needs {needs}",
                options.place(subject, "megatron", name),
                "asked for here",
                also=[subject.label(path, f"needs {needs}")],
                fixes=options.set_option(subject, "megatron", name, "off"),
            )
