"""A dispatcher that the network does not carry.

What
    A warning where `moe_flex_dispatcher_backend` is deepep or hybridep, experts reach over
    nodes, and the fabric is neither InfiniBand nor RoCE.
Why
    Between nodes these back ends send from the GPU by RDMA. A fabric without it (EFA, plain
    Ethernet) emulates it, and NCCL's own all-to-all was faster there by 6 to 187 % of a step.
Example
    model from "qwen3-30b-a3b" { experts { node_limit = 4 } }
    cluster {
      nodes = 8
      node from "aws-p5"
      fabric { kind = ethernet }
    }
    parallel {
      tp = 4
      etp = 1
      ep = 16
      order = [tp, cp, ep, dp, pp]
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = flex
        moe_flex_dispatcher_backend = deepep
        #                             ^^^^^^ B407
      }
    }
Instead
    model from "qwen3-30b-a3b" { experts { node_limit = 4 } }
    cluster {
      nodes = 8
      node from "aws-p5"
      fabric { kind = ethernet }
    }
    parallel {
      tp = 4
      etp = 1
      ep = 8
      zero = 1
    }
    target "megatron" {
      options {
        moe_token_dispatcher_type = alltoall
      }
    }
Source
    Megatron-LM, August 2026, docs of the flex dispatcher; awsome-distributed-ai issue 1144:
    measured on EFA.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B407"
TITLE = "a dispatcher that the network does not carry"
READS = ("layout", "cluster.fabric.kind", "model.experts.count")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    name = "moe_flex_dispatcher_backend"
    backend = options.asked(subject, "megatron", name)
    fabric, layout = subject.cluster.fabric, subject.laid_out
    assert fabric is not None
    if backend not in ("deepep", "hybridep") or fabric.kind in ("infiniband", "roce"):
        return
    if layout.expert is None or layout.reach("ep").nodes == 1:
        return
    yield warning(
        CODE,
        f"`{backend}` sends by RDMA from the GPU, which {fabric.kind} does not carry",
        options.place(subject, "megatron", name),
        "emulated between nodes",
        also=[subject.label("cluster.fabric.kind", "no RDMA started by the GPU")],
        help=["`moe_token_dispatcher_type = alltoall` uses NCCL"],
    )
