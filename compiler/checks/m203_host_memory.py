"""The host has too little memory for what is offloaded.

What
    What `offload` keeps on a node, half as much again for pinned buffers, and below ZeRO-3 the
    first copy of each rank's weights, fit `host.memory`.
Why
    Offloading moves the state of all GPUs of a node into one memory, from stage 2 on with the
    gradients that a rank keeps. Staging buffers are pinned beside it, and below stage 3 each rank
    first builds its whole share of the model there. The operating system ends a process that asks
    for more, without a word from the framework.
Example
    model from "llama2-34b"
    cluster {
      node from "a100-40gb-8" {
        host {
          memory = 600GB
          #        ^^^^^ M203
        }
      }
    }
    parallel {
      zero = 3
      offload = cpu(optimizer, params)
    }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
Instead
    model from "llama2-34b"
    cluster {
      node from "a100-40gb-8" {
        host {
          memory = 1TB
        }
      }
    }
    parallel {
      zero = 3
      offload = cpu(optimizer, params)
    }
    train {
      seq = 2Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
Source
    DeepSpeed, estimate_zero3_model_states_mem_needs: a buffer factor of 1.5; issues 3448 and 912.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import budget, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error, warning

CODE = "M203"
TITLE = "the host has too little memory for what is offloaded"
READS = (*budget.READS, "cluster.node.host.memory", "parallel.offload", "parallel.pp")
ALLOWED = False

BUFFERS: Final = 1.5
COPY_BYTES: Final = 4
"""A parameter of the copy that is built first, in fp32."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    host = subject.cluster.node.host
    assert host is not None and host.memory_bytes is not None
    if subject.parallel.offload.name == "none":
        return
    kept = budget.host_bytes(subject)
    if kept is None:
        return
    first = _first_copy(subject)
    needed = kept * BUFFERS + first
    if needed <= host.memory_bytes:
        return
    span, label = subject.label("cluster.node.host.memory", f"{words.memory(needed)} are needed")
    shown, there = words.memories(needed, host.memory_bytes)
    notes = [
        f"state kept on the host: {words.memory(kept)} a node, {BUFFERS:g} times that with pinned "
        "buffers"
    ]
    if first:
        notes.append(f"first copy of the weights below ZeRO-3: {words.memory(first)}")
    # The state alone is certain, the rest is an estimate.
    yield (error if kept > host.memory_bytes else warning)(
        CODE,
        f"offloading needs {shown} of host memory a node, there are {there}",
        span,
        label,
        also=[
            subject.label("parallel.offload", "to host memory"),
            subject.label("parallel.zero", "shards the state over the ranks"),
        ],
        notes=notes,
        help=["more nodes divide it, and so does `offload = nvme(…)`"],
    )


def _first_copy(subject: Subject) -> float:
    """Bytes of the weights that the ranks of a node build whole before ZeRO shards them."""
    if subject.parallel.zero == 3:
        return 0
    weights = budget.weights_held(subject)
    return COPY_BYTES * weights * subject.cluster.node.gpus
