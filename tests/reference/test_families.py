"""More of the plain model held against `transformers`, a family a test: weights, logits, gradients.

`transformers` goes through float32 in rotary angles, RMS norms and caps; where it does, these are
replaced by the same in float64 or the limit is wider.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

from parlay.reference import attention  # noqa: E402
from parlay.reference.model import Config, logits, loss_sum, shapes  # noqa: E402

pytestmark = pytest.mark.slow

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "vocab_size": 97,
    "initializer_range": 0.3,
}
OURS = {"layers": 3, "hidden": 48, "heads": 6, "head_dim": 8, "vocab": 97}


class Turning(torch.nn.Module):
    """Cosines and sines [b, s, d] in float64."""

    def __init__(self, *, theta: float, width: int) -> None:
        super().__init__()
        self.theta, self.width = theta, width

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, *_) -> tuple[torch.Tensor, ...]:
        even = torch.arange(0, self.width, 2).double()
        angle = position_ids[..., None].double() / self.theta ** (even / self.width)
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()


class Norm(torch.nn.Module):
    """An RMS norm in float64; `shift` is 1 where the weight is kept as its distance from 1."""

    def __init__(self, weight: torch.nn.Parameter, *, eps: float, shift: float) -> None:
        super().__init__()
        self.weight, self.eps, self.shift = weight, eps, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = x.shape[-1:]
        return torch.nn.functional.rms_norm(x, width, self.weight + self.shift, self.eps)


def exact(model, *, theta: float, width: int, shift: float = 0.0):
    """The same model with angles and RMS norms in float64."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                eps = getattr(child, "variance_epsilon", None) or child.eps
                setattr(parent, name, Norm(child.weight, eps=eps, shift=shift))
    getattr(model, model.base_model_prefix).rotary_emb = Turning(theta=theta, width=width)
    return model


def scattered(model):
    """Float64, with norms and biases that are not all alike."""
    torch.manual_seed(3)
    model = model.double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.2 * torch.randn_like(weight))
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    tokens, labels = torch.randint(97, (2, 3, 24))
    labels[0, :7] = labels[2, 3:] = -100
    return tokens, labels


def compare(model, config: Config, weights_of, *, limit: float = 1e-12) -> None:
    """`weights_of(model, of)`: `of` each parameter, itself or its gradient, by our names."""
    tokens, labels = batch()
    theirs = model(tokens).logits
    torch.nn.functional.cross_entropy(
        theirs.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    ).backward()
    leaves = {
        name: weight.detach().clone().requires_grad_()
        for name, weight in weights_of(model, lambda p: p).items()
    }
    assert {name: tuple(leaf.shape) for name, leaf in leaves.items()} == shapes(config)
    ours = logits(config, leaves, tokens)
    assert (ours - theirs).abs().max() <= limit * theirs.abs().max()
    loss_sum(ours, labels).backward()
    gradients = weights_of(model, lambda p: p.grad)
    largest = max(gradient.abs().max() for gradient in gradients.values())
    for name, gradient in gradients.items():
        off = (leaves[name].grad - gradient).abs().max()
        assert off <= limit * max(gradient.abs().max(), 1e-3 * largest), name


def renamed(names: dict[str, str], model, of) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        found[name] = of(parameter)
    return found


LLAMA_LIKE = {
    "model.embed_tokens": "embedding",
    "model.layers": "layers",
    "model.norm": "norm",
    "lm_head": "head",
    "self_attn.": "attention.",
    "_proj": "",
}
BEFORE = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}


def test_gpt_neox() -> None:
    """Partial rotary, attention and MLP side by side, biases everywhere but in the head."""
    model = scattered(
        transformers.GPTNeoXForCausalLM(
            transformers.GPTNeoXConfig(
                **SIZES,
                intermediate_size=80,
                hidden_act="gelu",
                rotary_pct=0.5,
                use_parallel_residual=True,
                hidden_dropout=0.0,
                attention_dropout=0.0,
                attn_implementation="sdpa",
            )
        )
    )
    model.gpt_neox.rotary_emb = Turning(theta=10000.0, width=4)
    config = Config(
        **OURS,
        kv_heads=6,
        ffn=80,
        norm="layernorm",
        norm_bias=True,
        activation="gelu",
        rope_partial=0.5,
        parallel_blocks=True,
        bias=["qkv", "out", "mlp"],
    )

    def weights(model, of):
        names = {
            "gpt_neox.embed_in": "embedding",
            "gpt_neox.layers": "layers",
            "gpt_neox.final_layer_norm": "norm",
            "lm_head": "head",
            "embed_out": "head",
            "attention.dense": "attention.o",
            "dense_h_to_4h": "up",
            "dense_4h_to_h": "down",
            **BEFORE,
        }
        found = {}
        for name, tensor in renamed(names, model, of).items():
            if "query_key_value" not in name:
                found[name] = tensor
                continue
            # The q, k and v of a head stand together.
            parts = tensor.unflatten(0, (6, 3, 8)).unbind(1)
            for part, each in zip("qkv", parts, strict=True):
                found[name.replace("query_key_value", part)] = each.flatten(0, 1)
        return found

    compare(model, config, weights)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_qwen3(kv_heads: int) -> None:
    """A norm of each query and key head."""
    model = scattered(
        transformers.Qwen3ForCausalLM(
            transformers.Qwen3Config(
                **SIZES,
                num_key_value_heads=kv_heads,
                head_dim=8,
                intermediate_size=80,
                rms_norm_eps=1e-5,
                tie_word_embeddings=False,
                attn_implementation="sdpa",
            )
        )
    )
    config = Config(**OURS, kv_heads=kv_heads, ffn=80, qk_norm="per_head")
    compare(exact(model, theta=10000.0, width=8), config, llama_like(BEFORE))


def test_qwen2() -> None:
    """Biases of query, key and value alone."""
    model = scattered(
        transformers.Qwen2ForCausalLM(
            transformers.Qwen2Config(
                **SIZES,
                num_key_value_heads=2,
                intermediate_size=80,
                rms_norm_eps=1e-5,
                tie_word_embeddings=True,
                attn_implementation="sdpa",
            )
        )
    )
    config = Config(**OURS, kv_heads=2, ffn=80, bias=["qkv"], tied_embeddings=True)
    compare(exact(model, theta=10000.0, width=8), config, llama_like(BEFORE))


def test_olmo2() -> None:
    """Norms of outputs alone, and of all queries and keys together."""
    model = scattered(
        transformers.Olmo2ForCausalLM(
            transformers.Olmo2Config(
                **SIZES,
                num_key_value_heads=2,
                intermediate_size=80,
                rms_norm_eps=1e-5,
                tie_word_embeddings=False,
                attn_implementation="sdpa",
            )
        )
    )
    config = Config(**OURS, kv_heads=2, ffn=80, norm_placement="after", qk_norm="full")
    names = {
        "post_attention_layernorm": "attention_post_norm",
        "post_feedforward_layernorm": "mlp_post_norm",
    }
    compare(exact(model, theta=10000.0, width=8), config, llama_like(names))


@pytest.mark.parametrize(
    ("theirs", "ours"), [("gelu", "geglu"), ("gelu_pytorch_tanh", "geglu_tanh")]
)
def test_gemma2(theirs: str, ours: str) -> None:
    """Norms of inputs and outputs, caps, a window in every other layer, a gated gelu.

    Gemma multiplies the embedding by the square root of the width, which is undone here, and keeps
    the distance of norm weights from 1.
    """
    model = scattered(
        transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(
                **SIZES,
                num_key_value_heads=2,
                head_dim=8,
                query_pre_attn_scalar=8,
                intermediate_size=80,
                rms_norm_eps=1e-5,
                hidden_activation=theirs,
                sliding_window=5,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                attn_logit_softcapping=2.0,
                final_logit_softcapping=3.0,
                tie_word_embeddings=True,
                attn_implementation="eager",
            )
        )
    )
    model.model.embed_tokens.embed_scale.fill_(1.0)
    if hasattr(model.model.embed_tokens, "scalar_embed_scale"):
        model.model.embed_tokens.scalar_embed_scale = 1.0
    config = Config(
        **OURS,
        kv_heads=2,
        ffn=80,
        activation=ours,
        norm_placement="both",
        softcap_attention=2.0,
        softcap_logits=3.0,
        window_size=5,
        window_every=2,
        tied_embeddings=True,
    )
    names = {
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "attention_post_norm",
        "pre_feedforward_layernorm": "mlp_norm",
        "post_feedforward_layernorm": "mlp_post_norm",
    }
    named = llama_like(names)

    def weights(model, of):
        found = named(model, of)
        if of(model.model.norm.weight) is model.model.norm.weight:
            found |= {n: w + 1.0 for n, w in found.items() if "norm" in n}
        return found

    # The eager attention takes its softmax in float32.
    compare(exact(model, theta=10000.0, width=8, shift=1.0), config, weights, limit=1e-4)


def test_mistral() -> None:
    """A window in every layer."""
    model = scattered(
        transformers.MistralForCausalLM(
            transformers.MistralConfig(
                **SIZES,
                num_key_value_heads=2,
                intermediate_size=80,
                rms_norm_eps=1e-5,
                sliding_window=5,
                attn_implementation="sdpa",
            )
        )
    )
    config = Config(**OURS, kv_heads=2, ffn=80, window_size=5)
    compare(exact(model, theta=10000.0, width=8), config, llama_like(BEFORE))


def test_bloom() -> None:
    """Scores that fall with the distance, and a norm of the embedding."""
    sizes = {"n_layer": 3, "n_head": 6, "vocab_size": 97, "initializer_range": 0.3}
    model = scattered(
        transformers.BloomForCausalLM(transformers.BloomConfig(**sizes, hidden_size=48))
    )
    config = Config(
        **OURS,
        kv_heads=6,
        ffn=192,
        norm="layernorm",
        norm_bias=True,
        activation="gelu_tanh",
        position="alibi",
        embedding_norm=True,
        bias=["qkv", "out", "mlp"],
        tied_embeddings=True,
    )

    def weights(model, of):
        names = {
            "transformer.word_embeddings_layernorm": "embedding_norm",
            "transformer.word_embeddings": "embedding",
            "transformer.h.": "layers.",
            "transformer.ln_f": "norm",
            "self_attention.dense": "attention.o",
            "self_attention.query_key_value": "attention.query_key_value",
            "dense_h_to_4h": "up",
            "dense_4h_to_h": "down",
            **BEFORE,
        }
        found = {}
        for name, tensor in renamed(names, model, of).items():
            if "query_key_value" not in name:
                found[name] = tensor
                continue
            parts = tensor.unflatten(0, (6, 3, 8)).unbind(1)
            for part, each in zip("qkv", parts, strict=True):
                found[name.replace("query_key_value", part)] = each.flatten(0, 1)
        return found

    # The slopes and the softmax come through float32.
    compare(model, config, weights, limit=1e-4)


def test_stretched_positions() -> None:
    """Rotary positions that lie four times as close together."""
    model = scattered(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                **SIZES,
                num_key_value_heads=2,
                intermediate_size=80,
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
                attn_implementation="sdpa",
            )
        )
    )
    config = Config(**OURS, kv_heads=2, ffn=80, rope_scaling=4.0)
    compare(model, config, llama_like(BEFORE), limit=1e-4)  # angles and norms come through float32


def test_sinks() -> None:
    """The attention of gpt-oss, whose experts the plain model has not."""
    gpt_oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    made = transformers.GptOssConfig(**SIZES, num_key_value_heads=2, head_dim=8, sliding_window=5)
    theirs = gpt_oss.GptOssAttention(made, 0).double().eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(std=0.3)
    weights = renamed({"_proj": ""}, theirs, lambda p: p)
    config = Config(
        **OURS, kv_heads=2, ffn=80, window_size=5, window_every=2, sinks=True, bias=["qkv", "out"]
    )
    x = torch.randn(3, 24, 48).double()
    cos, sin = (one[..., :4] for one in Turning(theta=10000.0, width=8)(x, torch.arange(24)[None]))
    behind = torch.arange(24)[:, None] - torch.arange(24)
    mask = torch.zeros(24, 24).double().masked_fill((behind < 0) | (behind >= 5), -torch.inf)
    expected, _ = theirs(x, (cos, sin), mask[None, None])
    named = {f"layers.0.attention.{name}": weight for name, weight in weights.items()}
    ours = attention.attention(config, named, 0, x)
    assert (ours - expected).abs().max() <= 1e-12 * expected.abs().max()


def llama_like(names: dict[str, str]):
    return lambda model, of: renamed({**LLAMA_LIKE, **names}, model, of)
