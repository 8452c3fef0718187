"""The rows of the weight table: every tensor of a part of the model, as a formula of its shape.

Names, shapes and the dimension cut over tp are those of docs/emitted.md for the Llama family;
other families add rows to the same scheme. A matrix is rows out × rows in, so a column-parallel
linear is cut along 0 and a row-parallel one along 1 (Megatron-LM, arXiv:1909.08053).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parlay.compiler.ledger.parameters_weight import Weight
from parlay.compiler.spec.blocks import GATED, Mla, Model

# ── Pieces ────────────────────────────────────────────────────────────────────


def _linear(
    name: str,
    out: int,
    into: int,
    kind: str,
    *,
    cut: int | None,
    bias: bool = False,
    expert: bool = False,
    count: int = 1,
    units: int | None = None,
) -> Iterator[Weight]:
    """`name.weight` out × into, and `name.bias` out, cut with the weight's rows alone; of experts
    always, since what is added on each rank of etp adds up."""
    row = Weight(f"{name}.weight", (out, into), kind, None, cut, expert, count, units)
    yield row
    if bias:
        whole = cut != 0 and not expert
        yield replace(
            row,
            name=f"{name}.bias",
            shape=(out,),
            cut=None if whole else 0,
            units=None if whole else units,
        )


def norm(name: str, model: Model, width: int | None = None) -> Iterator[Weight]:
    """`name.weight`, and `name.bias` where norms have one: each the width of what is normed."""
    size = (model.hidden if width is None else width,)
    yield Weight(f"{name}.weight", size, "norm")
    if model.norm_bias:
        yield Weight(f"{name}.bias", size, "norm")


def attention(model: Model) -> Iterator[Weight]:
    """Query, key, value and output projections with what belongs to them.

    hidden · head_dim · (2·heads + 2·kv_heads), and the biases, norms and sinks that are on.
    """
    heads, groups, width = model.heads, model.kv_heads, model.head_dim
    biased = "qkv" in model.bias
    if model.mla is not None:
        yield from _latent(model, model.mla, biased)
        out = heads * model.mla.v_dim
    else:
        for name, count in (("q", heads), ("k", groups), ("v", groups)):
            yield from _linear(
                f"attention.{name}",
                count * width,
                model.hidden,
                "attention",
                cut=0,
                bias=biased,
                units=count,
            )
        yield from _query_key_norms(model)
        out = heads * width
    if model.sinks:
        yield Weight("attention.sinks", (heads,), "attention", cut=0)
    yield from _linear(
        "attention.o",
        model.hidden,
        out,
        "attention",
        cut=1,
        bias="out" in model.bias,
        units=heads,
    )


def _latent(model: Model, mla: Mla, biased: bool) -> Iterator[Weight]:
    """MLA before its output (arXiv:2405.04434, section 2.1): the latents are whole on each rank.

    q: hidden·q_rank + q_rank·heads·(nope + rope), or hidden·heads·(nope + rope) uncompressed;
    kv: hidden·(kv_rank + rope) + kv_rank·heads·(nope + v); each latent has a norm.
    """
    heads = model.heads
    query = heads * (mla.nope_dim + mla.rope_dim)
    if mla.q_rank is None:
        yield from _linear(
            "attention.q", query, model.hidden, "attention", cut=0, bias=biased, units=heads
        )
    else:
        yield from _linear(
            "attention.q_down", mla.q_rank, model.hidden, "attention", cut=None, bias=biased
        )
        yield from norm("attention.q_norm", model, mla.q_rank)
        yield from _linear("attention.q_up", query, mla.q_rank, "attention", cut=0, units=heads)
    latent = mla.kv_rank + mla.rope_dim
    yield from _linear(
        "attention.kv_down", latent, model.hidden, "attention", cut=None, bias=biased
    )
    yield from norm("attention.kv_norm", model, mla.kv_rank)
    up = heads * (mla.nope_dim + mla.v_dim)
    yield from _linear("attention.kv_up", up, mla.kv_rank, "attention", cut=0, units=heads)


def _query_key_norms(model: Model) -> Iterator[Weight]:
    """One weight a head's width that all heads share, or one over the whole projection."""
    if model.qk_norm == "per_head":
        yield from norm("attention.q_norm", model, model.head_dim)
        yield from norm("attention.k_norm", model, model.head_dim)
    elif model.qk_norm == "full":
        for name, count in (("q", model.heads), ("k", model.kv_heads)):
            for row in norm(f"attention.{name}_norm", model, count * model.head_dim):
                yield replace(row, cut=0, units=count)


def _feed_forward(
    name: str, model: Model, width: int, kind: str, *, expert: bool = False, count: int = 1
) -> Iterator[Weight]:
    """3·hidden·width where the activation is gated, else 2·hidden·width."""
    biased = "mlp" in model.bias
    for part in ("gate", "up") if model.activation in GATED else ("up",):
        yield from _linear(
            f"{name}.{part}",
            width,
            model.hidden,
            kind,
            cut=0,
            bias=biased,
            expert=expert,
            count=count,
        )
    yield from _linear(
        f"{name}.down",
        model.hidden,
        width,
        kind,
        cut=1,
        bias=biased,
        expert=expert,
        count=count,
    )


def mlp(model: Model) -> Iterator[Weight]:
    """The plain MLP."""
    yield from _feed_forward("mlp", model, model.ffn, "mlp")


def mixture(model: Model) -> Iterator[Weight]:
    """Router, routed experts and shared experts.

    count·hidden for the router, whole on each rank; `mlp.router.correction` is the bias that only
    the choice of experts reads (arXiv:2412.19437), counted as DeepSeek-V3's checkpoint has it.
    """
    experts = model.experts
    if experts is None:
        return
    yield from _linear(
        "mlp.router",
        experts.count,
        model.hidden,
        "router",
        cut=None,
        bias="router" in model.bias,
    )
    if experts.router_bias:
        yield Weight("mlp.router.correction", (experts.count,), "router")
    yield from _feed_forward(
        "mlp.experts", model, experts.ffn, "experts", expert=True, count=experts.count
    )
    if experts.shared:
        yield from _feed_forward(
            "mlp.shared_experts",
            model,
            experts.shared * experts.shared_ffn,
            "shared_experts",
        )
        if experts.shared_gate:
            yield Weight("mlp.shared_experts.router.weight", (1, model.hidden), "shared_experts")


# ── Parts ─────────────────────────────────────────────────────────────────────


def layer(model: Model, *, experts: bool) -> Iterator[Weight]:
    """One decoder layer, with experts or with the plain MLP; names without `layers.I.`.

    Norms: one before each sublayer, one after it, or both; side by side under one norm, a layer
    has one in place of two.
    """
    one = model.parallel_blocks and model.shared_norm
    before = model.norm_placement in ("before", "both")
    after = model.norm_placement in ("after", "both")
    if before:
        yield from norm("attention_norm", model)
    yield from attention(model)
    if after:
        yield from norm("attention_post_norm", model)
    if before and not one:
        yield from norm("mlp_norm", model)
    yield from mixture(model) if experts else mlp(model)
    if after and not one:
        yield from norm("mlp_post_norm", model)


def embedding(model: Model, rows: int) -> Iterator[Weight]:
    """What stands before the first layer: rows·hidden, context·hidden where positions are learned.

    A model of learned positions whose context is not known has no rows of them.
    """
    yield embedding_table(model, rows)
    if model.position == "learned":
        yield Weight("position.weight", (model.context or 0, model.hidden), "position")
    if model.embedding_norm:
        yield from norm("embedding_norm", model)


def embedding_table(model: Model, rows: int) -> Weight:
    """The table of token embeddings alone."""
    return Weight("embedding.weight", (rows, model.hidden), "embedding", cut=0)


def head(model: Model, rows: int) -> Iterator[Weight]:
    """What stands after the last layer: the final norm, and the head unless it is tied."""
    if model.final_norm:
        yield from norm("norm", model)
    biased = "head" in model.bias
    if not model.tied_embeddings:
        yield from _linear("head", rows, model.hidden, "head", cut=0, bias=biased)
    elif biased:
        yield Weight("head.bias", (rows,), "head", cut=0)


def further_tokens(model: Model) -> Iterator[Weight]:
    """The layers that predict further tokens (arXiv:2412.19437, section 2.2), names `mtp.I.…`.

    Each is a norm of the hidden state and one of the next token's embedding, a projection of both
    (hidden × 2·hidden), one more layer of the last one's kind, and a norm; embedding and head are
    the model's own.
    """
    experts = model.experts is not None and model.experts.holds(model.layers - 1)
    for index in range(model.mtp_layers):
        rows = [
            *norm("hidden_norm", model),
            *norm("embedding_norm", model),
            *_linear("projection", model.hidden, 2 * model.hidden, "mtp", cut=0),
            *(replace(row, name=f"layer.{row.name}") for row in layer(model, experts=experts)),
            *norm("norm", model),
        ]
        for row in rows:
            yield replace(row, name=f"mtp.{index}.{row.name}", kind="mtp")
