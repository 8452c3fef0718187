"""What software keeps for the backward, by stack: one row a stack, each with its reason.

`train.stack` names whose software is priced, in front of `-` and words. A generation is no matter
of memory (`megatron-2024`); the words of `OPTIONS` are (`megatron-2025-deterministic`): each is a
setting of that software which the recipe has no field for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

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
    for the gradient of the router, `weighed_product` whether a plain activation's product is kept
    once more for it, `wide_router` whether the router keeps its input in fp32. `operators` says
    that a bare selective recompute chooses by operator (`operators.py`), `libraries` that
    workspaces, masks and the allocator's rounding are counted (`libraries.py`), `traced` that the
    backward is followed operator by operator (`backward.py`), and tables of positions and messages
    between stages are counted. `masks`, `deterministic`, `local` and `sequential` are words of
    `OPTIONS`.
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
    weighed_product: bool = False
    wide_router: bool = False
    final_norm: bool = True
    master_is_weights: bool = False
    operators: bool = False
    weight_gradient: bool = True
    libraries: bool = False
    masks: bool = False
    deterministic: bool = False
    local: bool = False
    sequential: bool = False
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
    expert_output=False,
    weighed_product=True,
    wide_router=True,
    weight_gradient=False,
    libraries=True,
    source="Megatron-LM; arXiv:2205.05198, section 4",
)
"""A fused activation keeps gate, up and product; the loss always runs through its own kernel.

Experts' probabilities multiply the activation, not the output: a plain activation's product is kept
before and after, a gated one's in the fused kernel alone (megatron/core/transformer/moe).
"""

DEEPSPEED: Final = Stack(name="deepspeed", source="DeepSpeed, eager PyTorch")
TORCHTITAN: Final = Stack(
    name="torchtitan",
    gated=3,
    master_is_weights=True,
    operators=True,
    loss_transient=12,
    source="torchtitan: FSDP2, compiled layers",
)
"""FSDP2 keeps the fp32 weights as the only copy and gathers them in bf16. Over tp the loss is
PyTorch's loss_parallel: its backward has the log-softmax, a gradient of zeros and ones, the
exponentials and their sum, each in fp32, at once (torch/distributed/tensor/parallel/loss.py)."""

LLMFOUNDRY: Final = Stack(
    name="llmfoundry",
    master_is_weights=True,
    loss_saved=2,
    loss_transient_alone=2,
    source="llm-foundry: FSDP, fused loss on 16-bit logits",
)
"""As torchtitan's, but eager, with a loss whose kernel keeps the logits as they are."""

STACKS: Final = {
    "parlay": PARLAY,
    "megatron": MEGATRON,
    "nemo": MEGATRON,
    "bridge": MEGATRON,
    "deepspeed": DEEPSPEED,
    "torchtitan": TORCHTITAN,
    "fsdp": TORCHTITAN,
    "llmfoundry": LLMFOUNDRY,
}

OPTIONS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "megatron": {
            "deterministic": {"deterministic": True},
            "local": {"local": True},
            "fused_loss": {"loss_saved": 8},
            "masks": {"masks": True},
            "sequential": {"sequential": True},
        },
        "torchtitan": {"fused_loss": {"loss_saved": 2, "loss_transient_alone": 2}},
    }
)
"""Words of a stack, by the option of Megatron-LM that each stands for:

deterministic   `--deterministic-mode`, with the cuBLAS workspace and the kernels that it asks for
local           `--transformer-impl local`: without Transformer Engine
fused_loss      `--cross-entropy-loss-fusion`: fp32 logits are kept beside their exponentials
masks           attention masks made in the data loader, as is the default
sequential      without `--moe-grouped-gemm`: experts one after another

and of torchtitan:

fused_loss      the loss compiled too, as since 2025: 16-bit logits are kept, and their gradient
"""


@cache
def stack_of(name: str) -> Stack:
    """The conventions of a stack; one that is not in the table counts as eager PyTorch."""
    first, *words = name.lower().split("-")
    stack = STACKS.get(first, PARLAY)
    known = OPTIONS.get(stack.name, {})
    given: dict[str, Any] = {}
    for word in words:
        given |= known.get(word, {})
    return replace(stack, **given)


def transposed(stack: Stack, gpu: Gpu, *, cp: int) -> bool:
    """Whether flash attention keeps its output in its own order beside the layer's.

    Transformer Engine takes cuDNN's kernels, which work on the layer's order; FlashAttention-2,
    which has the batch first, takes their place before Hopper, and since Blackwell where
    determinism is asked for. Context parallelism has kernels of its own.
    """
    if not stack.libraries or stack.local or cp > 1:
        return False
    return gpu.fp8_flops is None or (gpu.fp4_flops is not None and stack.deterministic)
