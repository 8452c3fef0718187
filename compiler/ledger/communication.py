"""What one training step sends, collective by collective, counted before any rank starts.

Every row follows from the spec and the layout alone; `docs/emitted.md` has the table that these
functions put into numbers, and `parlay verify` demands that the ranks do exactly this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.layout.stages import borders
from parlay.compiler.ledger import communication_context as of_context
from parlay.compiler.ledger import communication_experts as of_experts
from parlay.compiler.ledger.adapters import low_rank, rank_of, unasked
from parlay.compiler.ledger.communication_context import tokens_of
from parlay.compiler.ledger.communication_counter import Counter
from parlay.compiler.ledger.communication_once import once_a_step
from parlay.compiler.ledger.latent import latents
from parlay.compiler.ledger.recipe import dtypes_of, passes, recomputed_layers
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.blocks.parallel import Parallel


@dataclass(frozen=True, slots=True)
class Row:
    """What one rank of pipeline rank `stage` does in one step.

    `bytes` is the sum over the calls of the message, the full tensor on one rank.
    """

    stage: int
    group: str
    collective: str
    dtype: str
    calls: int
    bytes: int


def step(spec: Spec, layout: Layout) -> tuple[Row, ...]:
    """Every collective of one training step, by pipeline rank; groups of one rank do nothing."""
    rows: list[Row] = []
    for stage in range(spec.parallel.pp):
        counter = Counter()
        _on_stage(counter, spec, layout, stage)
        rows.extend(
            Row(stage, kind.group, kind.collective, kind.dtype, calls, counter.bytes[kind])
            for kind, calls in sorted(counter.calls.items())
            if calls
        )
    return tuple(rows)


def _on_stage(counter: Counter, spec: Spec, layout: Layout, stage: int) -> None:
    held = [s for s in layout.stages if s.stage == stage]
    if spec.parallel.tp > 1:
        for chunk in held:
            _tensor_parallel(counter, spec, chunk)
    for chunk in held:
        _each(counter, spec, of_context.messages(spec, chunk, again=_again(spec, chunk)))
        _each(counter, spec, _routed(spec, chunk))
    if spec.parallel.pp > 1:
        for chunk in held:
            _pipeline(counter, spec, chunk)
    once_a_step(counter, spec, layout, held)


# ── Each microbatch ───────────────────────────────────────────────────────────


def _tensor_parallel(counter: Counter, spec: Spec, chunk: Stage) -> None:
    """Megatron's f and g (arXiv:1909.08053), or as gather and scatter (arXiv:2205.05198)."""
    train, model, dtypes = spec.train, spec.model, dtypes_of(spec)
    assert train is not None and model is not None
    tokens, count, low = tokens_of(spec), passes(spec), latents(model)
    # Attention and MLP each have a column and a row side.
    rows = columns = chunk.layers + of_experts.plain(spec, chunk)
    if low is not None and not low.stream:
        columns -= chunk.layers

    def send(collective: str, calls: int, width: int = model.hidden) -> None:
        elements = tokens * width
        counter.add("tp", collective, dtypes.compute, elements=elements, calls=calls * count)

    rank, first, last = rank_of(spec), int(chunk.embedding), int(chunk.head)
    ends, asked = first + last, columns
    if rank is not None:  # what no adapter stands before asks for no gradient
        asked -= first * unasked(model)
    if spec.parallel.sequence_parallel:
        # Column: gather forward, gather again and scatter backward; row: scatter, then gather.
        # Of frozen weights nothing is gathered again.
        send("all_gather", columns + rows + last)
        if rank is None:
            send("all_gather", columns + ends)
        send("reduce_scatter", asked + rows + ends)
    else:
        send("all_reduce", asked + rows + ends)
    if rank is not None and spec.parallel.sequence_parallel:
        for width in low_rank(model, rank):
            send("all_gather", chunk.layers, width)
            send("reduce_scatter", chunk.layers, width)
    if low is not None and spec.parallel.sequence_parallel:
        send("all_gather", chunk.layers, low.sent)
        send("all_gather", chunk.layers, low.again)
        send("reduce_scatter", chunk.layers, low.sent)
    elif low is not None:
        send("all_reduce", chunk.layers, low.sent)
    _recomputed(counter, spec, chunk)
    if model.qk_norm == "full":
        # The sums of squares of queries and keys forward, as many sums backward.
        calls = 2 * chunk.layers * count
        counter.add("tp", "all_reduce", dtypes.wide, elements=2 * tokens, calls=calls)
    if chunk.head:
        # The maximum, then the sum of exponentials and the label's logit together.
        counter.add("tp", "all_reduce", dtypes.wide, elements=tokens, calls=count)
        counter.add("tp", "all_reduce", dtypes.wide, elements=2 * tokens, calls=count)


def _recomputed(counter: Counter, spec: Spec, chunk: Stage) -> None:
    """What is sent again where layers, or their MLPs, are computed again in the backward.

    That ends with the last thing that gradients need, the input of the MLP's row linear, so that
    its sum is not sent again; a norm behind it needs that sum, and it is.
    """
    train, model, dtypes = spec.train, spec.model, dtypes_of(spec)
    assert train is not None and model is not None
    layers, count = recomputed_layers(train.recompute, chunk.layers), passes(spec)
    tokens, low = tokens_of(spec), latents(model)
    routed = of_experts.again(spec, chunk, layers)
    beside = routed if model.experts is not None and model.experts.shared else 0
    dense = layers - routed
    # Shared experts stand before what gradients need, and send their sum again, too.
    rows = columns = layers + dense + beside
    rows -= dense if model.norm_placement == "before" else 0
    columns -= layers if low is not None and not low.stream else 0
    if train.recompute.name == "selective":
        rows, columns, low = beside, beside, None
        if "mlp" in train.recompute.flags:
            columns += chunk.layers - of_experts.mixed(spec, chunk)

    def send(collective: str, calls: int, width: int = model.hidden) -> None:
        elements = tokens * width
        counter.add("tp", collective, dtypes.compute, elements=elements, calls=calls * count)

    if spec.parallel.sequence_parallel:
        send("all_gather", columns)
        if low is not None:
            send("all_gather", layers, low.sent)
        if (rank := rank_of(spec)) is not None:
            attention, mlp = low_rank(model, rank)
            send("all_gather", layers, attention)
            send("all_gather", columns - layers, mlp)
        send("reduce_scatter", rows)
    else:
        send("all_reduce", rows)
    if model.qk_norm == "full" and train.recompute.name == "full":
        counter.add("tp", "all_reduce", dtypes.wide, elements=2 * tokens, calls=layers * count)


def _each(counter: Counter, spec: Spec, messages: Iterable[of_experts.Message]) -> None:
    """Messages of one microbatch."""
    for message in messages:
        counter.add(
            message.group,
            message.collective,
            message.dtype or dtypes_of(spec).compute,
            elements=message.elements,
            calls=message.calls * passes(spec),
        )


def _routed(spec: Spec, chunk: Stage) -> Iterator[of_experts.Message]:
    """Tokens to the ranks of their experts and back (arXiv:2006.16668), and how many they are."""
    again = of_experts.again(spec, chunk, _again(spec, chunk))
    return of_experts.messages(spec, of_experts.mixed(spec, chunk), again=again)


def _again(spec: Spec, chunk: Stage) -> int:
    """Layers of a chunk that are computed again as a whole."""
    assert spec.train is not None
    return recomputed_layers(spec.train.recompute, chunk.layers)


def _pipeline(counter: Counter, spec: Spec, chunk: Stage) -> None:
    train, model, dtypes = spec.train, spec.model, dtypes_of(spec)
    assert train is not None and model is not None
    message = tokens_of(spec) * model.hidden // _sequence_cut(spec.parallel)
    between = borders(chunk, schedule=spec.parallel.schedule, pp=spec.parallel.pp)
    for collective in ("send", "recv"):
        counter.add(
            "pp", collective, dtypes.compute, elements=message, calls=between * passes(spec)
        )


def _sequence_cut(parallel: Parallel) -> int:
    return parallel.tp if parallel.sequence_parallel else 1
