"""A step of the optimizer moves nothing, or more than there is.

What
    A warning where the learning rate is 0, where adapters are scaled by 0, or where a step of Adam
    (about the learning rate) is larger than the deviation that weights are drawn with.
Why
    At 0 the job runs, and trains nothing. Above the weights themselves each step replaces them, and
    the loss goes up: a sign or a digit of the exponent is usually missing.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      optimizer = adamw(lr = 3)
      #                      ^ T207
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      optimizer = adamw(lr = 3e-4)
    }
Source
    arXiv:1412.6980, section 2.1: the size of a step of Adam is bounded by its rate.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "T207"
TITLE = "a step of the optimizer moves nothing, or more than there is"
READS = ("train.optimizer",)
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    optimizer, model = subject.train.optimizer, subject.spec.model
    rate, lora = optimizer.get("lr"), subject.train.lora
    std = None if model is None else model.init_std
    if rate is not None and not rate:
        span, label = subject.label("train.optimizer.lr", "each step moves nothing")
        yield warning(CODE, "a learning rate of 0 trains nothing", span, label)
    elif rate is not None and std and optimizer.name == "adamw" and rate > std and lora is None:
        yield warning(
            CODE,
            f"a step of {words.real(float(rate))} is larger than the weights",
            *subject.label("train.optimizer.lr", "how far Adam moves a weight"),
            also=[subject.label("model.init_std", f"weights deviate by {words.real(float(std))}")],
            notes=[
                f"{words.real(float(rate))} / {words.real(float(std))} = {float(rate / std):.3g}"
            ],
        )
    if lora is not None and lora.get("alpha") is not None and not lora.get("alpha"):
        span, label = subject.label("train.lora.alpha", "adapters count nothing")
        yield warning(CODE, "adapters scaled by 0 train nothing", span, label)
