"""FSDP2 with what it does not go with.

What
    With the option `use_torch_fsdp2` pp and ep are 1, the embeddings are not tied, and the
    precision is not fp16.
Why
    PyTorch's FSDP2 shards whole modules over the data-parallel ranks; it knows nothing of
    stages, of experts on other ranks, nor of the weight that two modules share.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 2
      #    ^ B416
      zero = 3
    }
    target "megatron" {
      options {
        use_torch_fsdp2 = on
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      zero = 3
    }
    target "megatron" {
      options {
        use_torch_fsdp2 = on
      }
    }
Source
    Megatron-LM, August 2026, training/arguments.py: the checks of use_torch_fsdp2.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B416"
TITLE = "FSDP2 with what it does not go with"
READS = ("parallel.pp", "parallel.ep")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if options.asked(subject, "megatron", "use_torch_fsdp2") is not True:
        return
    model, train = subject.spec.model, subject.spec.train
    wrong = {
        "parallel.pp": subject.parallel.pp > 1,
        "parallel.ep": subject.parallel.ep > 1,
        "model.tied_embeddings": bool(model and model.tied_embeddings),
        "train.precision": bool(train and train.precision == "fp16"),
    }
    option = options.place(subject, "megatron", "use_torch_fsdp2")
    for path, there in wrong.items():
        if there:
            span, label = subject.label(path, "not under FSDP2")
            shown = subject.origins[path].shown
            yield error(
                CODE,
                f"use_torch_fsdp2 does not go with {path.rpartition('.')[2]} = {shown}",
                span,
                label,
                also=[(option, "asked for here")],
                fixes=options.set_option(subject, "megatron", "use_torch_fsdp2", "off"),
            )
