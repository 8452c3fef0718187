"""A decoder-only transformer as one function of its weights.

The weights are a dict by global name. Everything is computed in the dtype of the weights: no
parallelism, no fused kernels, no mixed precision, nothing kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from parlay.reference.experts import Experts, mixture
from parlay.reference.experts import shapes as expert_shapes
from parlay.reference.waves import steepness, waves
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass
class Beside:
    """What layers of experts have besides: auxiliary losses, and the visits of each expert by the
    name of the correction that they move."""

    losses: list[Tensor] = field(default_factory=list)
    visits: Weights = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and structure; the choices are spelled as in the language."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    norm: str = "rmsnorm"  # rmsnorm, layernorm
    norm_eps: float = 1e-5
    norm_bias: bool = False
    norm_placement: str = "before"  # before, after, both: where a sublayer's norms stand
    embedding_norm: bool = False  # one more norm, of tokens and positions together
    final_norm: bool = True
    parallel_blocks: bool = False  # attention and MLP read the same input
    shared_norm: bool = False  # and one norm of it
    activation: str = "swiglu"  # one of ACTIVATIONS
    glu_clamp: float | None = (
        None  # of quick_geglu: the most of a gate, the size of what it lets by
    )
    glu_offset: float = 0.0  # of quick_geglu: what is added to that
    position: str = "rope"  # rope, learned, alibi, none
    rope_theta: float = 10000.0
    rope_scaling: float = 1.0  # positions lie this much closer together than tokens
    rope_bands: dict[str, Any] | None = None  # `name`, of which `waves` knows, and options
    rope_partial: float = 1.0  # the share of a head's features, its first ones, that turn
    mla: dict[str, Any] | None = None  # q_rank or None, kv_rank, nope_dim, rope_dim, v_dim
    qk_norm: str = "none"  # none; per_head, full: over each head, over all of them together
    softcap_attention: float = 0.0
    softcap_logits: float = 0.0
    sinks: bool = False  # a score of each head's own that no token has
    window_size: int = 0  # tokens that are seen, the own one among them; 0 is all of them
    window_every: int = 1  # above 1, the last of so many layers sees all
    window_theta: float | None = None  # what the others turn by, unstretched, if not as these
    context: int | None = None  # rows of the learned positions
    lora_rank: int = 0  # of adapters on the projections of each layer; 0 is none
    lora_alpha: float = 16.0
    bias: list[str] = field(default_factory=list)  # of qkv, out, mlp, head
    tied_embeddings: bool = False
    experts: Experts | None = None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Config:
        """Reads the fields above; others, such as the padding of a layout, mean nothing here."""
        known = {one.name for one in fields(cls)}
        given = {name: value for name, value in facts.items() if name in known}
        if given.get("experts") is not None:
            given["experts"] = Experts(**given["experts"])
        return cls(**given)

    @property
    def gated(self) -> bool:
        return self.activation in ("swiglu", "geglu", "geglu_tanh", "quick_geglu")

    @property
    def one_norm(self) -> bool:
        return self.parallel_blocks and self.shared_norm

    def norms(self, sublayer: str) -> list[str]:
        """The norms of `attention` or `mlp`."""
        found = []
        if self.norm_placement in ("before", "both"):
            found.append(f"{sublayer}_norm")
        if self.norm_placement in ("after", "both"):
            found.append(f"{sublayer}_post_norm")
        return found


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Every weight by its global name, in the order of the model."""
    hidden, heads = config.hidden, config.heads * config.head_dim
    kv = config.kv_heads * config.head_dim
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, outputs: int, inputs: int, *, kind: str) -> None:
        found[f"{name}.weight"] = (outputs, inputs)
        if config.lora_rank and kind != "head":
            found[f"{name}.lora_a"] = (config.lora_rank, inputs)
            found[f"{name}.lora_b"] = (outputs, config.lora_rank)
        if kind in config.bias:
            found[f"{name}.bias"] = (outputs,)

    def norm(name: str, width: int = hidden) -> None:
        found[f"{name}.weight"] = (width,)
        if config.norm_bias:
            found[f"{name}.bias"] = (width,)

    def latent(at: str, mla: dict[str, Any]) -> None:
        key, ranks = mla["nope_dim"] + mla["rope_dim"], (mla["q_rank"], mla["kv_rank"])
        if ranks[0] is None:
            linear(f"{at}.q", config.heads * key, hidden, kind="qkv")
        else:
            linear(f"{at}.q_down", ranks[0], hidden, kind="qkv")
            norm(f"{at}.q_norm", ranks[0])
            linear(f"{at}.q_up", config.heads * key, ranks[0], kind="")
        linear(f"{at}.kv_down", ranks[1] + mla["rope_dim"], hidden, kind="qkv")
        norm(f"{at}.kv_norm", ranks[1])
        linear(f"{at}.kv_up", config.heads * (mla["nope_dim"] + mla["v_dim"]), ranks[1], kind="")
        linear(f"{at}.o", hidden, config.heads * mla["v_dim"], kind="out")

    found["embedding.weight"] = (config.vocab, hidden)
    if config.position == "learned":
        if config.context is None:
            raise ValueError("learned positions need `context`")
        found["position.weight"] = (config.context, hidden)
    if config.embedding_norm:
        norm("embedding_norm")
    for layer in range(config.layers):
        at = f"layers.{layer}"
        for name in config.norms("attention"):
            norm(f"{at}.{name}")
        if config.mla is None:
            linear(f"{at}.attention.q", heads, hidden, kind="qkv")
            linear(f"{at}.attention.k", kv, hidden, kind="qkv")
            linear(f"{at}.attention.v", kv, hidden, kind="qkv")
            linear(f"{at}.attention.o", hidden, heads, kind="out")
        else:
            latent(f"{at}.attention", config.mla)
        if config.sinks:
            found[f"{at}.attention.sinks"] = (config.heads,)
        if config.qk_norm == "per_head":
            norm(f"{at}.attention.q_norm", config.head_dim)
            norm(f"{at}.attention.k_norm", config.head_dim)
        elif config.qk_norm == "full":
            norm(f"{at}.attention.q_norm", heads)
            norm(f"{at}.attention.k_norm", kv)
        for name in config.norms("mlp") if not config.one_norm else ():
            norm(f"{at}.{name}")
        if config.experts is not None and config.experts.holds(layer):
            pairs = expert_shapes(
                config.experts,
                hidden=hidden,
                gated=config.gated,
                bias=config.bias,
                lora_rank=config.lora_rank,
            )
            found |= {f"{at}.mlp.{end}": shape for end, shape in pairs}
            continue
        if config.gated:
            linear(f"{at}.mlp.gate", config.ffn, hidden, kind="mlp")
        linear(f"{at}.mlp.up", config.ffn, hidden, kind="mlp")
        linear(f"{at}.mlp.down", hidden, config.ffn, kind="mlp")
    if config.final_norm:
        norm("norm")
    if not config.tied_embeddings:
        linear("head", config.vocab, hidden, kind="head")
    elif "head" in config.bias:
        found["head.bias"] = (config.vocab,)
    return found


def logits(
    config: Config, weights: Weights, tokens: Tensor, beside: Beside | None = None
) -> Tensor:
    """tokens [b, s] -> [b, s, vocab]; what layers of experts have besides is added to `beside`."""
    beside = beside if beside is not None else Beside()
    weights = merged(config, weights)
    x = weights["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + weights["position.weight"][: tokens.shape[1]]
    if config.embedding_norm:
        x = _norm(config, weights, "embedding_norm", x)
    for layer in range(config.layers):
        x = _layer(config, weights, layer, x, beside)
    if config.final_norm:
        x = _norm(config, weights, "norm", x)
    if config.tied_embeddings:
        out = x @ weights["embedding.weight"].T
        out = out + weights["head.bias"] if "head.bias" in weights else out
    else:
        out = _linear(weights, "head", x)
    return _capped(out, config.softcap_logits)


def merged(config: Config, weights: Weights) -> Weights:
    """Adapters added to what they adapt (arXiv:2106.09685): W + alpha / rank · B A."""
    found = dict(weights)
    for name in [name for name in weights if name.endswith(".lora_a")]:
        whole = name.removesuffix(".lora_a")
        product = found.pop(f"{whole}.lora_b") @ found.pop(name)
        scale = config.lora_alpha / config.lora_rank
        found[f"{whole}.weight"] = weights[f"{whole}.weight"] + scale * product
    return found


def loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of -log p(label) over the labels that are not -100."""
    counted = labels != -100
    chosen = logits[counted].log_softmax(dim=-1)
    return -chosen.gather(1, labels[counted].unsqueeze(1)).sum()


# ── Pieces ────────────────────────────────────────────────────────────────────


def _layer(config: Config, weights: Weights, layer: int, x: Tensor, beside: Beside) -> Tensor:
    def before(sublayer: str, x: Tensor) -> Tensor:
        if config.norm_placement == "after":
            return x
        return _norm(config, weights, f"layers.{layer}.{sublayer}_norm", x)

    def after(sublayer: str, x: Tensor) -> Tensor:
        if config.norm_placement == "before":
            return x
        return _norm(config, weights, f"layers.{layer}.{sublayer}_post_norm", x)

    if config.one_norm and config.norm_placement != "before":
        raise ValueError("one norm of attention and MLP stands before them")
    inner = before("attention", x)
    attended = after("attention", _attention(config, weights, layer, inner))
    if not config.parallel_blocks:
        x = x + attended
        return x + after("mlp", _mlp(config, weights, layer, before("mlp", x), beside))
    inner = inner if config.one_norm else before("mlp", x)
    return x + attended + after("mlp", _mlp(config, weights, layer, inner, beside))


def _capped(x: Tensor, cap: float) -> Tensor:
    """Softly at most `cap`; 0 is no cap."""
    return cap * (x / cap).tanh() if cap else x


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    out = x @ weights[f"{name}.weight"].T
    return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out


def _norm(config: Config, weights: Weights, name: str, x: Tensor) -> Tensor:
    if config.norm == "layernorm":
        x = x - x.mean(dim=-1, keepdim=True)
    elif config.norm != "rmsnorm":
        raise ValueError(f"no norm `{config.norm}`: rmsnorm or layernorm")
    x = x / (x.square().mean(dim=-1, keepdim=True) + config.norm_eps).sqrt()
    x = x * weights[f"{name}.weight"]
    return x + weights[f"{name}.bias"] if f"{name}.bias" in weights else x


def _attention(config: Config, weights: Weights, layer: int, x: Tensor) -> Tensor:
    """Causal; each key and value head serves heads / kv_heads neighbouring query heads."""
    name, (b, s, _) = f"layers.{layer}.attention", x.shape
    made = _heads if config.mla is None else _latent_heads
    q, k, v = made(_of_layer(config, layer), weights, name, x)
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    if config.mla is not None and config.rope_bands is not None:
        scores = scores * steepness(config.rope_bands)
    scores = _capped(scores, config.softcap_attention)
    if config.position == "alibi":
        for head in range(config.heads):
            scores[:, head] = scores[:, head] - _slope(head, config.heads) * _behind(s, x.device)
    powers = scores.masked_fill(_hidden(config, layer, s, x.device), float("-inf"))
    if config.sinks:
        powers = torch.cat([powers, _sink(weights[f"{name}.sinks"], b, s)], dim=-1)
    shares = powers.softmax(dim=-1)[..., :s]
    mixed = torch.einsum("bhqk,bkhd->bqhd", shares, v).reshape(b, s, -1)
    return _linear(weights, f"{name}.o", mixed)


def _heads(config: Config, weights: Weights, name: str, x: Tensor) -> tuple[Tensor, ...]:
    """Queries [b, s, heads, d], keys and values [b, s, kv_heads, d], each made of x."""
    b, s, _ = x.shape

    def heads(part: str, count: int) -> Tensor:
        out = _linear(weights, f"{name}.{part}", x)
        if config.qk_norm == "full" and part != "v":
            out = _norm(config, weights, f"{name}.{part}_norm", out)
        out = out.view(b, s, count, config.head_dim)
        if config.qk_norm == "per_head" and part != "v":
            out = _norm(config, weights, f"{name}.{part}_norm", out)
        return out

    q, k, v = heads("q", config.heads), heads("k", config.kv_heads), heads("v", config.kv_heads)
    if config.position == "rope":
        turning = int(config.head_dim * config.rope_partial)
        q, k = _rotated(config, q, turning), _rotated(config, k, turning)
    return q, k, v


def _latent_heads(config: Config, weights: Weights, name: str, x: Tensor) -> tuple[Tensor, ...]:
    """The same of low-rank latents (arXiv:2405.04434, section 2.1), written out.

    c = norm(W_down x) and q = W_up c, or q = W x; of W_down' x the first kv_rank features are the
    latent of keys and values, and the others, rotated, the last features of every head's key. Of a
    query's features the last ones are rotated.
    """
    mla, (b, s, _), heads = config.mla, x.shape, config.heads
    assert mla is not None
    plain, turning = mla["nope_dim"], mla["rope_dim"]

    if mla["q_rank"] is None:
        q = _linear(weights, f"{name}.q", x)
    else:
        low = _norm(config, weights, f"{name}.q_norm", _linear(weights, f"{name}.q_down", x))
        q = _linear(weights, f"{name}.q_up", low)
    q = q.view(b, s, heads, plain + turning)
    q = torch.cat([q[..., :plain], _rotated(config, q[..., plain:], turning)], dim=-1)
    low = _linear(weights, f"{name}.kv_down", x)
    shared = _rotated(config, low[..., mla["kv_rank"] :].view(b, s, 1, turning), turning)
    low = _norm(config, weights, f"{name}.kv_norm", low[..., : mla["kv_rank"]])
    pairs = _linear(weights, f"{name}.kv_up", low).view(b, s, heads, plain + mla["v_dim"])
    k = torch.cat([pairs[..., :plain], shared.repeat(1, 1, heads, 1)], dim=-1)
    return q, k, pairs[..., plain:]


def _hidden(config: Config, layer: int, s: int, device: torch.device) -> Tensor:
    """[s, s]: whether the token of the row may not see that of the column."""
    behind = _behind(s, device)
    if config.window_size == 0 or _sees_all(config, layer):
        return behind < 0
    return (behind < 0) | (behind >= config.window_size)


def _sees_all(config: Config, layer: int) -> bool:
    """Whether a layer is one of those without a window."""
    return config.window_every > 1 and (layer + 1) % config.window_every == 0


def _of_layer(config: Config, layer: int) -> Config:
    """What a layer turns by, as if all of them did."""
    if config.window_theta is None or _sees_all(config, layer):
        return config
    return replace(config, rope_theta=config.window_theta, rope_scaling=1.0, rope_bands=None)


def _behind(s: int, device: torch.device) -> Tensor:
    """[s, s]: how far the token of the column lies before that of the row."""
    at = torch.arange(s, device=device)
    return at[:, None] - at[None, :]


def _slope(head: int, heads: int) -> float:
    """What a head's scores lose by each token of distance, the steepest first.

    Of 2^m heads the last has 2^-8, and the others divide the way there evenly. Heads beyond the
    largest power of two have the slopes that twice as many would have between those of the first.
    """
    most = 1 << (heads.bit_length() - 1)
    if head < most:
        return float(2.0 ** (-8.0 / most)) ** (head + 1)
    return float(2.0 ** (-4.0 / most)) ** (2 * (head - most) + 1)


def _sink(sinks: Tensor, b: int, s: int) -> Tensor:
    """[heads] -> [b, heads, s, 1]"""
    return sinks[None, :, None, None].repeat(b, 1, s, 1)


def _rotated(config: Config, x: Tensor, turning: int) -> Tensor:
    """x [b, s, heads, d]: of its first r = `turning` features, i and i + r/2 turn together by
    position * theta^(-2i/r), where positions are 1 / rope_scaling apart; the others stay.

    Angles are float64: at position 8191 a float32 angle is off by 5e-4.
    """
    s, half = x.shape[1], turning // 2
    frequency, size = waves(config, half, s)
    at = torch.arange(s, dtype=torch.float64, device=x.device) / config.rope_scaling
    angle = torch.outer(at, torch.tensor(frequency, dtype=torch.float64, device=x.device))
    cos, sin = (size * part.to(x.dtype)[:, None, :] for part in (angle.cos(), angle.sin()))
    first, second, rest = x.split([half, half, x.shape[3] - 2 * half], dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_geglu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
}


def _mlp(config: Config, weights: Weights, layer: int, x: Tensor, beside: Beside) -> Tensor:
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"no activation `{config.activation}`: {', '.join(ACTIVATIONS)}")
    name = f"layers.{layer}.mlp"
    if config.experts is not None and config.experts.holds(layer):
        visits: list[Tensor] = []
        out = mixture(
            config.experts,
            lambda end: weights.get(f"{name}.{end}"),
            x,
            inner=lambda gate, up: _inner(config, gate, up),
            losses=beside.losses,
            visits=visits,
        )
        beside.visits[f"{name}.router.correction"] = visits[0]
        return out
    gate = _linear(weights, f"{name}.gate", x) if config.gated else None
    inner = _inner(config, gate, _linear(weights, f"{name}.up", x))
    return _linear(weights, f"{name}.down", inner)


def _inner(config: Config, gate: Tensor | None, up: Tensor) -> Tensor:
    """What the last matrix of an MLP sees."""
    bend = ACTIVATIONS[config.activation]
    if gate is None:
        return bend(up)
    if config.glu_clamp is not None:
        gate = torch.minimum(gate, torch.full_like(gate, config.glu_clamp))
        up = up.clamp(-config.glu_clamp, config.glu_clamp)
    return bend(gate) * (up + config.glu_offset)
