"""Training in fp32 on a GPU with fast 16-bit matrix units.

What
    A warning where `precision = fp32` and the GPU's 16-bit peak is more than four times its fp32
    one.
Why
    A missing flag is the usual reason: an A100 does 19.5 TFLOP/s at fp32 and 312 at bf16. The job
    runs, sixteen times too slow, and looks like a problem of the network.
Example
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-a100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      precision = fp32
      #           ^^^^ W208
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 2, node from "dgx-a100" }
    parallel { tp = 8 }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
      precision = bf16
    }
Source
    Megatron-LM issue 1000: 20 TFLOP/s on an A100, parameters in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W208"
TITLE = "training in fp32 on a GPU with fast 16-bit matrix units"
READS = ("train.precision", "cluster.node.gpu.fp32")
ALLOWED = False

TIMES: Final = 4


def check(subject: Subject) -> Iterator[Diagnostic]:
    gpu = subject.cluster.node.gpu
    name = "bf16" if gpu.bf16_flops else "fp16"
    fast, slow = gpu.bf16_flops or gpu.fp16_flops, gpu.fp32_flops
    if subject.train.precision != "fp32" or fast is None or slow is None or fast <= TIMES * slow:
        return
    span, label = subject.label("train.precision", f"{slow / 1e12:.4g} TFLOP/s at best")
    yield warning(
        CODE,
        f"fp32 is {fast / slow:.3g} times slower than {name} on this GPU",
        span,
        label,
        also=[subject.label(f"cluster.node.gpu.{name}", f"{fast / 1e12:.4g} TFLOP/s")],
        fixes=fix.set_fields(subject, {"train.precision": name}),
    )
