"""An option that contradicts the file.

What
    What `target "deepspeed" { options { … } }` says agrees with the fields of the file.
Why
    train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · dp is one
    equation; a second number for one of its terms is right or wrong, never needed.
Example
    model from "llama3-8b"
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      zero = 3
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
    target "deepspeed" {
      options {
        gradient_accumulation_steps = 1
        #                             ^ B507
      }
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 1, node from "dgx-h100" }
    parallel {
      zero = 3
    }
    train {
      seq = 4Ki
      micro_batch = 1
      global_batch = 64
      recompute = full
    }
    target "deepspeed" {
      options {
        gradient_accumulation_steps = 8
      }
    }
Source
    DeepSpeed, August 2026, runtime/config.py: the assertion of the three batch sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.backends import options
from parlay.compiler.checks import Subject
from parlay.dsl.diagnostics import Diagnostic

CODE = "B507"
TITLE = "an option that contradicts the file"
READS = ()
ALLOWED = False

SAME: Final[options.Table] = {
    "train_batch_size": ("train.global_batch", lambda s: s.train.global_batch),
    "train_micro_batch_size_per_gpu": ("train.micro_batch", lambda s: s.train.micro_batch),
    "gradient_accumulation_steps": ("train.global_batch", lambda s: s.microbatches),
    "gradient_clipping": ("train.clip", lambda s: s.train.clip),
    "stage": ("parallel.zero", lambda s: s.parallel.zero),
    "autotp_size": ("parallel.tp", lambda s: s.parallel.tp),
    "num_stages": ("parallel.pp", lambda s: s.parallel.pp),
    "sequence_parallel_size": ("parallel.cp", lambda s: s.parallel.cp),
    "autoep_size": ("parallel.ep", lambda s: s.parallel.ep),
    "zero_hpz_partition_size": ("parallel.shard", lambda s: None),
    "mics_shard_size": ("parallel.shard", lambda s: s.parallel.shard),
    "bf16": ("train.precision", lambda s: s.train.precision == "bf16"),
    "fp16": ("train.precision", lambda s: s.train.precision == "fp16"),
}


def check(subject: Subject) -> Iterator[Diagnostic]:
    yield from options.contradictions(subject, "deepspeed", CODE, SAME)
