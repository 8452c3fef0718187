"""A dispatcher made for nodes of eight GPUs.

What
    With `moe_flex_dispatcher_backend` at deepep and the experts of a group on several nodes, a node
    has eight GPUs, or a multiple, and etp · ep is at most 160.
Why
    The kernels that cross nodes take eight ranks in a row for one node, and hold buffers for twenty
    such nodes. With four GPUs a node, as on GB200, the eight are two machines, and a buffer of one
    cannot be opened in the other.
Example
    model from "qwen3-30b-a3b"
    cluster { nodes = 8, node from "gb200-nvl72" }
    parallel {
      ep = 32
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = flex
        moe_flex_dispatcher_backend = deepep
        #                             ^^^^^^ B426
      }
    }
Instead
    model from "qwen3-30b-a3b"
    cluster { nodes = 8, node from "gb200-nvl72" }
    parallel {
      ep = 32
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = flex
        moe_flex_dispatcher_backend = hybridep
      }
    }
Source
    DeepEP, August 2026, issues 50, 392 and 464; Megatron-Bridge issue 5992, where GB200 falls back
    to the all-to-all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, words
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B426"
TITLE = "a dispatcher made for nodes of eight GPUs"
READS = ("layout", "model.experts.count", "parallel.ep", "parallel.etp", "cluster.node.gpus")
ALLOWED = False

NODE: Final = 8
MOST: Final = 160


def check(subject: Subject) -> Iterator[Diagnostic]:
    name, parallel = "moe_flex_dispatcher_backend", subject.parallel
    if options.asked(subject, "megatron", name) != "deepep" or subject.laid_out.expert is None:
        return
    # Without the flexible dispatcher it is not used at all, which is told by that rule.
    if options.asked(subject, "megatron", "moe_token_dispatcher_type") != "flex":
        return
    if subject.laid_out.reach("ep").nodes == 1:
        return
    gpus, ranks = subject.cluster.node.gpus, parallel.etp * parallel.ep
    if gpus % NODE:
        message = f"`deepep` takes {NODE} ranks for one node, and these have {gpus} GPUs"
        also = subject.label("cluster.node.gpus", words.counted(gpus, "GPU"))
    elif ranks > MOST:
        message = f"`deepep` reaches {MOST} ranks at most, and a group has {ranks}"
        also = subject.label("parallel.ep", words.counted(parallel.ep, "rank"))
    else:
        return
    yield error(
        CODE,
        message,
        options.place(subject, "megatron", name),
        "its kernels between nodes",
        also=[also],
        help=["`hybridep`, or `moe_token_dispatcher_type = alltoall`"],
        fixes=options.set_option(subject, "megatron", name, "hybridep"),
    )
