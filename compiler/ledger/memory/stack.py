"""What software keeps for the backward, by stack: one row a stack, each with its reason.

`train.stack` names whose software is priced, in front of a `-` and a generation that memory does
not depend on (`megatron-2024`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parlay.compiler.spec.blocks import Gpu

MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The memory conventions of one stack.

    `gated` and `plain` are the tensors of the MLP's inner width that are kept with a gated and with
    a plain activation. `statistics` says whether the small fp32 statistics of norms and flash
    attention are counted. `math` is the bytes kept for each attention score by unfused attention
    without dropout, and `math_copies` whether it keeps fp32 copies of queries, keys and values.
    `loss_saved` and `loss_transient` are bytes for each logit: kept from the loss to its backward,
    and held only while one of them runs. `expert_output` says whether each expert's output is kept
    for the gradient of the router, `wide_router` whether the router keeps its input in fp32.
    `workspace_bytes` (with unfused attention
    `unfused_workspace_bytes` more) and `modern_workspace_bytes` (accelerators with fp8) are what
    libraries allocate once; `scratch` is the bytes for each element of the
    residual stream that lie around the loss. `traced` says that the backward is followed operator
    by operator (`backward.py`), and tables of positions and messages between stages are counted.
    """

    name: str
    gated: int = 4
    plain: int = 2
    statistics: bool = True
    math: int = 4
    math_copies: bool = True
    loss_saved: int = 4
    loss_transient: int = 2
    loss_transient_alone: int = 8
    expert_output: bool = True
    wide_router: bool = False
    final_norm: bool = True
    master_is_weights: bool = False
    weight_gradient: bool = True
    workspace_bytes: int = 0
    modern_workspace_bytes: int = 0
    unfused_workspace_bytes: int = 0
    scratch: int = 0
    traced: bool = False
    source: str = "the emitted code"


PARLAY: Final = Stack(name="parlay", traced=True)
"""Keeps gate, silu(gate), up and their product; alone on tp, the loss runs through log-softmax."""

MEGATRON: Final = Stack(
    name="megatron",
    gated=3,
    statistics=False,
    math=2,
    math_copies=False,
    loss_transient_alone=2,
    wide_router=True,
    weight_gradient=False,
    workspace_bytes=28 * MIB,
    modern_workspace_bytes=94 * MIB,
    unfused_workspace_bytes=32 * MIB,
    scratch=12,
    source="Megatron-LM; arXiv:2205.05198, section 4",
)
"""A fused activation keeps gate, up and product; the loss always runs through its own kernel.

Its workspaces and what lies around the loss are fitted on peaks measured to the byte on small
models: cuBLAS and Transformer Engine allocate more where there is fp8, and the deterministic mode
that unfused attention stands for raises cuBLAS's share to that of newer accelerators.
"""

DEEPSPEED: Final = Stack(name="deepspeed", source="DeepSpeed, eager PyTorch")
TORCHTITAN: Final = Stack(
    name="torchtitan", gated=3, master_is_weights=True, source="torchtitan: FSDP2, compiled layers"
)
"""FSDP2 keeps the fp32 weights as the only copy and gathers them in bf16."""

STACKS: Final = {
    "parlay": PARLAY,
    "megatron": MEGATRON,
    "nemo": MEGATRON,
    "deepspeed": DEEPSPEED,
    "torchtitan": TORCHTITAN,
    "fsdp": TORCHTITAN,
}


def stack_of(name: str) -> Stack:
    """The conventions of a stack; one that is not in the table counts as eager PyTorch."""
    return STACKS.get(name.partition("-")[0].lower(), PARLAY)


def workspace(stack: Stack, gpu: Gpu, *, unfused: bool) -> int:
    """Bytes that libraries allocate once on one GPU; `unfused` is of its attention."""
    if gpu.fp8_flops is not None:
        return stack.modern_workspace_bytes
    return stack.workspace_bytes + (stack.unfused_workspace_bytes if unfused else 0)
