"""Experts padded to a capacity that there is not.

What
    The option `moe_pad_expert_input_to_capacity` goes with `capacity` of the experts, and not with
    the deepep dispatcher.
Why
    It pads the tokens of every expert to its capacity; without one there is no length to pad to.
    DeepEP sends as many tokens as there are, and has no padding.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        moe_pad_expert_input_to_capacity = on
        #                                  ^^ B427
      }
    }
Instead
    model from "mixtral-8x7b" {
      experts {
        capacity = 1.25
      }
    }
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        moe_pad_expert_input_to_capacity = on
      }
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py: moe_expert_capacity_factor
    must be set; the flex dispatcher with deepep does not support it.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B427"
TITLE = "experts padded to a capacity that there is not"
READS = ()
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    name, model = "moe_pad_expert_input_to_capacity", subject.spec.model
    if options.asked(subject, "megatron", name) is not True or model is None:
        return
    backend = "moe_flex_dispatcher_backend"
    there = options.place(subject, "megatron", name)
    fixes = options.set_option(subject, "megatron", name, "off")
    if model.experts is None or model.experts.capacity is None:
        help = ["a `capacity` of the experts, for instance 1.25"] if model.experts else []
        yield error(
            CODE,
            "there is no capacity to pad the tokens of an expert to",
            there,
            "needs `model.experts.capacity`",
            help=help,
            fixes=fixes,
        )
    elif options.asked(subject, "megatron", backend) == "deepep":
        yield error(
            CODE,
            "`deepep` does not pad the tokens of an expert",
            there,
            "refused with this dispatcher",
            also=[(options.place(subject, "megatron", backend), "asked for here")],
            fixes=fixes,
        )
