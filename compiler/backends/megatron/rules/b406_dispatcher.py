"""A fast dispatcher without the flexible one.

What
    `moe_flex_dispatcher_backend` (deepep, hybridep, ncclep) goes with
    `moe_token_dispatcher_type = flex`.
Why
    The back ends belong to the flexible dispatcher. Without it the setting has no effect, or is
    refused.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        moe_flex_dispatcher_backend = hybridep
        #                             ^^^^^^^^ B406
      }
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = flex
        moe_flex_dispatcher_backend = hybridep
      }
    }
Source
    Megatron-LM, August 2026, core/transformer/transformer_config.py:
    moe_flex_dispatcher_backend needs the flex dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B406"
TITLE = "a fast dispatcher without the flexible one"
READS = ()
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    name = "moe_flex_dispatcher_backend"
    backend = options.asked(subject, "megatron", name)
    kind = options.asked(subject, "megatron", "moe_token_dispatcher_type")
    if backend is None or kind == "flex":
        return
    other = "moe_token_dispatcher_type"
    if kind is None:
        fixes = options.add_option(subject, "megatron", name, other, "flex")
    else:
        fixes = options.set_option(subject, "megatron", other, "flex")
    yield error(
        CODE,
        f"`{backend}` needs `moe_token_dispatcher_type = flex`",
        options.place(subject, "megatron", name),
        "a back end of the flexible dispatcher",
        help=["`moe_token_dispatcher_type = flex` beside it"],
        fixes=fixes,
    )
