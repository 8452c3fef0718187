"""What libraries allocate beside the tensors of the model, for stacks that are priced with it.

PyTorch keeps one cuBLAS workspace for each handle, of which the forward's and the backward's thread
have one each: 32 MiB on accelerators since Hopper, and where the workspace is fixed for
determinism (`CUBLAS_WORKSPACE_CONFIG=:4096:8`), else 2 x 4096 KiB + 8 x 16 KiB. Transformer Engine
has a workspace of 32 MiB since Hopper and of 4 MiB before, and four more for grouped products.
"""

from __future__ import annotations

from typing import Final

from parlay.compiler.ledger.memory.record import Line
from parlay.compiler.ledger.memory.sizes import Sizes
from parlay.compiler.ledger.memory.stack import MIB, Stack
from parlay.compiler.spec.blocks import Gpu

THREADS: Final = 2
"""Handles of cuBLAS: that of the forward and that of autograd's thread."""
STREAMS: Final = 4
"""Streams of Transformer Engine's grouped products."""
PLAIN_BYTES: Final = 8320 * 2**10
UNSPLIT_BYTES: Final = 3 * MIB // 2
"""PyTorch's allocator leaves the rest of a block whole where it is below 1 MiB: on average half of
that for each of the three large tensors of a layer that are no multiple of it."""


def workspaces(stack: Stack, gpu: Gpu, *, grouped: bool) -> Line:
    """The workspaces of one GPU; `grouped` says that several experts are multiplied at once."""
    modern = gpu.fp8_flops is not None
    wide = 32 * MIB
    cublas = wide if modern or stack.deterministic else PLAIN_BYTES
    engine = 0 if stack.local else wide if modern else 4 * MIB
    engines = 1 + (STREAMS if grouped else 0)
    value = (THREADS * cublas + engines * engine) if stack.libraries else 0
    formula = f"{THREADS} x {cublas}" + (f" + {engines} x {engine}" if engine else "")
    return Line("buffers", "workspaces", value, formula, "PyTorch; Transformer Engine")


def lines(sizes: Sizes, gpu: Gpu) -> tuple[Line, ...]:
    """Everything that libraries hold at every moment on one GPU."""
    stack, experts = sizes.stack, sizes.model.experts
    if not stack.libraries:
        return ()
    found = [workspaces(stack, gpu, grouped=experts is not None and not stack.sequential)]
    columns = sizes.seq
    if stack.masks:
        value = 2 * sizes.tokens * columns
        formula = f"2 x {sizes.tokens} x {columns}"
        found.append(Line("buffers", "attention masks", value, formula, stack.source))
    if stack.local and sizes.train.attention == "math":
        value = sizes.width * sizes.heads * sizes.tokens * columns
        formula = f"{sizes.width} x {sizes.heads} heads x {sizes.tokens} x {columns}"
        found.append(Line("buffers", "scores' shared buffer", value, formula, stack.source))
    return tuple(found)


def rounding(stack: Stack, layers: int) -> tuple[Line, ...]:
    """What the allocator rounds up over `layers` kept layers, those of all microbatches."""
    if not stack.libraries or not layers:
        return ()
    value = layers * UNSPLIT_BYTES
    formula = f"{layers} layers x {UNSPLIT_BYTES}"
    return (Line("buffers", "rounding of the allocator", value, formula, "PyTorch's allocator"),)
