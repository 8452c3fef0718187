"""Layers of experts: what every layout of them computes and sends, and faults that are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from .proving import Edit, par, plan_changed, prove, replaced  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def model(experts: str = "", more: str = "") -> str:
    sizes = "layers = 4, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000"
    count = "" if "top_k" in experts else "top_k = 2, "
    return f"model {{ {sizes} {more}, experts {{ count = 8, ffn = 96, {count}{experts} }} }}"


OSS = (
    "model { layers = 4, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000, "
    "activation = quick_geglu, glu_clamp = 7, glu_offset = 1, bias = [qkv, out, mlp, router], "
    "sinks = on, window(size = 16, every = 2), rope_scaling = yarn(factor = 32, original = 4096), "
    "experts { count = 8, ffn = 96, top_k = 2 } }"
)
GROUPS = "router = sigmoid, router_bias = on, groups = 4, top_groups = 2, top_k = 4"

LAYOUTS = {
    "one process, every second layer": par(
        model=model("every = 2, aux_loss = 0.01, router_bias = on", ", activation = relu2"),
        train="recompute = selective(activation)",
    ),
    "ep 2": par("dp = 2, ep = 2", gpus=2, model=model()),
    "ep 4 of dp 4, groups, a correction": par(
        "dp = 4, ep = 4, zero = 1", gpus=4, model=model(GROUPS)
    ),
    "ep 2, tp 2, two ranks with the same experts, ZeRO-1": par(
        "tp = 2, dp = 2, ep = 2, zero = 1", gpus=4, model=model("aux_loss = 0.01, shared = 1")
    ),
    "etp 2, ep 2, layers computed again": par(
        "tp = 2, dp = 2, ep = 2, etp = 2",
        gpus=4,
        model=model("shared = 2, dense_layers = 1, normalize = off, scale = 2.5, z_loss = 0.01"),
        train="recompute = full, precision = bf16",
    ),
    "pp 2, ep 2, chunks, a dense layer, a gate": par(
        "pp = 2, dp = 2, ep = 2, schedule = interleaved(chunks = 2)",
        gpus=4,
        model=model("shared = 1, shared_gate = on, dense_layers = 1, aux_loss = 0.1"),
        train="recompute = selective(experts)",
    ),
    "ep 4 above dp 2": par("tp = 2, dp = 2, ep = 4", gpus=4, model=model()),
    "ZeRO-2, ep 2 of dp 4": par("dp = 4, ep = 2, zero = 2", gpus=4, model=model("shared = 1")),
    "ZeRO-3, tp 2": par(
        "tp = 2, dp = 2, ep = 2, zero = 3",
        gpus=4,
        model=model("router = sigmoid, router_bias = on"),
        train="recompute = full",
    ),
    "all axes, stages before replicas": par(
        "tp = 2, pp = 2, dp = 2, ep = 2, etp = 2, order = [tp, pp, ep, dp]",
        gpus=8,
        model=model(),
    ),
    "cp 2, pp 2, sequences over ranks that hold other experts": par(
        "cp = 2, pp = 2, ep = 2", gpus=4, model=model("aux_loss = 0.01, z_loss = 0.01")
    ),
    "gpt-oss: biases, clamped gates, ep 2, etp 2, ZeRO-1": par(
        "tp = 2, dp = 2, ep = 2, etp = 2, zero = 1", gpus=4, model=OSS
    ),
    "two copies of the state, experts of one rank in each": par(
        "dp = 4, ep = 2, zero = 1, shard = 2", gpus=4, model=model("aux_loss = 0.01")
    ),
    "two copies, experts of two ranks in each, tp 2, ZeRO-1": par(
        "tp = 2, dp = 4, ep = 2, zero = 1, shard = 2", gpus=8, model=model("shared = 1")
    ),
    "two copies, stages, etp 2, ZeRO-2, gpt-oss beside shared experts": par(
        "pp = 2, dp = 4, etp = 2, zero = 2, shard = 2",
        gpus=8,
        model=OSS.replace("count = 8", "count = 8, shared = 1, dense_layers = 1, z_loss = 0.01"),
    ),
    "two copies, experts of two ranks in each, ZeRO-3": par(
        "dp = 8, ep = 2, zero = 3, shard = 4",
        gpus=8,
        model=OSS,
        train="recompute = selective(activation)",
    ),
    "weight gradients put off": par(
        "pp = 2, dp = 2, ep = 2, schedule = zero_bubble", gpus=4, model=model("shared = 1")
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    assert result["gradients"]["compared"] > 0 and result["weights"]["compared"] > 0
    routes = [row for row in result["collectives"]["rows"] if row["group"] == "ep"]
    assert bool(routes) == ("ep =" in LAYOUTS[name])


# ── Faults ────────────────────────────────────────────────────────────────────

COPIED = par("dp = 4, ep = 2", gpus=4, model=model("aux_loss = 0.1, shared = 1"))
STEERED = par(
    "dp = 2, ep = 2", gpus=2, model=model("router = sigmoid, router_bias = on, z_loss = 0.1")
)


def more_rows(plan: dict[str, Any]) -> None:
    row = next(
        row for row in plan["collectives"] if row["group"] == "ep" and row["dtype"] != "int64"
    )
    row["bytes"] += row["bytes"] // 8


def chosen(change: str) -> Edit:
    """The weights of the chosen experts, changed."""
    new = f"visit(tokens, chosen._replace(weights={change}), "
    return replaced("model.py", "visit(tokens, chosen, ", new)


COPIES = par("dp = 4, ep = 2, zero = 1, shard = 2", gpus=4, model=model("shared = 1"))
BIASED = par("dp = 2, ep = 1, etp = 2", gpus=2, model=OSS)

FAULTS: dict[str, tuple[str, Edit, set[str]]] = {
    "combined without weights": (
        COPIED,
        chosen("torch.ones_like(chosen.weights)"),
        {"loss", "gradients"},
    ),
    "no gradient of the router": (COPIED, chosen("chosen.weights.detach()"), {"gradients"}),
    "experts summed over all replicas": (
        COPIED,
        replaced("train.py", "experts.all_reduce(axis=mesh.edp", "experts.all_reduce(axis=mesh.dp"),
        {"gradients", "weights", "collectives"},
    ),
    "an auxiliary loss for each replica's microbatches": (
        COPIED,
        replaced(
            "model.py",
            "plan.batch.micro_batch / plan.batch.global_batch",
            "1 / plan.batch.microbatches",
        ),
        {"gradients"},
    ),
    "logits that no loss keeps small": (
        STEERED,
        replaced("model.py", "size=share * e.z_loss", "size=0.0"),
        {"gradients"},
    ),
    "a norm that counts experts twice": (
        COPIED,
        replaced("train.py", ", experts=job.mesh.edp", ""),
        {"norm", "weights"},
    ),
    "rows of an eighth more predicted": (COPIED, plan_changed(more_rows), {"collectives"}),
    "other experts dealt out": (
        COPIED,
        replaced("mesh.py", 'EXPERT_ORDER = ("ep", "edp")', 'EXPERT_ORDER = ("edp", "ep")'),
        {"collectives"},
    ),
    "copies of experts that are not summed": (
        COPIES,
        replaced(
            "train.py",
            "    job.gradients.experts.all_reduce("
            "axis=mesh.replicate, bucket=job.plan.buckets.gradients)\n",
            "",
        ),
        {"gradients", "weights", "collectives"},
    ),
    "a norm that counts copies of experts": (
        COPIES,
        replaced("train.py", ", experts=job.mesh.replicate", ""),
        {"norm", "weights"},
    ),
    "gates that are not clamped": (
        BIASED,
        replaced("model.py", "clamp=self.clamp, ", ""),
        {"loss", "gradients"},
    ),
    "biases of other features than the rank's own": (
        BIASED,
        replaced("model.py", "summed=mesh.etp)", "summed=mesh.etp)\n        self.down.first = 0"),
        {"gradients"},
    ),
    "a router that leaves its bias out": (
        BIASED,
        replaced("model.py", "self.router.bias, ", ""),
        {"gradients"},
    ),
    "a correction that stays": (
        STEERED,
        replaced("train.py", "optimizer.steer = Steer.of(plan)", "optimizer.steer = Steer(0, 0)"),
        {"weights"},
    ),
}


def failed(result: dict[str, Any]) -> set[str]:
    kinds = ("loss", "gradients", "norm", "weights")
    found = {kind for kind in kinds if not result[kind]["passed"]}
    return found | (set() if result["collectives"]["match"] else {"collectives"})


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    text, edit, expected = FAULTS[name]
    result = prove(text, tmp_path, edit=edit)
    assert not result["passed"]
    assert expected <= failed(result), (failed(result), result["failures"], result["detail"])


def swapped(exchange: Callable[..., Any]) -> Callable[..., Any]:
    """What two ranks sent, taken for each other's."""

    def exchanged(x: Any, sent: list[int], received: list[int], axis: Any) -> Any:
        out = exchange(x, sent, received, axis)
        first, second = out.split(received)
        return torch.cat([second, first])

    return exchanged


def test_split_sizes_in_another_order_are_caught(tmp_path: Path) -> None:
    from parlay.runtime import experts

    with mock.patch.object(experts, "_exchange", swapped(experts._exchange)):
        result = prove(par("dp = 2, ep = 2", gpus=2, model=model()), tmp_path)
    assert {"loss", "gradients"} <= failed(result), (result["failures"], result["detail"])
