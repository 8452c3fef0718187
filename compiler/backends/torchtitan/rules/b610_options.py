"""An option that contradicts the file.

What
    What `target "torchtitan" { options { … } }` says agrees with the fields of the file.
Why
    Degrees multiply to the world: dp_replicate · dp_shard · cp · tp · pp. A second number for
    one of them is right or wrong, never needed.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      zero = 3
      shard = 8
    }
    target "torchtitan" {
      options {
        data_parallel_replicate_degree = 2
        #                                ^ B610
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 2
      zero = 3
      shard = 4
    }
    target "torchtitan" {
      options {
        data_parallel_replicate_degree = 2
      }
    }
Source
    torchtitan, August 2026, parallel_dims.py: the product of the degrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic

CODE = "B610"
TITLE = "an option that contradicts the file"
READS = ()
ALLOWED = False

SAME: Final[options.Table] = {
    "tensor_parallel_degree": ("parallel.tp", lambda s: s.parallel.tp),
    "pipeline_parallel_degree": ("parallel.pp", lambda s: s.parallel.pp),
    "context_parallel_degree": ("parallel.cp", lambda s: s.parallel.cp),
    "expert_parallel_degree": ("parallel.ep", lambda s: s.parallel.ep),
    "enable_sequence_parallel": (
        "parallel.sequence_parallel",
        lambda s: s.parallel.sequence_parallel,
    ),
    "data_parallel_replicate_degree": ("parallel.shard", lambda s: _replicas(s)),
    "data_parallel_shard_degree": ("parallel.shard", lambda s: _shards(s)),
    "local_batch_size": ("train.micro_batch", lambda s: s.train.micro_batch),
    "global_batch_size": ("train.global_batch", lambda s: s.train.global_batch),
    "seq_len": ("train.seq", lambda s: s.train.seq),
    "max_context_length": ("train.seq", lambda s: s.train.seq),
    "steps": ("train.steps", lambda s: s.train.steps),
    "max_norm": ("train.clip", lambda s: s.train.clip),
}


def _replicas(subject: Subject) -> int:
    parallel = subject.parallel
    return parallel.dp * parallel.cp // (parallel.shard if parallel.zero else 1)


def _shards(subject: Subject) -> int | None:
    """Ranks of dp that shard: cp is an axis of its own there; -1 is the rest of the world."""
    parallel = subject.parallel
    given = options.asked(subject, "torchtitan", "data_parallel_shard_degree")
    if given == -1 or not parallel.zero or parallel.shard % parallel.cp:
        return None
    return parallel.shard // parallel.cp


def check(subject: Subject) -> Iterator[Diagnostic]:
    yield from options.contradictions(subject, "torchtitan", CODE, SAME)
