"""Nominal seconds of one microbatch on each pipeline rank, and the layers' own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from parlay.compiler.layout import Layout, Stage
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.time import collectives, gemm, shapes, tuning
from parlay.compiler.ledger.time.bubble import Split
from parlay.compiler.ledger.time.efficiency import Efficiency
from parlay.compiler.ledger.time.layer import HOST_S, LAUNCH_S, Layer, Wires, layer, pair_of
from parlay.compiler.ledger.time.machine import Machine, Wire
from parlay.compiler.ledger.time.parts import add, total
from parlay.compiler.spec.blocks import Spec, Train
from parlay.compiler.spec.schema import Setting

SUBLAYERS = {
    "core_attention": ("core_attention",),
    "mlp": ("mlp", "down"),
    "norm": ("norm",),
    "experts": ("experts",),
    "router": ("router",),
}


@dataclass(frozen=True, slots=True)
class Block:
    """A kind of layer, or an end of the model: forward, backward and their repeated part.

    `seconds_weights` are those of the backward that may be put off: gradients of weights.
    """

    forward: dict[str, float]
    backward: dict[str, float]
    seconds_forward: float
    seconds_backward: float
    again_flops: float = 0.0
    seconds_weights: float = 0.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The work of a microbatch on every rank of the pipeline.

    `counts[r]` are the numbers of (plain layers, layers with experts, embeddings, heads) of rank r.
    """

    blocks: tuple[Block, ...]
    counts: tuple[tuple[float, ...], ...]

    def seconds(self, counts: tuple[float, ...]) -> tuple[float, float]:
        """Forward and backward of one microbatch through `counts` blocks."""
        forward = backward = 0.0
        for number, block in zip(counts, self.blocks, strict=True):
            forward += number * block.seconds_forward
            backward += number * block.seconds_backward
        return forward, backward

    def split(self, counts: tuple[float, ...]) -> Split:
        """Forward, and the halves of the backward."""
        forward, backward = self.seconds(counts)
        pairs = zip(counts, self.blocks, strict=True)
        weights = sum(number * block.seconds_weights for number, block in pairs)
        return Split(forward, backward - weights, weights)

    def parts(self, counts: tuple[float, ...]) -> dict[str, float]:
        """Nominal seconds of `counts` blocks, forward and backward."""
        found: dict[str, float] = {}
        for number, block in zip(counts, self.blocks, strict=True):
            if number:
                add(found, block.forward, number)
                add(found, block.backward, number)
        return found


def wires(layout: Layout, machine: Machine) -> Wires:
    """The wires that a layer talks over."""

    def of(kind: str) -> Wire | None:
        known = kind in layout.kinds and layout.size(kind) > 1
        return machine.wire(layout, kind) if known else None

    far = machine.per_gpu_fabric("all_to_all", "ep")
    return Wires(of("tp"), of("cp"), of("ep"), of("etp"), far)


def pipeline(spec: Spec, layout: Layout, machine: Machine, efficiency: Efficiency) -> Pipeline:
    """Every rank's work."""
    blocks = kinds(spec, machine, wires(layout, machine), efficiency)
    return Pipeline(blocks, shares(spec, layout))


def kinds(spec: Spec, machine: Machine, joined: Wires, efficiency: Efficiency) -> tuple[Block, ...]:
    """The plain layer, the one with experts, the embedding and the head."""
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    mixture = model.experts
    mixed = mixture.layers_before(model.layers) if mixture is not None else 0
    build = layer
    if train.lora is not None or efficiency.documents is not None:
        build = partial(tuning.layer, efficiency)
    blocks = [
        _block(
            build(spec, machine, joined, experts=kind, once=efficiency.dispatch_once),
            train,
            efficiency,
        )
        if (mixed if kind else model.layers - mixed)
        else EMPTY
        for kind in (False, True)
    ]
    blocks += [
        _embedding(spec, machine, joined, efficiency),
        _head(spec, machine, joined, efficiency),
    ]
    if train.lora is not None:
        first = blocks[mixture is not None and mixture.holds(0)].backward
        spared = tuning.unasked(spec, machine, joined, efficiency)
        # Frozen rows have no backward; what the first layer spares is no more than it takes.
        less = {name: max(spared[name], -first[name]) for name in spared if name in first}
        blocks[2] = _made(blocks[2].forward, less, efficiency)
    return tuple(blocks)


def blocks_of(spec: Spec, chunk: Stage) -> tuple[float, float, float, float]:
    """How many blocks of each kind a chunk has: plain layers, layers with experts, ends."""
    model = spec.model
    assert model is not None
    mixture, mixed = model.experts, 0
    if mixture is not None:
        mixed = mixture.layers_before(chunk.last + 1) - mixture.layers_before(chunk.first)
    plain = chunk.last - chunk.first + 1 - mixed
    further = model.mtp_layers if chunk.head else 0
    if mixture is not None and mixture.layers_before(model.layers):
        mixed += further
    else:
        plain += further
    return (float(plain), float(mixed), float(chunk.embedding), float(chunk.head + further))


def shares(spec: Spec, layout: Layout) -> tuple[tuple[float, ...], ...]:
    """How many blocks of each kind every rank has; see `Pipeline`.

    DualPipe's two copies of a stage have half of the microbatches each.
    """
    copies = 0.5 if spec.parallel.schedule.name == "dualpipe" else 1.0
    found: list[tuple[float, ...]] = [()] * len(layout.rows)
    for ranks in layout.alike:
        row = [blocks_of(spec, chunk) for chunk in layout.rows[ranks[0]]]
        counts = tuple([copies * sum(column) for column in zip(*row, strict=True)])
        for rank in ranks:
            found[rank] = counts
    return tuple(found)


EMPTY = Block({}, {}, 0.0, 0.0)


def _made(
    forward: dict[str, float],
    backward: dict[str, float],
    efficiency: Efficiency,
    again_flops: float = 0.0,
    weights: dict[str, float] | None = None,
) -> Block:
    factors = efficiency.factors
    late = total(weights, factors) if weights else 0.0
    seconds = total(forward, factors), total(backward, factors)
    return Block(forward, backward, *seconds, again_flops, late)


def _block(made: Layer, train: Train, efficiency: Efficiency) -> Block:
    forward: dict[str, float] = {}
    backward: dict[str, float] = {}
    again_flops = 0.0
    for name, parts in made.forward.items():
        add(forward, parts)
        add(backward, made.backward[name])
        share = repeated(train.recompute, name, early=efficiency.early_stop)
        if share:
            add(backward, parts, share)
            again_flops += share * made.flops.get(name, 0.0)
    for parts in (forward, backward):
        if "cp" in parts:
            # The ring runs beside the attention of the blocks that are there already.
            core = parts.get("attention", 0.0) * efficiency.factors["attention"]
            hidden = efficiency.overlap_cp
            parts["cp"] = (1 - hidden) * parts["cp"] + hidden * max(0.0, parts["cp"] - core)
    ahead = again = 0.0
    for name, seconds in made.host.items():
        ahead += efficiency.host * seconds
        share = repeated(train.recompute, name, early=efficiency.early_stop)
        again += efficiency.host * seconds * share
    _floor(forward, efficiency, ahead)
    _floor(backward, efficiency, 2 * ahead + again)
    return _made(forward, backward, efficiency, again_flops, made.weights)


def _floor(parts: dict[str, float], efficiency: Efficiency, more: float) -> None:
    """Small kernels wait for the host to start them: its time is the least that a layer takes, and
    then all that it takes. `more` are its seconds beside those of the kernels counted."""
    host = parts.get("launch", 0.0) / LAUNCH_S * HOST_S + more
    if host > total(parts, efficiency.factors):
        parts.clear()
        parts["host"] = host


def repeated(recompute: Setting, sublayer: str, *, early: bool) -> float:
    """The share of a sublayer's forward that the backward runs a second time.

    PyTorch's checkpoint stops early, once the last saved tensor is there: a layer's last product
    is not run again. Megatron's runs the whole layer.
    """
    if recompute.name == "full":
        if early and sublayer == "down":
            return 0.0
        every = recompute.get("every")
        return 1.0 / every if every else 1.0
    if recompute.name != "selective":
        return 0.0
    flags = recompute.flags or ("core_attention",)
    return float(any(sublayer in SUBLAYERS.get(flag, ()) for flag in flags))


def _embedding(spec: Spec, machine: Machine, joined: Wires, efficiency: Efficiency) -> Block:
    """A look-up: a row read and written a token; the backward adds to rows in fp32.

    Rows are dealt over tp, and what the ranks found is summed: whole, or each its tokens.
    """
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None
    t = shapes.tokens(train, parallel)
    forward = {"pointwise": 4.0 * t * model.hidden / machine.memory_rate, "launch": 3 * LAUNCH_S}
    backward = {"pointwise": 12.0 * t * model.hidden / machine.memory_rate, "launch": 3 * LAUNCH_S}
    if joined.tp is not None:
        message = shapes.element(train) * t * model.hidden
        if parallel.sequence_parallel:
            forward["tp"] = collectives.seconds("reduce_scatter", joined.tp, message)
            backward["tp"] = collectives.seconds("all_gather", joined.tp, message)
        else:
            forward["tp"] = collectives.seconds("all_reduce", joined.tp, message)
    return _made(forward, backward, efficiency)


def _head(spec: Spec, machine: Machine, joined: Wires, efficiency: Efficiency) -> Block:
    """The last product and the loss; logits are read and written at fp32 about four times."""
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None
    t = shapes.tokens(train, parallel)
    columns = padded_vocab(spec) / parallel.tp
    moved = t * columns / machine.memory_rate
    forward = {
        "gemm": gemm.seconds(t, columns, model.hidden, machine),
        "loss": 12.0 * moved,
        "launch": 8 * LAUNCH_S,
    }
    frozen = train.lora is not None
    backward = {
        "gemm": gemm.backward(t, columns, model.hidden, machine, frozen=frozen),
        "loss": 8.0 * moved,
        "launch": 6 * LAUNCH_S,
    }
    if joined.tp is not None:
        message = shapes.element(train) * t * model.hidden
        backward["tp"] = sum(
            collectives.seconds(name, joined.tp, message) for name in pair_of(parallel)
        )
        if parallel.sequence_parallel:
            forward["tp"] = collectives.seconds("all_gather", joined.tp, message)
    if frozen and joined.tp is not None and parallel.sequence_parallel:
        # No weight's gradient asks for the input once more.
        backward["tp"] = collectives.seconds("reduce_scatter", joined.tp, message)
    weights = {} if frozen else {"gemm": gemm.seconds(columns, model.hidden, t, machine)}
    return _made(forward, backward, efficiency, weights=weights)
