"""The shape of the transformer."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.spec.schema import (
    REAL_0,
    SHARE,
    SWITCH,
    WHOLE,
    Case,
    Choice,
    Derived,
    ListOf,
    Quantity,
    Setting,
    block,
    choice,
    count,
    either,
    option,
    real,
    share,
    switch,
    variant,
)
from parlay.compiler.spec.schema import Switch as SwitchType
from parlay.dsl.units import Dimension

whole = count  # `Experts` has a field called count

ACTIVATIONS = (
    *("swiglu", "geglu", "geglu_tanh", "quick_geglu"),
    *("gelu", "gelu_tanh", "relu", "relu2", "silu"),
)
GATED = ("swiglu", "geglu", "geglu_tanh", "quick_geglu")
BIASED = ("qkv", "out", "mlp", "router", "head")


def _biases(written: object) -> tuple[str, ...]:
    """The list that `none`, `qkv`, `all`, `on` and `off` stand for."""
    everything = ("qkv", "out", "mlp")
    match written:
        case tuple():
            return tuple(name for name in BIASED if name in written)
        case "all" | True:
            return everything
        case "qkv":
            return ("qkv",)
    return ()


FACTOR = option("factor", Quantity(Dimension.COUNT, minimum=1), "Factor that stretches positions.")
ORIGINAL = "Tokens that positions were made for before."
STRETCHED = (
    Case(
        "llama3",
        (
            FACTOR,
            option(
                "low_freq",
                Quantity(Dimension.COUNT, above=0),
                "Features that turn fewer times than this in `original` tokens are stretched.",
                1.0,
            ),
            option(
                "high_freq",
                Quantity(Dimension.COUNT, above=0),
                "Features that turn more often stay; those between are mixed.",
                4.0,
            ),
            option("original", WHOLE, ORIGINAL, 8192),
        ),
        doc="by bands of wave lengths, as Llama 3.1 does.",
    ),
    Case(
        "yarn",
        (
            FACTOR,
            option("original", WHOLE, ORIGINAL),
            option(
                "beta_fast",
                Quantity(Dimension.COUNT, above=0),
                "Features that turn more often than this in `original` tokens stay.",
                32.0,
            ),
            option(
                "beta_slow",
                Quantity(Dimension.COUNT, above=0),
                "Features that turn fewer times are stretched; those between are mixed by number.",
                1.0,
            ),
            option(
                "truncate",
                SWITCH,
                "Both ends of the mixture are moved out to whole features.",
                True,
            ),
            option(
                "mscale",
                REAL_0,
                "m of 0.1 · m · ln(factor) + 1, which cosines and sines are multiplied with.",
                1.0,
            ),
            option(
                "mscale_all_dim",
                REAL_0,
                "m of the same factor, which divides that one; with `mla` its square multiplies "
                "the scores.",
                0.0,
            ),
            option(
                "attention_factor",
                Quantity(Dimension.COUNT, above=0),
                "What cosines and sines are multiplied with, in place of what follows.",
                None,
            ),
        ),
        doc="YaRN (arXiv:2309.00071), which also widens the scores.",
    ),
    Case(
        "longrope",
        (
            FACTOR,
            option("original", WHOLE, ORIGINAL),
            option(
                "short",
                ListOf(Quantity(Dimension.COUNT, above=0)),
                "Factors of the features, the fastest first, in sequences up to `original`.",
            ),
            option(
                "long",
                ListOf(Quantity(Dimension.COUNT, above=0)),
                "Factors in longer ones.",
            ),
            option(
                "attention_factor",
                Quantity(Dimension.COUNT, above=0),
                "What cosines and sines are multiplied with, in place of "
                "sqrt(1 + ln(factor) / ln(original)).",
                None,
            ),
        ),
        doc="by a factor for each feature (arXiv:2402.13753), as Phi-3 does.",
    ),
    Case(
        "dynamic",
        (FACTOR,),
        doc="beyond `context` the base grows with the sequence, up to there nothing changes.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): low-rank query and key/value."""

    q_rank: int | None = count(
        "q_rank",
        "Rank of the query's down-projection; absent where the query is not compressed.",
        None,
    )
    kv_rank: int = count("kv_rank", "Rank of the latent that keys and values are made from.")
    nope_dim: int = count("nope_dim", "Width of a head's key part without position.")
    rope_dim: int = count("rope_dim", "Width of a head's key part that is rotated.")
    v_dim: int = count("v_dim", "Width of a head's value.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts: what stands in place of the MLP."""

    count: int = whole("count", "Routed experts of a layer.", maximum=100_000)
    top_k: int = whole("top_k", "Experts that each token visits.")
    ffn: int = whole("ffn", "Inner width of one routed expert.")
    shared: int = whole("shared", "Experts that every token visits.", 0, minimum=0)
    shared_ffn: int = whole(
        "shared_ffn",
        "Inner width of each shared expert.",
        Derived("experts.ffn", ("model.experts.ffn",), lambda ffn: ffn),
    )
    shared_gate: bool = switch(
        "shared_gate", "A learned gate on the shared experts' output.", False
    )
    dense_layers: int = whole(
        "dense_layers", "How many of the first layers keep a plain MLP.", 0, minimum=0
    )
    every: int = whole(
        "every",
        "One layer in so many has experts, the last of each such run, after the dense ones.",
        1,
    )
    router: str = choice("router", ("softmax", "sigmoid"), "How router scores are made.", "softmax")
    router_bias: bool = switch(
        "router_bias", "A correction bias per expert that only the choice of experts reads.", False
    )
    normalize: bool = switch(
        "normalize",
        "Weights of a token's experts, where it visits several, are divided by their sum.",
        True,
    )
    scale: float = real("scale", "Factor of what a token's experts make together.", 1.0, above=0)
    groups: int = whole("groups", "Groups the experts are chosen in.", 1)
    top_groups: int = whole(
        "top_groups",
        "Groups that a token may visit.",
        Derived("experts.groups", ("model.experts.groups",), lambda groups: groups),
    )
    aux_loss: float = real("aux_loss", "Weight of the load-balancing loss.", 0.0)
    z_loss: float = real(
        "z_loss", "Weight of the loss that keeps the router's logits small (ST-MoE).", 0.0
    )
    capacity: float | None = real("capacity", "Capacity factor; absent is dropless.", None, above=0)
    imbalance: float = real(
        "imbalance", "Busiest rank's tokens over the mean, for memory and time.", 1.0, minimum=1
    )
    node_limit: int | None = whole("node_limit", "Nodes that a token's experts may lie on.", None)

    def holds(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, has experts."""
        return self.layers_before(layer + 1) > self.layers_before(layer)

    def layers_before(self, layer: int) -> int:
        """How many of the layers 0 to `layer` - 1 have experts."""
        return max(0, layer - self.dense_layers) // self.every


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The shape of the transformer."""

    params: int | None = count(
        "params", "Parameters in all, in place of a shape: enough for the state ledger alone.", None
    )
    layers: int = count("layers", "Decoder layers.", maximum=10_000)
    hidden: int = count("hidden", "Width of the residual stream.")
    heads: int = count("heads", "Query heads.")
    kv_heads: int = count(
        "kv_heads",
        "Key/value heads; fewer than `heads` is grouped-query attention.",
        Derived("model.heads", ("model.heads",), lambda heads: heads),
    )
    head_dim: int = count(
        "head_dim",
        "Width of one head.",
        Derived(
            "model.hidden / model.heads",
            ("model.hidden", "model.heads"),
            lambda hidden, heads: hidden // heads if hidden % heads == 0 else None,
        ),
    )
    ffn: int = count("ffn", "Inner width of the MLP.")
    vocab: int = count("vocab", "Rows of the embedding, before padding.")
    context: int | None = count("context", "Longest sequence that positions are made for.", None)
    activation: str = choice("activation", ACTIVATIONS, "Activation of the MLP.", "swiglu")
    glu_clamp: float | None = real(
        "glu_clamp",
        "With `quick_geglu`: what a gate is at most, and the size of what it multiplies.",
        None,
        above=0,
    )
    glu_offset: float = real(
        "glu_offset", "With `quick_geglu`: what is added to what a gate multiplies.", 0.0
    )
    norm: str = choice("norm", ("rmsnorm", "layernorm"), "Kind of the norms.", "rmsnorm")
    norm_placement: str = choice(
        "norm_placement",
        ("before", "after", "both"),
        "Where a sublayer's norm stands: on its input, on its output, or both.",
        "before",
    )
    norm_bias: bool = switch(
        "norm_bias",
        "A bias in the norms.",
        Derived("on for layernorm", ("model.norm",), lambda norm: norm == "layernorm"),
    )
    norm_eps: float = real("norm_eps", "Epsilon inside the norms.", 1e-5, above=0)
    embedding_norm: bool = switch("embedding_norm", "A norm right after the embedding.", False)
    final_norm: bool = switch("final_norm", "A norm before the head.", True)
    position: str = choice(
        "position", ("rope", "learned", "alibi", "none"), "How positions enter.", "rope"
    )
    rope: Setting | None = variant(
        "rope",
        (
            Case(
                "rope",
                (
                    option(
                        "theta",
                        Quantity(Dimension.COUNT, above=0),
                        "Base of the wave lengths.",
                        10000.0,
                    ),
                    option("partial", SHARE, "Share of a head's width that is rotated.", 1.0),
                    option(
                        "scaling",
                        Quantity(Dimension.COUNT, above=0),
                        "Factor that stretches positions.",
                        1.0,
                    ),
                ),
            ),
        ),
        "Rotary positions: `rope(theta = 500000)`.",
        Setting("rope", {"theta": 10000.0, "partial": 1.0, "scaling": 1.0}),
    )
    rope_scaling: Setting | None = variant(
        "rope_scaling",
        STRETCHED,
        "How features of different wave lengths are stretched apart, for a longer context: "
        "`rope_scaling = yarn(factor = 40, original = 4096)`. What stretches all of them alike is "
        "`rope(scaling = 4)`.",
        None,
    )
    tied_embeddings: bool = switch(
        "tied_embeddings", "The head uses the embedding's weight.", False
    )
    bias: tuple[str, ...] = either(
        "bias",
        (
            Choice(("none", "qkv", "all")),
            SwitchType(),
            ListOf(Choice(BIASED)),
        ),
        "Biases of the projections: `none`, `qkv`, `all` (qkv, out and mlp), or a list.",
        (),
        normal=_biases,
    )
    dropout: float = share("dropout", "Dropout rate in training.", 0.0)
    qk_norm: str = choice(
        "qk_norm",
        ("none", "per_head", "full"),
        "Norm of queries and keys: one weight a head's width, or over the whole projection.",
        "none",
    )
    sinks: bool = switch(
        "sinks", "A learned logit for each head that takes attention from the tokens.", False
    )
    window: Setting | None = variant(
        "window",
        (
            Case(
                "window",
                (
                    option("size", WHOLE, "Tokens that a windowed layer sees."),
                    option(
                        "every",
                        WHOLE,
                        "The last of so many layers sees everything; at 1 none does.",
                        1,
                    ),
                    option(
                        "theta",
                        Quantity(Dimension.COUNT, above=0),
                        "Base of the rotary positions of windowed layers, which nothing "
                        "stretches; absent: they turn as the others.",
                        None,
                    ),
                ),
            ),
        ),
        "Sliding-window attention: `window(size = 4096, every = 2)`.",
        None,
    )
    softcap: Setting | None = variant(
        "softcap",
        (
            Case(
                "softcap",
                (
                    option("attention", REAL_0, "Cap of attention scores; 0 is none.", 0.0),
                    option("logits", REAL_0, "Cap of the head's logits; 0 is none.", 0.0),
                ),
            ),
        ),
        "Soft caps: `softcap(attention = 50, logits = 30)`.",
        None,
    )
    parallel_blocks: bool = switch(
        "parallel_blocks", "Attention and MLP read the same input, side by side.", False
    )
    shared_norm: bool = switch(
        "shared_norm", "With `parallel_blocks`: one norm serves attention and MLP.", False
    )
    mtp_layers: int = count(
        "mtp_layers",
        "Layers that predict further tokens, one each, as DeepSeek-V3 has; at most 128.",
        0,
        minimum=0,
        maximum=128,
    )
    init_std: float = real("init_std", "Standard deviation of the initial weights.", 0.02, above=0)
    mla: Mla | None = block("mla", Mla, "Multi-head latent attention.")
    experts: Experts | None = block("experts", Experts, "Mixture of experts.")

    @property
    def window_theta(self) -> float | None:
        """The base that windowed layers turn by, where it is their own; nothing stretches it."""
        if self.position != "rope" or self.window is None:
            return None
        base = self.window.get("theta")
        return None if base is None else float(base)
