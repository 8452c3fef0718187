"""Floating-point work of training, by a stated convention."""

from __future__ import annotations

from parlay.compiler.ledger import parameters
from parlay.compiler.spec.blocks import Gpu, Model, Spec

CONVENTION = (
    "6 x matrix parameters with the head, without the input embedding, active experts alone, "
    "plus 12 x layers x heads x head_dim x seq (attention over the full square)"
)
FROZEN = "4 x (no weight gradients, LoRA; what adapters compute is left out)"
WINDOWED = "attention over the full square; with a window over twice what it leaves"


def convention(spec: Spec) -> str:
    """What is counted for `spec`, in words."""
    model, train = spec.model, spec.train
    words = CONVENTION
    if train is not None and train.lora is not None:
        words = words.replace("6 x", FROZEN)
    if model is not None and train is not None and seen(model, train.seq) < 0.5:
        words = words.replace("attention over the full square", WINDOWED)
    return words


def seen(model: Model, seq: int) -> float:
    """The share of the scores that a causal mask and windows leave, in the mean over the layers.

    Half of the square; of w tokens in a sequence of s, w/s · (1 - w/2s).
    """
    window = model.window
    if window is None or window["size"] >= seq:
        return 0.5
    every, size = window["every"], window["size"]
    whole = model.layers // every if every > 1 else 0
    narrow = size / seq * (1 - size / (2 * seq))
    return float((whole * 0.5 + (model.layers - whole) * narrow) / model.layers)


def per_token(spec: Spec, *, causal: bool = False) -> float:
    """Model FLOPs of one token, forward and backward, as `convention` says.

    6·N + 12·L·a·d·s (arXiv:2104.04473, appendix, without recompute); `causal` counts the half of
    the square that a causal mask leaves. Of a window both count less. A frozen base has no
    gradients of its weights, a third of the products with them: 4·N.
    """
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    attention = 12 * model.layers * model.heads * model.head_dim * train.seq
    if (share := seen(model, train.seq)) < 0.5:
        attention = round(attention * 2 * share)
    each = 4 if train.lora is not None else 6
    return float(each * parameters.matrix_parameters(model) + attention / (2 if causal else 1))


def peak(gpu: Gpu, precision: str) -> float | None:
    """The dense peak of one GPU at a precision, None where the catalog and the file have none."""
    by_precision = {
        "fp32": gpu.fp32_flops,
        "fp16": gpu.fp16_flops,
        "bf16": gpu.bf16_flops,
        "fp8": gpu.fp8_flops,
        "mxfp8": gpu.fp8_flops,
        "nvfp4": gpu.fp4_flops,
    }
    return by_precision.get(precision)
