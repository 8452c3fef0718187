"""What one training step sends, collective by collective, counted before any rank starts.

Every row follows from the spec and the layout alone; `docs/emitted.md` has the table that these
functions put into numbers, and `parlay verify` demands that the ranks do exactly this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.layout.stages import borders
from parlay.compiler.ledger import communication_context as of_context
from parlay.compiler.ledger import communication_experts as of_experts
from parlay.compiler.ledger import shared, units
from parlay.compiler.ledger.adapters import low_rank, rank_of, unasked
from parlay.compiler.ledger.communication_context import tokens_of
from parlay.compiler.ledger.latent import latents
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.blocks.parallel import Parallel
from parlay.compiler.spec.schema import Setting

DTYPES: Final = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
BYTES: Final = {"float64": 8, "int64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
GRADIENT_BUCKET: Final = 40_000_000
"""Elements of one gradient all-reduce: large enough for the bandwidth, small enough to overlap."""


class Kind(NamedTuple):
    """What is summed up: calls of one collective, over one group, in one dtype."""

    group: str
    collective: str
    dtype: str


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


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The dtypes of a job by their torch names; `loss` is at least float32."""

    compute: str
    gradients: str
    master: str
    optimizer: str

    @property
    def wide(self) -> str:
        """Where sums over the vocabulary and over gradients are made."""
        return "float64" if self.compute == "float64" else "float32"


def dtypes_of(spec: Spec) -> Dtypes:
    """The dtypes that a spec asks for; fp8 and fp4 recipes keep bf16 between the products."""
    train = spec.train
    assert train is not None
    exact = train.precision == "fp64"
    compute = DTYPES.get(train.precision, "bfloat16")
    gradients = "float64" if exact else DTYPES[train.gradients]
    master = compute if exact or train.master == "none" else "float32"
    states = train.optimizer.get("states", "fp32")
    optimizer = "float64" if exact else DTYPES[states]
    return Dtypes(compute, gradients, master, optimizer)


def step(spec: Spec, layout: Layout) -> tuple[Row, ...]:
    """Every collective of one training step, by pipeline rank; groups of one rank do nothing."""
    rows: list[Row] = []
    for stage in range(spec.parallel.pp):
        counter = _Counter()
        _on_stage(counter, spec, layout, stage)
        rows.extend(
            Row(stage, kind.group, kind.collective, kind.dtype, calls, counter.bytes[kind])
            for kind, calls in sorted(counter.calls.items())
            if calls
        )
    return tuple(rows)


class _Counter:
    def __init__(self) -> None:
        self.calls: Counter[Kind] = Counter()
        self.bytes: Counter[Kind] = Counter()

    def add(
        self, group: str, collective: str, dtype: str, *, elements: int, calls: int = 1
    ) -> None:
        """`calls` times a message of `elements` elements."""
        kind = Kind(group, collective, dtype)
        self.calls[kind] += calls
        self.bytes[kind] += calls * elements * BYTES[dtype]


def microbatches(spec: Spec) -> int:
    """Microbatches of one step: global batch / (micro-batch · dp)."""
    train = spec.train
    assert train is not None
    return train.global_batch // (train.micro_batch * spec.parallel.dp)


def _on_stage(counter: _Counter, spec: Spec, layout: Layout, stage: int) -> None:
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
    _once_a_step(counter, spec, layout, held)


# ── Each microbatch ───────────────────────────────────────────────────────────


def _tensor_parallel(counter: _Counter, spec: Spec, chunk: Stage) -> None:
    """Megatron's f and g (arXiv:1909.08053), or as gather and scatter (arXiv:2205.05198)."""
    train, model, dtypes = spec.train, spec.model, dtypes_of(spec)
    assert train is not None and model is not None
    tokens, count, low = tokens_of(spec), microbatches(spec), latents(model)
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


def _recomputed(counter: _Counter, spec: Spec, chunk: Stage) -> None:
    """What is sent again where layers, or their MLPs, are computed again in the backward.

    That ends with the last thing that gradients need, the input of the MLP's row linear, so that
    its sum is not sent again; a norm behind it needs that sum, and it is.
    """
    train, model, dtypes = spec.train, spec.model, dtypes_of(spec)
    assert train is not None and model is not None
    layers, count = recomputed_layers(train.recompute, chunk.layers), microbatches(spec)
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


def _each(counter: _Counter, spec: Spec, messages: Iterable[of_experts.Message]) -> None:
    """Messages of one microbatch."""
    for message in messages:
        counter.add(
            message.group,
            message.collective,
            message.dtype or dtypes_of(spec).compute,
            elements=message.elements,
            calls=message.calls * microbatches(spec),
        )


def _routed(spec: Spec, chunk: Stage) -> Iterator[of_experts.Message]:
    """Tokens to the ranks of their experts and back (arXiv:2006.16668), and how many they are."""
    again = of_experts.again(spec, chunk, _again(spec, chunk))
    return of_experts.messages(spec, of_experts.mixed(spec, chunk), again=again)


def _again(spec: Spec, chunk: Stage) -> int:
    """Layers of a chunk that are computed again as a whole."""
    assert spec.train is not None
    return recomputed_layers(spec.train.recompute, chunk.layers)


def recomputed_layers(recompute: Setting, layers: int) -> int:
    """How many of the `layers` of a stage are computed again as a whole."""
    if recompute.name != "full":
        return 0
    first, every = recompute.get("first"), recompute.get("every")
    return min(first, layers) if first is not None else -(-layers // (every or 1))


def _pipeline(counter: _Counter, spec: Spec, chunk: Stage) -> None:
    train, model, dtypes = spec.train, spec.model, dtypes_of(spec)
    assert train is not None and model is not None
    message = tokens_of(spec) * model.hidden // _sequence_cut(spec.parallel)
    between = borders(chunk, schedule=spec.parallel.schedule, pp=spec.parallel.pp)
    for collective in ("send", "recv"):
        counter.add(
            "pp", collective, dtypes.compute, elements=message, calls=between * microbatches(spec)
        )


def _sequence_cut(parallel: Parallel) -> int:
    return parallel.tp if parallel.sequence_parallel else 1


# ── Once a step ───────────────────────────────────────────────────────────────


def _once_a_step(counter: _Counter, spec: Spec, layout: Layout, held: list[Stage]) -> None:
    parallel, dtypes = spec.parallel, dtypes_of(spec)
    tp, rows = parallel.tp, shared.trained(spec, held)
    numel = sum(times * row.on_rank(tp=tp) for row, times in rows if not row.expert)
    replicas, batch = parallel.dp * parallel.cp, "dp_cp" if parallel.cp > 1 else "dp"
    sharded = replicas > 1 and parallel.zero > 0
    if replicas > 1 and any(chunk.head for chunk in held):
        counter.add(batch, "all_reduce", "int64", elements=1)  # labels that count
        counter.add(batch, "all_reduce", dtypes.wide, elements=1)  # the loss
    if parallel.tp > 1 and shared.partial(spec):
        counter.add("tp", "all_reduce", dtypes.gradients, elements=shared.whole(spec, held))
    for group, elements in shared.sums(spec, held):
        counter.add(group, "all_reduce", dtypes.gradients, elements=elements)
    _of_experts(counter, spec, layout, held)
    if sharded:
        _sharded(counter, spec, layout, held, numel)
    elif replicas > 1:
        for elements in _buckets(numel):
            counter.add(batch, "all_reduce", dtypes.gradients, elements=elements)
    frozen = rank_of(spec) is not None
    if sharded or (parallel.ep * parallel.etp > 1 and not frozen):
        counter.add("world", "all_reduce", dtypes.wide, elements=1)
    elif parallel.tp * parallel.pp > 1:
        group = "_".join(a for a in ("tp", "pp") if getattr(parallel, a) > 1)
        counter.add(group, "all_reduce", dtypes.wide, elements=1)


def _of_experts(counter: _Counter, spec: Spec, layout: Layout, held: list[Stage]) -> None:
    """Gradients and weights of routed experts over the ranks that hold the same ones."""
    numel, dtypes = of_experts.held(spec, held), dtypes_of(spec)
    ranks = of_experts.copies(layout, zero=spec.parallel.zero)
    if rank_of(spec) is not None:  # frozen: they are whole, or gathered where they are used
        routed = units.expert_traffic(spec, held, ranks)
        if spec.parallel.zero == 3 and routed is not None:
            group = "expert_shard" if _copied(spec) else "edp"
            weights = Kind(group, "all_gather", dtypes.compute)
            _send(counter, weights, routed.gathered, microbatches(spec))
        return
    if spec.parallel.zero == 1 and _copied(spec):
        for elements in _buckets(-(-numel // ranks)):
            counter.add("expert_replicate", "all_reduce", dtypes.gradients, elements=elements)
    if not numel or ranks == 1:
        return
    group = "expert_shard" if _copied(spec) else "edp"
    if spec.parallel.zero == 0:
        for elements in _buckets(numel):
            counter.add("edp", "all_reduce", dtypes.gradients, elements=elements)
        return
    if spec.parallel.zero > 1:
        traffic = units.expert_traffic(spec, held, ranks)
        assert traffic is not None
        count = microbatches(spec)
        _send(counter, Kind(group, "reduce_scatter", dtypes.gradients), traffic.reduced, count)
        weights = Kind(group, "all_gather", dtypes.compute)
        if spec.parallel.zero == 2:
            _send(counter, weights, traffic.reduced)
        else:
            _send(counter, weights, traffic.gathered, count)
        return
    padded = -(-numel // ranks) * ranks
    counter.add(group, "reduce_scatter", dtypes.gradients, elements=padded)
    counter.add(group, "all_gather", dtypes.compute, elements=padded)


def _copied(spec: Spec) -> bool:
    """Whether a part of the replicas shares one copy of the state, and the rest has others."""
    return spec.parallel.shard < spec.parallel.dp * spec.parallel.cp


def _sharded(counter: _Counter, spec: Spec, layout: Layout, held: list[Stage], numel: int) -> None:
    """ZeRO: gradients to the ranks that own them, weights to those that use them.

    1: one buffer, once a step. 2: units, their gradients each microbatch. 3: their weights, too.
    Adapters are one buffer; what they adapt is gathered in units.
    Where `shard` is a part of the replicas, what a rank owns is summed over the others.
    """
    parallel, dtypes, count = spec.parallel, dtypes_of(spec), microbatches(spec)
    ranks, frozen = parallel.shard, rank_of(spec) is not None
    group = "shard" if _copied(spec) else "dp_cp" if parallel.cp > 1 else "dp"

    def send(collective: str, dtype: str, sent: units.Sent, times: int = 1) -> None:
        if ranks > 1:
            _send(counter, Kind(group, collective, dtype), sent, times)

    if frozen and parallel.zero == 3:
        send("all_gather", dtypes.compute, units.gathered(spec, held), count)
    if parallel.zero == 1 or frozen:
        owned = -(-numel // ranks)
        for collective, dtype in (
            ("reduce_scatter", dtypes.gradients),
            ("all_gather", dtypes.compute),
        ):
            send(collective, dtype, units.Sent(1, owned * ranks))
    else:
        each, gathered, owned = units.traffic(spec, held)
        send("reduce_scatter", dtypes.gradients, each, count)
        if parallel.zero == 2:
            send("all_gather", dtypes.compute, each)
        else:
            send("all_gather", dtypes.compute, gathered, count)
        # Units of experts are owned in the same buffer.
        together = of_experts.copies(layout, zero=parallel.zero)
        routed = units.expert_traffic(spec, held, together)
        owned += of_experts.held(spec, held) if routed is None else routed.owned
    if _copied(spec):
        for elements in _buckets(owned):
            counter.add("replicate", "all_reduce", dtypes.gradients, elements=elements)


def _send(counter: _Counter, kind: Kind, sent: units.Sent, times: int = 1) -> None:
    counter.calls[kind] += times * sent.calls
    counter.bytes[kind] += times * sent.elements * BYTES[kind.dtype]


def _buckets(numel: int) -> Iterator[int]:
    full, rest = divmod(numel, GRADIENT_BUCKET)
    yield from [GRADIENT_BUCKET] * full
    if rest:
        yield rest
