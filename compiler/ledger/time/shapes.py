"""The matrix products of one layer on one rank, as (rows, columns, depth)."""

from __future__ import annotations

from typing import NamedTuple

from parlay.compiler.spec.blocks import GATED, Experts, Model, Parallel, Train


class Product(NamedTuple):
    """(m x k)·(k x n), `times` times."""

    m: float
    n: float
    k: float
    times: float = 1.0


def tokens(train: Train, parallel: Parallel) -> float:
    """Tokens of one microbatch on one rank: micro-batch · seq / cp."""
    return train.micro_batch * train.seq / parallel.cp


def element(train: Train) -> float:
    """Bytes of an activation or weight that is sent: two, but for full precision."""
    return {"fp64": 8.0, "fp32": 4.0}.get(train.precision, 2.0)


def widths(model: Model, tp: int) -> tuple[float, float, float, float]:
    """Query, key and value widths on one rank, and that of a score's product."""
    mla = model.mla
    heads = model.heads / tp
    if mla is None:
        kv = max(1.0, model.kv_heads / tp) * model.head_dim
        return heads * model.head_dim, kv, kv, heads * model.head_dim
    key = heads * (mla.nope_dim + mla.rope_dim)
    return key, key, heads * mla.v_dim, key


def attention(model: Model, t: float, tp: int) -> list[Product]:
    """The projections around the scores, cut over tp by heads (arXiv:1909.08053)."""
    query, key, value, _ = widths(model, tp)
    mla = model.mla
    if mla is None:
        return [Product(t, query + key + value, model.hidden), Product(t, model.hidden, query)]
    heads = model.heads / tp
    low = [Product(t, mla.kv_rank + mla.rope_dim, model.hidden)]
    low.append(Product(t, heads * (mla.nope_dim + mla.v_dim), mla.kv_rank))
    if mla.q_rank is None:
        low.append(Product(t, query, model.hidden))
    else:
        low += [Product(t, mla.q_rank, model.hidden), Product(t, query, mla.q_rank)]
    return [*low, Product(t, model.hidden, value)]


def put_off(model: Model, train: Train, parallel: Parallel) -> tuple[bool, ...]:
    """Which weight gradients of `attention` a split backward puts off.

    In the emitted code those of matrices that latents go through over tp come at once.
    """
    mla = model.mla
    if mla is None or parallel.tp == 1 or train.stack != "parlay":
        return ()
    query = (True,) if mla.q_rank is None else (True, False)
    return (True, False, *query, True)


def mlp(model: Model, t: float, width: float) -> list[Product]:
    """Up (with the gate beside it) and down, `width` the inner width on this rank."""
    up = 2 * width if model.activation in GATED else width
    return [Product(t, up, model.hidden), Product(t, model.hidden, width)]


def expert_rows(experts: Experts, t: float, parallel: Parallel) -> float:
    """Rows of one routed expert: what ep·etp ranks send, dealt over all experts.

    A rank brings `t` tokens, cut over tp by sequence parallelism; capacity bounds what is kept.
    """
    held = t / parallel.tp * parallel.ep * parallel.etp
    share = experts.top_k / experts.count * experts.imbalance
    if experts.capacity is not None:
        share = min(share, experts.top_k / experts.count * experts.capacity)
    return held * share


def routed(model: Model, t: float, parallel: Parallel) -> list[Product]:
    """The products of the routed experts that a rank holds."""
    experts = model.experts
    assert experts is not None
    rows = expert_rows(experts, t, parallel)
    held = max(1.0, experts.count / parallel.ep)
    width = experts.ffn / parallel.etp
    return [Product(p.m, p.n, p.k, held) for p in mlp(model, rows, width)]


def shared(model: Model, t: float, tp: int) -> list[Product]:
    """The shared experts, cut over tp like an MLP, and the router."""
    experts = model.experts
    assert experts is not None
    found = [Product(t / tp, experts.count, model.hidden)]
    if experts.shared:
        found += mlp(model, t, experts.shared * experts.shared_ffn / tp)
    return found
