"""The shape of the transformer as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends.megatron.argument import Piece, chosen, field, given, refused
from parlay.compiler.backends.megatron.stretched import by_yarn, stretched
from parlay.compiler.spec.blocks import Mla, Model, Spec
from parlay.compiler.spec.resolve import Phase

BIASES = {(): ("--disable-bias-linear",), ("qkv",): ("--disable-bias-linear", "--add-qkv-bias")}
ALL_BIASES = ("qkv", "out", "mlp")
NORMS_QUERIES = ("0.19", "0.20")
"""Versions whose latent attention fuses a norm with the projection of a query of full rank: the
norms of the latents cannot be asked for without it (core/transformer/mla_qk_norm_config.py)."""


def model(phase: Phase, spec: Spec, *, version: str) -> Iterator[Piece]:
    """Everything about the model but its experts."""
    model = spec.model
    assert model is not None
    yield given("--num-layers", model.layers, path="model.layers")
    yield given("--hidden-size", model.hidden, path="model.hidden")
    yield given("--ffn-hidden-size", model.ffn, path="model.ffn")
    yield given("--num-attention-heads", model.heads, path="model.heads")
    yield from _attention(phase, model, version=version)
    yield from _feed_forward(phase, model)
    yield from _norms(phase, model)
    yield from _positions(phase, spec, model, version=version)
    yield from _vocabulary(spec, model, version=version)
    if model.mtp_layers:
        if model.position not in ("rope", "none"):
            words = "layers that predict further tokens need rope or none"
            yield refused(phase, "model.mtp_layers", "`mtp_layers` with this position", words=words)
        yield given("--mtp-num-layers", model.mtp_layers, path="model.mtp_layers")
    yield given("--attention-dropout", model.dropout, path="model.dropout")
    yield given("--hidden-dropout", model.dropout, path="model.dropout")
    yield given("--init-method-std", model.init_std, path="model.init_std")


# ── Attention ─────────────────────────────────────────────────────────────────


def _attention(phase: Phase, model: Model, *, version: str) -> Iterator[Piece]:
    if model.mla is not None:
        yield from _latent(phase, model, model.mla, version=version)
    else:
        if model.kv_heads < model.heads:
            yield given("--group-query-attention", path="model.kv_heads")
            yield given("--num-query-groups", model.kv_heads, path="model.kv_heads")
        yield given("--kv-channels", model.head_dim, path="model.head_dim")
        if model.qk_norm == "per_head":
            yield given("--qk-layernorm", path="model.qk_norm")
    if model.qk_norm == "full":
        words = "one weight over the whole projection"
        yield refused(phase, "model.qk_norm", "`qk_norm = full`", words=words)
    if model.sinks:
        yield given("--softmax-type", "learnable", path="model.sinks")
    if model.window is not None:
        # A window of so many tokens to the left, the token itself not counted.
        size, every = model.window["size"], model.window["every"]
        yield given("--window-size", f"{size - 1},0", path="model.window")
        if every > 1:
            yield given("--window-attn-skip-freq", every, path="model.window")
        if model.window.get("theta") is not None:
            words = "one base turns all layers"
            yield refused(phase, "model.window.theta", "a base of windowed layers", words=words)
    if model.softcap is not None:
        for cap in ("attention", "logits"):
            if model.softcap[cap]:
                yield refused(phase, f"model.softcap.{cap}", f"a soft cap of the {cap}")
    if model.parallel_blocks:
        yield refused(phase, "model.parallel_blocks", "attention and MLP side by side")


def _latent(phase: Phase, model: Model, mla: Mla, *, version: str) -> Iterator[Piece]:
    yield given("--multi-latent-attention", path="model.mla")
    if mla.q_rank is not None:
        yield given("--q-lora-rank", mla.q_rank, path="model.mla.q_rank")
    elif version in NORMS_QUERIES:
        yield refused(
            phase,
            "model.mla.q_rank",
            "a query that is not compressed",
            words=f"core {version} puts a norm of its own before its projection",
            help=['`target "megatron" { version = "0.18" }` has no such norm'],
        )
    yield given("--kv-lora-rank", mla.kv_rank, path="model.mla.kv_rank")
    yield given("--qk-head-dim", mla.nope_dim, path="model.mla.nope_dim")
    yield given("--qk-pos-emb-head-dim", mla.rope_dim, path="model.mla.rope_dim")
    yield given("--v-head-dim", mla.v_dim, path="model.mla.v_dim")
    # The norms of the two latents, which every latent attention has.
    yield given("--qk-layernorm", path="model.mla")
    if model.qk_norm != "none":
        yield refused(phase, "model.qk_norm", f"{field(phase, 'model.qk_norm')} with `mla`")
    if model.position != "rope":
        yield refused(phase, "model.position", f"{field(phase, 'model.position')} with `mla`")
    if model.bias:
        yield refused(phase, "model.bias", f"{field(phase, 'model.bias')} with `mla`")


# ── The MLP, biases and norms ─────────────────────────────────────────────────


def _feed_forward(phase: Phase, model: Model) -> Iterator[Piece]:
    match model.activation:
        case "swiglu":
            yield given("--swiglu", path="model.activation")
        case "quick_geglu":
            yield given("--quick-geglu", path="model.activation")
            if model.glu_clamp is not None:
                yield given(
                    "--activation-func-clamp-value", model.glu_clamp, path="model.glu_clamp"
                )
            yield given("--glu-linear-offset", model.glu_offset, path="model.glu_offset")
        case "relu2":
            yield given("--squared-relu", path="model.activation")
            if "mlp" in model.bias:
                # Fused with a bias there is gelu alone.
                yield chosen("--no-bias-gelu-fusion", path="model.activation")
        case "gelu":
            if "mlp" in model.bias:
                # Fused with the bias it would be the tanh approximation.
                yield chosen("--no-bias-gelu-fusion", path="model.activation")
        case "gelu_tanh" if "mlp" in model.bias:
            pass
        case _:
            yield refused(
                phase,
                "model.activation",
                field(phase, "model.activation"),
                help=[
                    "it expresses `swiglu`, `quick_geglu`, `gelu`, `relu2`, and `gelu_tanh` with "
                    "biases"
                ],
            )
    if model.activation != "quick_geglu":
        for name in ("glu_clamp", "glu_offset"):
            if getattr(model, name):
                words = "`quick_geglu` alone is clamped and moved"
                yield refused(phase, f"model.{name}", f"`{name}`", words=words)
    if model.bias in BIASES:
        for option in BIASES[model.bias]:
            yield given(option, path="model.bias")
    elif model.bias != ALL_BIASES + ("router",) * (model.experts is not None):
        yield refused(
            phase,
            "model.bias",
            field(phase, "model.bias"),
            help=["it expresses `none`, `qkv`, `all`"],
        )


def _norms(phase: Phase, model: Model) -> Iterator[Piece]:
    names = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
    yield given("--normalization", names[model.norm], path="model.norm")
    yield given("--norm-epsilon", model.norm_eps, path="model.norm_eps")
    if model.norm_bias != (model.norm == "layernorm"):
        has = "a layernorm has a bias" if model.norm == "layernorm" else "an rmsnorm has none"
        shown = f"{field(phase, 'model.norm_bias')} with {field(phase, 'model.norm')}"
        yield refused(phase, "model.norm_bias", shown, words=has)
    if model.norm_placement != "before":
        words = "a sublayer's norm stands on its input alone"
        shown = field(phase, "model.norm_placement")
        yield refused(phase, "model.norm_placement", shown, words=words)
    if model.embedding_norm:
        yield refused(phase, "model.embedding_norm", "a norm after the embedding")
    if model.shared_norm:
        yield refused(phase, "model.shared_norm", "one norm of attention and MLP")
    if not model.final_norm:
        yield refused(phase, "model.final_norm", "a model without its final norm")


# ── Positions and vocabulary ──────────────────────────────────────────────────


def _positions(phase: Phase, spec: Spec, model: Model, *, version: str) -> Iterator[Piece]:
    assert spec.train is not None
    longest = max(model.context or 0, spec.train.seq)
    if model.position == "learned" and model.context is None:
        words = "a table without a number of rows"
        yield refused(phase, "model.position", "learned positions without `context`", words=words)
    yield given("--max-position-embeddings", longest, path="model.context")
    names = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
    if model.position not in names:
        shown = field(phase, "model.position")
        known = ", ".join(f"`{name}`" for name in names)
        yield refused(phase, "model.position", shown, help=[f"it expresses {known}"])
        return
    name = names[model.position]
    if model.position == "rope" and by_yarn(model) and model.mla is None:
        name = "yarn"
    yield given("--position-embedding-type", name, path="model.position")
    if model.position == "rope" and model.rope is not None:
        yield from _rope(phase, model)
        yield from stretched(phase, model, version=version)
    elif model.rope_scaling is not None:
        words = "nothing turns"
        yield refused(phase, "model.rope_scaling", "`rope_scaling` without rope", words=words)


def _rope(phase: Phase, model: Model) -> Iterator[Piece]:
    assert model.rope is not None
    theta, partial, scaling = (model.rope[name] for name in ("theta", "partial", "scaling"))
    if not float(theta).is_integer():
        yield refused(phase, "model.rope.theta", f"theta = {theta}", words="whole numbers alone")
    else:
        yield given("--rotary-base", int(theta), path="model.rope")
    if model.mla is not None and partial != 1:
        words = "`mla.rope_dim` says what is rotated"
        yield refused(phase, "model.rope.partial", "`partial` with `mla`", words=words)
    yield given("--rotary-percent", partial, path="model.rope")
    if scaling == 1:
        return
    if not float(scaling).is_integer() or model.mla is not None:
        words = "whole factors alone, and none with `mla`"
        yield refused(phase, "model.rope.scaling", f"scaling = {scaling}", words=words)
    else:
        yield given("--rotary-seq-len-interpolation-factor", int(scaling), path="model.rope")


def _vocabulary(spec: Spec, model: Model, *, version: str) -> Iterator[Piece]:
    tokenizer, vocab = spec.data.tokenizer, model.vocab
    if tokenizer is None:
        yield chosen("--tokenizer-type", "NullTokenizer", path="data.tokenizer")
        # Up to 0.17 that tokenizer adds a token of its own to the vocabulary.
        vocab -= 1 if version in ("0.16", "0.17") else 0
    else:
        kind = "SentencePieceTokenizer" if tokenizer.endswith(".model") else "HuggingFaceTokenizer"
        yield chosen("--tokenizer-type", kind, path="data.tokenizer")
        yield given("--tokenizer-model", tokenizer, path="data.tokenizer")
    yield given("--vocab-size", vocab, path="model.vocab")
    multiple = spec.parallel.vocab_multiple
    yield given("--make-vocab-size-divisible-by", multiple, path="parallel.vocab_multiple")
    if not model.tied_embeddings:
        yield given("--untie-embeddings-and-output-weights", path="model.tied_embeddings")
