"""Multi-head latent attention of the plain model against `transformers`' DeepSeek-V3 without
experts: weights, logits and gradients in float64.

Its rotated features lie in pairs (2i, 2i + 1), ours in (i, i + r/2): the rows that make them are
put in our order.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from parlay.reference.model import Config  # noqa: E402

from .test_families import (  # noqa: E402
    BEFORE,
    LLAMA_LIKE,
    OURS,
    SIZES,
    compare,
    exact,
    renamed,
    scattered,
)

pytestmark = pytest.mark.slow

KV_RANK, NOPE, ROPE, V = 20, 10, 6, 9


def in_halves(rows: torch.Tensor, first: int) -> torch.Tensor:
    """Rows from `first` on: those of even place, then those of odd place."""
    kept, turned = rows[:first], rows[first:]
    return torch.cat([kept, turned[0::2], turned[1::2]])


def weights(model, of) -> dict[str, torch.Tensor]:
    names = {
        "q_a_layernorm": "q_norm",
        "kv_a_layernorm": "kv_norm",
        "q_a_proj": "q_down",
        "q_b_proj": "q_up",
        "kv_a_proj_with_mqa": "kv_down",
        "kv_b_proj": "kv_up",
        **LLAMA_LIKE,
        **BEFORE,
    }
    found = renamed(names, model, of)
    for name, rows in found.items():
        if ".q_up." in name or ".q.weight" in name:
            heads = rows.unflatten(0, (6, NOPE + ROPE))
            found[name] = torch.cat([in_halves(head, NOPE) for head in heads])
        elif ".kv_down." in name:
            found[name] = in_halves(rows, KV_RANK)
    return found


@pytest.mark.parametrize("q_rank", [14, None])
def test_deepseek_v3(q_rank: int | None) -> None:
    biased = q_rank is not None
    model = transformers.DeepseekV3ForCausalLM(
        transformers.DeepseekV3Config(
            **SIZES,
            num_key_value_heads=6,
            intermediate_size=80,
            q_lora_rank=q_rank,
            kv_lora_rank=KV_RANK,
            qk_nope_head_dim=NOPE,
            qk_rope_head_dim=ROPE,
            v_head_dim=V,
            first_k_dense_replace=3,
            attention_bias=biased,
            rms_norm_eps=1e-6,
            num_mtp_layers=0,
            attn_implementation="sdpa",
        )
    )
    mla = {"q_rank": q_rank, "kv_rank": KV_RANK, "nope_dim": NOPE, "rope_dim": ROPE, "v_dim": V}
    config = Config(
        **OURS,
        kv_heads=6,
        ffn=80,
        norm_eps=1e-6,
        bias=["qkv", "out"] if biased else [],
        mla=mla,
    )
    compare(exact(scattered(model), theta=10000.0, width=ROPE), config, weights)
