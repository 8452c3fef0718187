"""Every rank loads every shard.

What
    A warning where the option `elastic_checkpoint` is on and the optimizer states of all ranks,
    once for each rank of a node, exceed `host.memory`.
Why
    An elastic checkpoint is loaded whole by every process before it keeps its own part: 525 MB
    a shard, 256 ranks and 8 processes a node are a terabyte.
Example
    model { params = 10B }
    cluster { nodes = 32, node from "v100-8" }
    parallel {
      tp = 1
      zero = 3
    }
    target "deepspeed" {
      options {
        elastic_checkpoint = on
        #                    ^^ B509
      }
    }
Instead
    model { params = 10B }
    cluster { nodes = 32, node from "v100-8" }
    parallel {
      tp = 1
      zero = 3
    }
    target "deepspeed" {
      options {
        elastic_checkpoint = off
      }
    }
Source
    DeepSpeed, August 2026, issue 1525: loading ZeRO checkpoints takes the host memory of all
    shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject, budget, words
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "B509"
TITLE = "every rank loads every shard"
READS = (*budget.READS, "cluster.node.host.memory")
ALLOWED = False

STATES_BYTES: Final = 12


def check(subject: Subject) -> Iterator[Diagnostic]:
    if options.asked(subject, "deepspeed", "elastic_checkpoint") is not True:
        return
    host, gpus = subject.cluster.node.host, subject.cluster.node.gpus
    if subject.parallel.zero == 0 or budget.fullest(subject) is None:
        return
    assert host is not None and host.memory_bytes is not None
    needed = STATES_BYTES * budget.weights_held(subject) * gpus
    if needed <= host.memory_bytes:
        return
    yield warning(
        CODE,
        f"loading takes {words.memory(needed)} of host memory a node, there are "
        f"{words.memory(host.memory_bytes)}",
        options.place(subject, "deepspeed", "elastic_checkpoint"),
        "every process loads the shards of all",
        also=[subject.label("cluster.node.host.memory", words.memory(host.memory_bytes))],
        notes=[f"master weights and moments: {STATES_BYTES} bytes a parameter, {gpus} processes"],
        fixes=options.set_option(subject, "deepspeed", "elastic_checkpoint", "off"),
    )
