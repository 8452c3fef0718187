"""What one layer keeps of one microbatch, sublayer by sublayer.

b is the micro-batch, s the sequence, h the hidden width, a heads, d the width of a head, f the
inner width, t the ranks of tp, cp cuts s. Without recompute, with attention of 16-bit softmax,
dropout and f = 4h the sum is the published `s·b·h·(10 + 24/t + 5·a·s/(h·t))`, and
`s·b·h/t·(34 + 5·a·s/h)` under sequence parallelism (arXiv:2205.05198, table 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parlay.compiler.ledger.adapters import cuts_both, low_rank
from parlay.compiler.ledger.memory import frozen
from parlay.compiler.ledger.memory.mixture import mixture
from parlay.compiler.ledger.memory.record import TRANSFORMER, Saved
from parlay.compiler.ledger.memory.sizes import Sizes

LORA = "arXiv:2106.09685"


def layer(sizes: Sizes, *, experts: bool) -> tuple[Saved, ...]:
    """Everything that one layer saves where nothing is computed again."""
    if sizes.train.lora is not None:
        return _adapted(sizes, experts=experts)
    return (
        *_around(sizes),
        *_attention(sizes),
        *(mixture(sizes) if experts else mlp(sizes)),
    )


def _adapted(sizes: Sizes, *, experts: bool) -> tuple[Saved, ...]:
    """The same under adapters, which read their inputs at 16 bits whatever the matrices run at."""
    sizes = replace(sizes, kept=sizes.width)
    rows = [*_around(sizes), *_attention(sizes)]
    rows += [*(mixture(sizes) if experts else mlp(sizes)), *_low_rank(sizes, experts=experts)]
    if sizes.stack.libraries:
        return tuple(frozen.kept(sizes, rows, experts=experts))
    return tuple(frozen.routed(sizes, rows))


def feed_forward_bytes(sizes: Sizes, *, experts: bool) -> int:
    """Bytes of the feed-forward half: what is gone when a backward comes to attention."""
    rows = [*(mixture(sizes) if experts else mlp(sizes))]
    rows += [row for row in _around(sizes) if row.name.startswith("mlp")]
    if sizes.train.lora is not None:
        rows = [*frozen.routed(sizes, rows)]
        rows += [row for row in _low_rank(sizes, experts=experts) if row.name.endswith("mlp")]
    return sum(row.value_bytes for row in rows)


def _around(sizes: Sizes) -> Iterator[Saved]:
    """Norms, the inputs of both sublayers, dropout of the residual stream.

    Before each sublayer: the norm's input and its output, 2·s·b·h bytes each at 16 bits; one norm
    for both where they stand side by side. Each norm after a sublayer keeps its input.
    """
    model = sizes.model
    value, formula = sizes.stream()
    kept, kept_formula = sizes.stream(sizes.kept)
    before = model.norm_placement in ("before", "both")
    after = model.norm_placement in ("after", "both")
    one = model.parallel_blocks and (model.shared_norm or not before)
    names = ("attention",) if one else ("attention", "mlp")
    if model.parallel_blocks and not one:
        yield Saved("residual", None, value, formula, TRANSFORMER)
    for name in names:
        if before and not (model.parallel_blocks and not one):
            yield Saved(f"{name}_norm input", None, value, formula, TRANSFORMER)
        part = "norm" if before else None
        yield Saved(f"{name} input", part, kept, kept_formula, TRANSFORMER)
        if after:
            yield Saved(f"{name}_post_norm input", None, value, formula, sizes.stack.source)
        if sizes.stack.statistics:
            norms = before + after
            numbers = norms * (4 if model.norm == "rmsnorm" else 8)
            each = sizes.tokens // sizes.residual
            yield Saved(
                f"{name} norm statistics",
                None,
                numbers * each,
                f"{numbers} x {each}",
                sizes.stack.source,
            )
    if model.dropout:
        mask, words = sizes.stream(1)
        yield Saved("dropout masks", None, 2 * mask, f"2 x {words}", TRANSFORMER)


def _low_rank(sizes: Sizes, *, experts: bool) -> Iterator[Saved]:
    """The low-rank features of each projection with an adapter, of all tokens."""
    assert sizes.train.lora is not None
    rank: int = sizes.train.lora["rank"]
    attention, inner = low_rank(sizes.model, rank, together=cuts_both(sizes.train))
    for name, part, features in (("attention", None, attention), ("mlp", "mlp", inner)):
        if not (experts and name == "mlp" and not _shared(sizes)):
            size, formula = sizes.inner(features + rank, sizes.width)
            yield Saved(f"low-rank features of {name}", part, size, formula, LORA)


def _shared(sizes: Sizes) -> bool:
    """Whether an MLP stands beside routed experts."""
    experts = sizes.model.experts
    return experts is not None and experts.shared > 0


def mlp(sizes: Sizes) -> Iterator[Saved]:
    """The inner tensors: the activation's inputs (and half), and the last matrix's input.

    2·f + 2·f bytes a token for GELU, 6·f for a fused SwiGLU, 8·f for one in separate kernels.
    """
    features = -(-sizes.model.ffn // sizes.tp)
    whole, inputs = sizes.tensors(keep=True), sizes.tensors(keep=False)
    value, formula = sizes.inner(features, inputs)
    yield Saved("mlp activation input", "mlp", value, formula, sizes.stack.source)
    value, formula = sizes.inner(features, whole - inputs)
    yield Saved("mlp activation", "mlp activation", value, formula, sizes.stack.source)


# ── Attention ─────────────────────────────────────────────────────────────────


def _attention(sizes: Sizes) -> Iterator[Saved]:
    model, width = sizes.model, sizes.width
    query, key, value, keys = sizes.widths
    if model.mla is None:
        if model.qk_norm != "none":
            features = (sizes.heads + keys) * model.head_dim
            size, formula = sizes.inner(features, width)
            yield Saved("q_norm and k_norm inputs", None, size, formula, sizes.stack.source)
    else:
        mla = model.mla
        latent = 2 * (mla.q_rank or 0) + 2 * mla.kv_rank
        size, formula = sizes.inner(latent, width)
        if sizes.stack.traced:
            # Of the tokens of a rank, one tensor with the rotated features in it.
            latent += mla.rope_dim
            each = sizes.tokens // sizes.residual
            size, formula = width * each * latent, f"{width} x {each} x {latent}"
            numbers = (2 if mla.q_rank else 1) * (4 if model.norm == "rmsnorm" else 8)
            yield Saved(
                "statistics of norms of latents",
                None,
                numbers * each,
                f"{numbers} x {each}",
                sizes.stack.source,
            )
        yield Saved("latents and their norms", "norm", size, formula, "arXiv:2405.04434, 2.1")
    yield from _core(sizes, query, key, value, keys)
    output = sizes.heads * value
    size, formula = sizes.inner(output, width)
    yield Saved("attention output", None, size, formula, TRANSFORMER)
    if sizes.stack.traced and sizes.parallel.cp > 1 and not _made_again(sizes):
        # Heads lie before tokens, where the last matrix reads them behind.
        name = "attention output, in the order of cp"
        yield Saved(name, None, size, formula, sizes.stack.source)
    if sizes.twice and sizes.train.attention == "flash":
        source = "FlashAttention-2, batch first"
        yield Saved("attention output, its own order", "core_attention", size, formula, source)
    if sizes.kept != width:
        size, formula = sizes.inner(output, sizes.kept)
        yield Saved("attention output, quantised", None, size, formula, sizes.stack.source)


def _core(sizes: Sizes, query: int, key: int, value: int, keys: int) -> Iterator[Saved]:
    """Queries, keys, values, and the scores of unfused attention.

    At 16 bits: 2·s·b·a·d each for q, k and v; unfused with dropout 5·a·s²·b (softmax 2, mask 1,
    what dropout leaves 2), without it what the stack keeps of the softmax. The emitted code keeps
    the tanh of a capped score too, and of fused attention with sinks the output before them.
    """
    width, stack, heads = sizes.width, sizes.stack, sizes.heads
    unfused = sizes.train.attention == "math"
    copied = unfused and stack.math_copies and (width < 4 or keys < heads)
    if copied:
        # The reference kernel works on fp32 copies, key/value heads repeated; where it runs again
        # its inputs are kept in their place.
        size, formula = sizes.inner(heads * (query + key + value), max(4, width))
        part = "core_attention" if _again(sizes) else None
        yield Saved("q, k and v in fp32", part, size, formula, stack.source)
    if stack.traced:
        keys = max(keys, _dealt_to(sizes))
    if not copied or _again(sizes):
        size, formula = sizes.inner(heads * query + keys * (key + value), width)
        yield Saved("q, k and v", None, size, formula, TRANSFORMER)
    if not unfused:
        if stack.traced and _made_again(sizes):
            return
        if stack.statistics:
            size, formula = sizes.inner(heads, 4)
            yield Saved("log-sum-exp", "core_attention", size, formula, "arXiv:2205.14135")
        if stack.traced and sizes.model.sinks and not _joined(sizes):
            # The output, and for each query what the sink leaves: in fp32, and as wide as it.
            size, formula = sizes.inner(heads * value, width)
            yield Saved("attention output before its sinks", None, size, formula, stack.source)
            size, formula = sizes.inner(heads, width + 4)
            yield Saved("shares left by the sinks", None, size, formula, stack.source)
        return
    softcap, seen = sizes.model.softcap, sizes.seq
    if stack.traced:
        seen += sizes.model.sinks
        if softcap is not None and softcap["attention"]:
            value = max(4, width) * heads * sizes.tokens * sizes.seq
            formula = f"{max(4, width)} x {heads} heads x {sizes.tokens} x {sizes.seq}"
            name = "tanh of capped scores"
            yield Saved(name, "core_attention", value, formula, stack.source, True)
    dropped = 2 * width + 1 if sizes.model.dropout else max(stack.math, width)
    value = int(dropped * heads * sizes.tokens * seen)
    formula = f"{dropped} x {heads} heads x {sizes.tokens} x {seen}"
    yield Saved("attention scores", "core_attention", value, formula, TRANSFORMER, True)


def _again(sizes: Sizes) -> bool:
    """Whether attention alone is computed again, in the emitted code."""
    recompute = sizes.train.recompute
    asked = recompute.flags or ("core_attention",)
    return sizes.stack.traced and recompute.name == "selective" and "core_attention" in asked


def _joined(sizes: Sizes) -> bool:
    """Whether outputs of blocks of keys are joined over cp, sinks with them."""
    return sizes.parallel.cp > 1 and sizes.parallel.cp_method.name != "ulysses"


def _made_again(sizes: Sizes) -> bool:
    """Whether the emitted code keeps of attention over cp its inputs alone."""
    method = sizes.parallel.cp_method.name
    return sizes.parallel.cp > 1 and method == "allgather" and sizes.bent


def _dealt_to(sizes: Sizes) -> int:
    """Ranks that heads are dealt to; fewer key/value heads are copied."""
    parallel = sizes.parallel
    if parallel.cp == 1 or parallel.cp_method.name not in ("ulysses", "ulysses_ring"):
        return 1
    return parallel.cp if parallel.cp_method.name == "ulysses" else int(parallel.cp_method["inner"])
