"""The plain model held against `transformers`: same weights, same logits, same gradients."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

from parlay.reference.model import Config, logits, loss_sum, shapes  # noqa: E402

pytestmark = pytest.mark.slow

SEQ, BATCH = 24, 3


def llama(*, tied: bool, kv_heads: int = 2, bias: bool = False):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=kv_heads,
            head_dim=8,
            vocab_size=97,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
            tie_word_embeddings=tied,
            attention_bias=bias,
            mlp_bias=bias,
            attn_implementation="sdpa",  # `eager` rounds the softmax to float32
            initializer_range=0.3,
        )
    ).double()


def exact(model):
    """The same Llama with angles and norms in float64, where transformers goes through float32."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, transformers.models.llama.modeling_llama.LlamaRMSNorm):
                norm = torch.nn.RMSNorm(len(child.weight), eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)
    model.model.rotary_emb = Turning(theta=500000.0, width=8)
    return model


def llama_weights(model) -> dict[str, torch.Tensor]:
    names = {
        "model.embed_tokens": "embedding",
        "model.norm": "norm",
        "lm_head": "head",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
        "self_attn.": "attention.",
        "_proj": "",
        "model.layers": "layers",
    }
    found = {}
    for name, weight in model.named_parameters():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        found[name] = weight
    return found


class Turning(torch.nn.Module):
    """Llama's cosines and sines [b, s, d] in float64."""

    def __init__(self, *, theta: float, width: int) -> None:
        super().__init__()
        self.theta, self.width = theta, width

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        even = torch.arange(0, self.width, 2).double()
        angle = position_ids[..., None].double() / self.theta ** (even / self.width)
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()


def gpt2():
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=97,
            n_positions=40,
            n_embd=48,
            n_layer=3,
            n_head=4,
            activation_function="gelu_new",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation="eager",
            initializer_range=0.3,
        )
    ).double()


def gpt2_weights(model, *, of=lambda parameter: parameter) -> dict[str, torch.Tensor]:
    """GPT-2 keeps q, k and v in one weight, and all weights transposed."""
    theirs = {name: of(parameter) for name, parameter in model.transformer.named_parameters()}
    found = {
        "embedding.weight": theirs["wte.weight"],
        "position.weight": theirs["wpe.weight"],
        "norm.weight": theirs["ln_f.weight"],
        "norm.bias": theirs["ln_f.bias"],
    }
    for layer in range(model.config.n_layer):
        at = f"layers.{layer}"
        for kind, turn in (("weight", lambda w: w.T), ("bias", lambda w: w)):
            parts = turn(theirs[f"h.{layer}.attn.c_attn.{kind}"]).chunk(3)
            found |= {f"{at}.attention.{n}.{kind}": p for n, p in zip("qkv", parts, strict=True)}
            for ours, name in (
                ("attention.o", "attn.c_proj"),
                ("mlp.up", "mlp.c_fc"),
                ("mlp.down", "mlp.c_proj"),
            ):
                found[f"{at}.{ours}.{kind}"] = turn(theirs[f"h.{layer}.{name}.{kind}"])
            found[f"{at}.attention_norm.{kind}"] = theirs[f"h.{layer}.ln_1.{kind}"]
            found[f"{at}.mlp_norm.{kind}"] = theirs[f"h.{layer}.ln_2.{kind}"]
    return found


def batch(vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    tokens = torch.randint(vocab, (BATCH, SEQ))
    labels = torch.randint(vocab, (BATCH, SEQ))
    labels[0, :7] = labels[2, 3:] = -100
    return tokens, labels


def same(ours: torch.Tensor, theirs: torch.Tensor, *, limit: float = 1e-12) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= limit * theirs.abs().max()


def compare(model, config: Config, weights_of, gradients_of) -> None:
    tokens, labels = batch(config.vocab)
    theirs = model(tokens).logits
    torch.nn.functional.cross_entropy(
        theirs.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    ).backward()
    leaves = {
        name: weight.detach().clone().requires_grad_() for name, weight in weights_of(model).items()
    }
    assert {name: tuple(leaf.shape) for name, leaf in leaves.items()} == shapes(config)
    ours = logits(config, leaves, tokens)
    same(ours, theirs)
    loss_sum(ours, labels).backward()
    for name, gradient in gradients_of(model).items():
        if name.endswith("attention.k.bias"):
            # A constant added to all scores of a query changes nothing: both are rounding.
            assert leaves[name].grad.abs().max() < 1e-12 * leaves["norm.weight"].grad.abs().max()
            continue
        same(leaves[name].grad, gradient)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_llama(tied: bool, kv_heads: int) -> None:
    compare(
        exact(llama(tied=tied, kv_heads=kv_heads)),
        llama_config(tied=tied, kv_heads=kv_heads),
        llama_weights,
        lambda model: {name: p.grad for name, p in llama_weights(model).items()},
    )


def test_llama_with_biases() -> None:
    model = exact(llama(tied=False, bias=True))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_()
    config = llama_config(tied=False, kv_heads=2, bias=["qkv", "out", "mlp"])
    tokens, _ = batch(config.vocab)
    same(logits(config, llama_weights(model), tokens), model(tokens).logits)


def test_llama_as_it_comes_through_float32() -> None:
    model = llama(tied=False)
    config = llama_config(tied=False, kv_heads=2)
    tokens, _ = batch(config.vocab)
    same(logits(config, llama_weights(model), tokens), model(tokens).logits, limit=1e-5)


def llama_config(*, tied: bool, kv_heads: int, bias: list[str] | None = None) -> Config:
    return Config(
        layers=3,
        hidden=48,
        heads=6,
        kv_heads=kv_heads,
        head_dim=8,
        ffn=80,
        vocab=97,
        rope_theta=500000.0,
        tied_embeddings=tied,
        bias=bias or [],
    )


def test_gpt2() -> None:
    model = gpt2()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bias" in name or "ln" in name:
                weight.normal_()
    config = Config(
        layers=3,
        hidden=48,
        heads=4,
        kv_heads=4,
        head_dim=12,
        ffn=192,
        vocab=97,
        context=40,
        norm="layernorm",
        norm_bias=True,
        activation="gelu_tanh",
        position="learned",
        bias=["qkv", "out", "mlp"],
        tied_embeddings=True,
    )
    compare(model, config, gpt2_weights, lambda model: gpt2_weights(model, of=lambda p: p.grad))
