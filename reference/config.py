"""What a model is made of: its sizes and choices, and the shapes of its weights."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from parlay.reference.experts import Experts
from parlay.reference.experts import shapes as expert_shapes
from torch import Tensor

Weights = dict[str, Tensor]


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
