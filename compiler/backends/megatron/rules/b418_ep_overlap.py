"""Overlapped expert traffic with what it does not go with.

What
    The option `overlap_moe_expert_parallel_comm` needs ep above 1, chunks where there is a
    pipeline, bf16 or fp16, no full recomputation, and at most one `mtp_layers`.
Why
    The traffic of one microbatch is hidden behind the computation of another. That takes two in
    flight (interleaved chunks), and layers whose parts can be run out of order.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      pp = 2
      #    ^ B418
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        overlap_moe_expert_parallel_comm = on
      }
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      pp = 2
      schedule = interleaved(chunks = 2)
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        overlap_moe_expert_parallel_comm = on
      }
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py: the checks of
    overlap_moe_expert_parallel_comm.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B418"
TITLE = "overlapped expert traffic with what it does not go with"
READS = ("parallel.ep", "parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if options.asked(subject, "megatron", "overlap_moe_expert_parallel_comm") is not True:
        return
    parallel, model, train = subject.parallel, subject.spec.model, subject.spec.train
    recompute = train.recompute if train else None
    wrong = {
        "parallel.ep": (parallel.ep == 1, "ep above 1"),
        "parallel.pp": (
            parallel.pp > 1 and parallel.schedule.name != "interleaved",
            "interleaved chunks",
        ),
        "model.mtp_layers": (bool(model and (model.mtp_layers or 0) > 1), "one mtp layer at most"),
        "train.recompute": (
            bool(recompute and recompute.name == "full"),
            "no recomputation of whole layers",
        ),
        "train.precision": (bool(train and train.precision == "fp32"), "bf16 or fp16"),
    }
    option = options.place(subject, "megatron", "overlap_moe_expert_parallel_comm")
    for path, (there, needs) in wrong.items():
        if there:
            span, label = subject.label(path, f"needs {needs}")
            yield error(
                CODE,
                f"overlap_moe_expert_parallel_comm needs {needs}",
                span,
                label,
                also=[(option, "asked for here")],
                fixes=options.set_option(
                    subject, "megatron", "overlap_moe_expert_parallel_comm", "off"
                ),
            )
