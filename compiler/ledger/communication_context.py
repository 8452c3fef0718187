"""What attention sends each microbatch where sequences are cut, as `runtime/context.py` does."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.communication_experts import Message
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.blocks.parallel import Parallel


def tokens_of(spec: Spec) -> int:
    """Tokens of one microbatch on one rank of tp: micro-batch · seq / cp."""
    train = spec.train
    assert train is not None
    return train.micro_batch * train.seq // spec.parallel.cp


def messages(spec: Spec, chunk: Stage, *, again: int) -> Iterator[Message]:
    """Of one microbatch; `again` layers are computed again, and send their forward's once more.

    ring: keys and values go round forward and backward, all but the last turn; their gradient
    comes home. allgather: they are gathered forward and backward, their gradient is scattered.
    ulysses: queries, keys and values, and the output, each way; a ring may stand around it.
    Attention alone is never computed again, since its kernels keep no scores.
    """
    parallel = spec.parallel
    if parallel.cp == 1:
        return
    tokens, inner = tokens_of(spec), dealt(parallel)
    forwards, backwards = chunk.layers + again, chunk.layers
    query, pair, out = (tokens * width for width in widths(spec))
    if inner > 1:
        for what, elements in (("queries", query), ("keys and values", pair), ("output", out)):
            calls = forwards + backwards
            yield Message("cp", f"ulysses {what}", "all_to_all", "", elements, calls)
    if parallel.cp_method.name == "allgather":
        whole, what = parallel.cp * pair, "keys and values"
        yield Message("cp", what, "all_gather", "", whole, forwards + backwards)
        yield Message("cp", f"gradient of {what}", "reduce_scatter", "", whole, backwards)
        return
    turns = parallel.cp // inner - 1
    if turns:
        calls = forwards * turns + backwards * (turns + turns + 1)
        for collective in ("send", "recv"):
            yield Message("cp", "ring attention", collective, "", pair, calls)


def dealt(parallel: Parallel) -> int:
    """Ranks that the heads of one rank of tp are dealt out over; 1 where each has all of them."""
    method = parallel.cp_method
    if method.name == "ulysses":
        return parallel.cp
    inner: int = method["inner"] if method.name == "ulysses_ring" and parallel.cp > 1 else 1
    return inner


def widths(spec: Spec) -> tuple[int, int, int]:
    """Features a token of the queries, of keys and values together, and of the output of one rank
    of tp. Heads dealt out over more ranks than there are are copied first."""
    model, parallel = spec.model, spec.parallel
    assert model is not None
    heads, kv_heads = -(-model.heads // parallel.tp), -(-model.kv_heads // parallel.tp)
    query, value = model.head_dim, model.head_dim
    if model.mla is not None:
        kv_heads = heads
        query, value = model.mla.nope_dim + model.mla.rope_dim, model.mla.v_dim
    kv_heads = max(kv_heads, dealt(parallel))
    return heads * query, kv_heads * (query + value), heads * value
