"""A precision-aware optimizer without what it needs.

What
    The option `use_precision_aware_optimizer` goes with `zero` of at least 1 and with `adamw`.
Why
    The dtypes of master weights and moments are kept by the distributed optimizer, for Adam alone.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
      zero = 0
      #      ^ B428
    }
    target "megatron" {
      options {
        use_precision_aware_optimizer = on
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
        use_precision_aware_optimizer = on
      }
    }
Source
    Megatron-LM, August 2026, core/optimizer/optimizer_config.py: only supported with adam, and with
    distributed optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, fix
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B428"
TITLE = "a precision-aware optimizer without what it needs"
READS = ("parallel.zero",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    name, train = "use_precision_aware_optimizer", subject.spec.train
    if options.asked(subject, "megatron", name) is not True:
        return
    wrong = {
        "parallel.zero": (subject.parallel.zero == 0, "a distributed optimizer: `zero = 1`"),
        "train.optimizer": (bool(train and train.optimizer.name != "adamw"), "Adam"),
    }
    for path, (there, needs) in wrong.items():
        if there:
            # A stage brings what is asked for; another optimizer is another job.
            mended = fix.set_fields(subject, {path: 1}) if path == "parallel.zero" else ()
            yield error(
                CODE,
                f"use_precision_aware_optimizer needs {needs}",
                *subject.label(path, "not that"),
                also=[(options.place(subject, "megatron", name), "asked for here")],
                fixes=(*mended, *options.set_option(subject, "megatron", name, "off")),
            )
