"""The plain mixture of experts held against `transformers`: whole models, the block of
DeepSeek-V3 with its groups and its correction, and the auxiliary loss.

`transformers` makes routers' probabilities in float32; here they are made in float64.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

from parlay.reference.experts import Experts, mixture  # noqa: E402
from parlay.reference.model import Beside, Config, logits, shapes  # noqa: E402

from tests.reference.test_families import (  # noqa: E402
    BEFORE,
    LLAMA_LIKE,
    OURS,
    SIZES,
    Turning,
    batch,
    compare,
    exact,
    renamed,
    scattered,
)

pytestmark = pytest.mark.slow

ROUTED = {"mlp.gate.weight": "mlp.router.weight", **LLAMA_LIKE, **BEFORE}
LAYER = {"count": 8, "top_k": 2, "ffn": 40}


def weights(model, of) -> dict[str, torch.Tensor]:
    """As `transformers` has them; gate and up of all experts are one weight there."""
    found = {}
    for name, parameter in renamed(ROUTED, model, of).items():
        if name.endswith("experts.gate_up"):
            gate, up = parameter.chunk(2, dim=1)
            found[name.replace("gate_up", "gate.weight")] = gate
            found[name.replace("gate_up", "up.weight")] = up
        elif name.endswith("experts.down"):
            found[f"{name}.weight"] = parameter
        else:
            name = name.replace("shared_expert_gate", "shared_experts.router")
            found[name.replace("shared_expert.", "shared_experts.")] = parameter
    return found


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """Inside, what asks for float32 has float64."""
    softmax, to = torch.nn.functional.softmax, torch.Tensor.to
    as_wide = {"dtype": torch.float64}

    def cast(self, *args, **kwargs):
        args = tuple(torch.float64 if one is torch.float32 else one for one in args)
        return to(self, *args, **kwargs)

    with (
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
        mock.patch.object(torch.Tensor, "type", cast),
        mock.patch.object(
            torch.nn.functional, "softmax", lambda x, dim=-1, **_: softmax(x, dim, **as_wide)
        ),
    ):
        yield


def test_mixtral() -> None:
    """A mixture in every layer, whose weights are a softmax over the chosen experts."""
    model = scattered(
        transformers.MixtralForCausalLM(
            transformers.MixtralConfig(
                **SIZES,
                num_key_value_heads=2,
                intermediate_size=40,
                num_local_experts=8,
                num_experts_per_tok=2,
                rms_norm_eps=1e-5,
                rope_theta=10000.0,
                tie_word_embeddings=False,
                attn_implementation="sdpa",
                experts_implementation="eager",
            )
        )
    )
    config = Config(**OURS, kv_heads=2, ffn=1, experts=Experts(**LAYER))
    with wide():
        compare(exact(model, theta=10000.0, width=8), config, weights)


def test_qwen3_moe() -> None:
    """The same with a plain MLP in every second layer, and norms of heads."""
    model = scattered(
        transformers.Qwen3MoeForCausalLM(
            transformers.Qwen3MoeConfig(
                **SIZES,
                num_key_value_heads=2,
                head_dim=8,
                intermediate_size=80,
                moe_intermediate_size=40,
                num_experts=8,
                num_experts_per_tok=2,
                decoder_sparse_step=2,
                norm_topk_prob=True,
                rms_norm_eps=1e-5,
                rope_theta=10000.0,
                tie_word_embeddings=False,
                attn_implementation="sdpa",
                experts_implementation="eager",
            )
        )
    )
    experts = Experts(**LAYER, every=2)
    config = Config(**OURS, kv_heads=2, ffn=80, qk_norm="per_head", experts=experts)
    with wide():
        compare(exact(model, theta=10000.0, width=8), config, weights)


def test_qwen2_moe() -> None:
    """Shared experts behind a gate of their own."""
    model = scattered(
        transformers.Qwen2MoeForCausalLM(
            transformers.Qwen2MoeConfig(
                **SIZES,
                num_key_value_heads=2,
                intermediate_size=80,
                moe_intermediate_size=40,
                shared_expert_intermediate_size=56,
                num_experts=8,
                num_experts_per_tok=3,
                mlp_only_layers=[0],
                norm_topk_prob=False,
                rms_norm_eps=1e-5,
                rope_theta=10000.0,
                tie_word_embeddings=False,
                attn_implementation="sdpa",
                experts_implementation="eager",
            )
        )
    )
    experts = Experts(
        count=8, top_k=3, ffn=40, dense_layers=1, shared_ffn=56, shared_gate=True, normalize=False
    )
    config = Config(**OURS, kv_heads=2, ffn=80, bias=["qkv"], experts=experts)
    with wide():
        compare(exact(model, theta=10000.0, width=8), config, weights)


def test_deepseek_v3_block() -> None:
    """Sigmoids, a correction that the choice alone reads, and half of the groups open."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    config = transformers.DeepseekV3Config(
        hidden_size=48,
        moe_intermediate_size=40,
        n_routed_experts=16,
        num_experts_per_tok=4,
        n_shared_experts=2,
        n_group=4,
        topk_group=2,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
    )
    torch.manual_seed(5)
    block = DeepseekV3MoE(config).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    correction = 0.2 * torch.randn(16, dtype=torch.float64)
    block.gate.e_score_correction_bias = correction
    x = torch.randn(3, 24, 48, dtype=torch.float64)
    with wide():
        theirs = block(x)
    gate, up = block.experts.gate_up_proj.chunk(2, dim=1)
    named = {
        "router.weight": block.gate.weight,
        "router.correction": correction,
        "experts.gate.weight": gate,
        "experts.up.weight": up,
        "experts.down.weight": block.experts.down_proj,
        **{
            f"shared_experts.{part}.weight": getattr(block.shared_experts, f"{part}_proj").weight
            for part in ("gate", "up", "down")
        },
    }
    experts = Experts(
        count=16,
        top_k=4,
        ffn=40,
        shared_ffn=80,
        router="sigmoid",
        router_bias=True,
        groups=4,
        top_groups=2,
        scale=2.5,
    )
    visits: list[torch.Tensor] = []

    def inner(gate, up):
        return torch.nn.functional.silu(gate) * up

    ours = mixture(experts, named.get, x, inner=inner, losses=[], visits=visits)
    assert (ours - theirs).abs().max() <= 1e-12 * theirs.abs().max()
    _, _, chosen = block.gate(x)
    assert visits[0].tolist() == torch.bincount(chosen.flatten(), minlength=16).tolist()
    # Without the correction, and with all groups open, others are chosen.
    for change in ({"router.correction": None}, {}):
        other = experts if change else Experts(**{**vars(experts), "top_groups": 4})
        found: list[torch.Tensor] = []
        weight_of = {**named, **change}.get
        mixture(other, weight_of, x, inner=inner, losses=[], visits=found)
        assert found[0].tolist() != visits[0].tolist()


def test_the_auxiliary_loss() -> None:
    """Of one layer, where theirs counts each of `top_k` choices as a whole one."""
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    experts = Experts(**LAYER, aux_loss=0.25)
    config = Config(**{**OURS, "layers": 1}, kv_heads=2, ffn=1, experts=experts)
    torch.manual_seed(7)
    named = {name: 0.4 * torch.randn(shape).double() for name, shape in shapes(config).items()}
    tokens, _ = batch()
    beside, seen = Beside(), []

    def seeing(experts, weight_of, x, **more):
        seen.append(x)
        return mixture(experts, weight_of, x, **more)

    with mock.patch("parlay.reference.model.mixture", seeing):
        logits(config, named, tokens, beside)
    points = seen[0].flatten(0, 1) @ named["layers.0.mlp.router.weight"].T
    theirs = load_balancing_loss_func((points,), num_experts=8, top_k=2)
    assert float(beside.losses[0]) == pytest.approx(0.25 * float(theirs) / 2, rel=1e-6)


class Halves(Turning):
    """gpt-oss has an angle for each pair, not for each feature."""

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, *_) -> tuple[torch.Tensor, ...]:
        return tuple(part.chunk(2, dim=-1)[0] for part in super().forward(x, position_ids))


def test_gpt_oss() -> None:
    """Biases of router and experts, clamped gates, sinks, and a window in every second layer."""
    model = scattered(
        transformers.GptOssForCausalLM(
            transformers.GptOssConfig(
                **SIZES,
                num_key_value_heads=2,
                head_dim=8,
                intermediate_size=40,
                num_local_experts=8,
                num_experts_per_tok=2,
                sliding_window=5,
                swiglu_limit=0.8,
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                tie_word_embeddings=False,
                attn_implementation="eager",
                experts_implementation="eager",
            )
        )
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "sinks" in name:
                weight.normal_(std=0.3)
    exact(model, theta=10000.0, width=8).model.rotary_emb = Halves(theta=10000.0, width=8)

    def ours(model, of) -> dict[str, torch.Tensor]:
        found = {}
        for name, parameter in renamed({**LLAMA_LIKE, **BEFORE}, model, of).items():
            if ".experts." not in name:
                found[name] = parameter
                continue
            end = "bias" if name.endswith("_bias") else "weight"
            name = name.removesuffix("_bias")
            each = parameter if end == "bias" else parameter.transpose(1, 2)
            if name.endswith("gate_up"):  # every second row is one of the gate
                found[name.replace("gate_up", f"gate.{end}")] = each[:, ::2]
                found[name.replace("gate_up", f"up.{end}")] = each[:, 1::2]
            else:
                found[f"{name}.{end}"] = each
        return found

    config = Config(
        **OURS,
        kv_heads=2,
        ffn=1,
        activation="quick_geglu",
        glu_clamp=0.8,
        glu_offset=1.0,
        bias=["qkv", "out", "mlp", "router"],
        sinks=True,
        window_size=5,
        window_every=2,
        experts=Experts(**LAYER),
    )
    with wide():
        compare(model, config, ours)
