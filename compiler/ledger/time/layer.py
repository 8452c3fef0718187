"""One layer, one microbatch, one rank: nominal seconds of its sublayers, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from parlay.compiler.ledger import flops as counted
from parlay.compiler.ledger.latent import latents
from parlay.compiler.ledger.time import collectives, gemm, shapes
from parlay.compiler.ledger.time.machine import LOW, Machine, Wire
from parlay.compiler.spec.blocks import GATED, Experts, Model, Parallel, Spec, Train

LAUNCH_S: Final = 3e-6
"""Start and tail of one kernel on a busy GPU."""
HOST_S: Final = 12e-6
"""Of the host to start one of the kernels counted here: PyTorch needs 5 to 10 us each, and two or
three small ones stand behind each of these."""
KERNELS: Final = {"attention": 6, "norm": 4, "mlp": 3, "experts": 14}
"""Kernels of a sublayer's forward; a backward starts twice as many."""
ROUTING_S: Final = 2.7e-3
"""Of the host, forward, to route tokens to experts where no graph is replayed: a router of 31 to 72
kernels, counts of tokens that it waits for, permutations, exchanges, products expert by expert,
each a call of Python and of autograd (Megatron-LM's account of DeepSeek-V3 on GB200). Mixtures of
one sequence a microbatch take 9 ms a layer, forward and backward, on H100 and B200 alike."""
APART: Final = 8
"""Kernels that an expert starts of its own where no product is grouped."""
FLASH_BACKWARD: Final = 2.5
"""Work of a fused attention backward over its forward: five products for two (arXiv:2205.14135)."""
HALF_SEQUENCE: Final = 320.0
"""Sequence length at which a fused attention kernel reaches half its rate."""
NORM_BYTES: Final = 28.0
"""Bytes a token and hidden element that two norms and two residual sums move forward at bf16:
a norm reads and writes (4), a residual with dropout reads two or three and writes one (6 to 8)."""
SCORE_BYTES: Final = 11.0
"""Bytes a score that unfused attention moves forward: the product written (2), a fused scale, mask
and softmax (4), dropout with its mask (3), the second product's read (2)."""


UNFUSED_GATE: Final = 6.0
"""Passes of a gated activation with biases, for which no stack has a fused kernel: bias, two
clamps, the shifted product and its sigmoid, in place of one."""
RAGGED: Final = 1.5
"""What a grouped product loses on widths that are no multiple of its tile of 128."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Nominal seconds by sublayer, forward and backward, each by component.

    `again` names what recompute runs a second time in the backward; `flops` is the forward work of
    each sublayer in FLOPs, for HFU. `host` has a sublayer's seconds on the host, forward, beyond
    those of the kernels counted as `launch`. `weights` are the seconds of the backward, by
    component, that a split one puts off.
    """

    forward: dict[str, dict[str, float]] = field(default_factory=dict)
    backward: dict[str, dict[str, float]] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)

    def put(self, sublayer: str, component: str, forward: float, backward: float) -> None:
        """Adds seconds of one component to a sublayer."""
        if sublayer not in self.forward:
            self.forward[sublayer], self.backward[sublayer] = {}, {}
        ahead, back = self.forward[sublayer], self.backward[sublayer]
        ahead[component] = ahead.get(component, 0.0) + forward
        back[component] = back.get(component, 0.0) + backward

    def put_off(self, component: str, seconds: float) -> None:
        """Adds seconds of one component to the half of the backward that is put off."""
        self.weights[component] = self.weights.get(component, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class Wires:
    """The wires of the groups that a layer talks over; None where the group has one rank."""

    tp: Wire | None
    cp: Wire | None
    ep: Wire | None
    etp: Wire | None
    far: float


def layer(
    spec: Spec, machine: Machine, wires: Wires, *, experts: bool, once: bool = False
) -> Layer:
    """The layer with or without experts; `once` where a token goes once to a domain."""
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None
    made = Layer()
    t = shapes.tokens(train, parallel)
    written = gradient_bytes(train, parallel)
    projections = shapes.attention(model, t, parallel.tp)
    late = shapes.put_off(model, train, parallel)
    _linear(made, "attention", projections, train, machine, accumulated=written, late=late)
    fused = train.attention == "flash"
    _core(made, model, train, parallel, machine, t, fused=fused)
    _norms(made, model, train, parallel, machine, t)
    if experts:
        _experts(made, model, train, parallel, machine, wires, t, once=once)
    else:
        width = model.ffn / parallel.tp
        up, down = shapes.mlp(model, t, width)
        _linear(made, "mlp", [up], train, machine, accumulated=written)
        _linear(made, "down", [down], train, machine, accumulated=written)
        _activation(made, "mlp", model, t * width, machine)
        made.put("mlp", "launch", KERNELS["mlp"] * LAUNCH_S, 2 * KERNELS["mlp"] * LAUNCH_S)
    _exchanges(made, model, train, parallel, wires, t, experts=experts)
    return made


def gradient_bytes(train: Train, parallel: Parallel) -> float:
    """Bytes that a weight's gradient moves in each microbatch: written at bf16 where it is
    scattered at once (ZeRO-2 and 3), else read from the running sum and written back."""
    if parallel.zero >= 2:
        return 2.0
    return 8.0 if train.gradients == "fp32" else 6.0


def domains_share(experts: Experts, wire: Wire) -> float:
    """Copies of a token that leave for other domains if each gets one, over one an expert.

    k experts drawn evenly lie in D·(1 − (1 − 1/D)^k) of D domains; `node_limit` bounds that.
    """
    inside = wire.size * (1 - wire.outside) + wire.outside
    domains = max(1.0, wire.size / max(1.0, inside))
    reached = domains * (1 - (1 - 1 / domains) ** experts.top_k)
    if experts.node_limit is not None:
        reached = min(reached, float(experts.node_limit))
    return reached / experts.top_k


# ── Products ──────────────────────────────────────────────────────────────────


def _linear(
    made: Layer,
    sublayer: str,
    products: list[shapes.Product],
    train: Train,
    machine: Machine,
    *,
    kind: str = "gemm",
    accumulated: float,
    late: tuple[bool, ...] = (),
) -> None:
    """`late` says which products' weight gradients a split backward puts off, by default all."""
    low = train.precision in LOW
    name = f"{kind}_low" if low else kind
    frozen = train.lora is not None
    forward = backward = casts = weights = put_off = moved_late = 0.0
    for place, p in enumerate(products):
        ragged = RAGGED if kind == "expert" and (p.n % 128 or p.k % 128) else 1.0
        each = ragged * p.times
        forward += each * gemm.seconds(p.m, p.n, p.k, machine, low=low)
        both = each * gemm.backward(p.m, p.n, p.k, machine, low=low, frozen=frozen)
        backward += both
        if not frozen and (not late or late[place]):
            put_off += both - each * gemm.seconds(p.m, p.k, p.n, machine, low=low)
            moved_late += p.times * p.n * p.k
        made.flops[sublayer] = made.flops.get(sublayer, 0.0) + 2 * p.m * p.n * p.k * p.times
        casts += p.times * p.m * (p.k + p.n)
        weights += p.times * p.n * p.k
    if not frozen:
        moved = accumulated * weights / machine.memory_rate
        made.put(sublayer, "accumulate", 0.0, moved)
        made.put_off("accumulate", accumulated * moved_late / machine.memory_rate)
        made.put_off(name, put_off)
    made.put(sublayer, name, forward, backward)
    if low:
        # Inputs are read at two bytes, written at one and again transposed; the backward casts
        # the gradients of the outputs the same way (Transformer Engine).
        each = 4.0 * casts / 2 / machine.memory_rate
        made.put(sublayer, "quantise", each, each)


def _core(
    made: Layer,
    model: Model,
    train: Train,
    parallel: Parallel,
    machine: Machine,
    t: float,
    *,
    fused: bool,
) -> None:
    """Scores and values. Causal kernels do half the square; plain products do all of it."""
    query, _, value, _ = shapes.widths(model, parallel.tp)
    square = 2.0 * t * train.seq * (query + value)
    seen = counted.seen(model, train.seq)
    if fused:
        wide = model.head_dim if model.mla is None else model.mla.nope_dim + model.mla.rope_dim
        narrow = (128.0 / min(128, wide)) ** 0.15
        # A ring attends block by block: its kernels see a part of the sequence each.
        slow = narrow * (1.0 + HALF_SEQUENCE * parallel.cp / train.seq)
        flops = square * seen
        work = flops / machine.wide_flops * slow
        made.put("core_attention", "attention", work, FLASH_BACKWARD * work)
        made.put("core_attention", "launch", LAUNCH_S, 2 * LAUNCH_S)
    else:
        flops = square
        scores = t * train.seq * model.heads / parallel.tp
        moved = SCORE_BYTES * scores / machine.memory_rate
        products = 1.3 * flops / machine.wide_flops
        if model.head_dim % 8:
            products *= 4.5
        made.put("core_attention", "unfused", products + moved, 2 * products + 1.5 * moved)
        made.put("core_attention", "launch", 6 * LAUNCH_S, 10 * LAUNCH_S)
    made.flops["core_attention"] = square * 2 * seen


# ── Traffic ───────────────────────────────────────────────────────────────────


def _norms(
    made: Layer, model: Model, train: Train, parallel: Parallel, machine: Machine, t: float
) -> None:
    cut = parallel.tp if parallel.sequence_parallel else 1
    query, key, _, _ = shapes.widths(model, parallel.tp)
    moved = NORM_BYTES * t * model.hidden / cut / machine.memory_rate
    made.put("norm", "pointwise", moved, 1.5 * moved)
    turned = 4.0 * t * (query + key) / machine.memory_rate
    if model.position == "rope":
        made.put("attention", "pointwise", turned, turned)
    if model.qk_norm != "none":
        made.put("attention", "pointwise", turned, 2 * turned)
    for name in ("attention", "norm"):
        made.put(name, "launch", KERNELS[name] * LAUNCH_S, 2 * KERNELS[name] * LAUNCH_S)


def _activation(
    made: Layer, sublayer: str, model: Model, elements: float, machine: Machine
) -> None:
    reads = 2 if model.activation in GATED else 1
    if model.activation in GATED and "mlp" in model.bias:
        elements *= UNFUSED_GATE
    moved = 2.0 * elements * (reads + 1) / machine.memory_rate
    made.put(sublayer, "pointwise", moved, 2.0 * elements * (2 * reads + 1) / machine.memory_rate)


def _experts(
    made: Layer,
    model: Model,
    train: Train,
    parallel: Parallel,
    machine: Machine,
    wires: Wires,
    t: float,
    *,
    once: bool,
) -> None:
    experts = model.experts
    assert experts is not None
    written = gradient_bytes(train, parallel)
    routed = shapes.routed(model, t, parallel)
    late = (train.stack != "parlay",) * len(routed)
    _linear(made, "experts", routed, train, machine, kind="expert", accumulated=written, late=late)
    always = shapes.shared(model, t, parallel.tp)
    _linear(made, "router", always, train, machine, accumulated=written)
    rows = t / parallel.tp * experts.top_k * experts.imbalance
    width = experts.ffn / parallel.etp
    _activation(made, "experts", model, rows * parallel.etp * width, machine)
    # Sorted by expert before and after the exchange, and back: four passes that read and write.
    passes = 4.0 if parallel.ep > 1 else 2.0
    moved = passes * 4.0 * rows * model.hidden / machine.memory_rate
    made.put("experts", "permute", moved, moved)
    made.put("experts", "launch", KERNELS["experts"] * LAUNCH_S, 2 * KERNELS["experts"] * LAUNCH_S)
    made.host["experts"] = ROUTING_S
    if "sequential" in train.stack.split("-"):
        made.host["experts"] += APART * routed[0].times * HOST_S
    message = shapes.element(train) * rows * model.hidden
    if wires.ep is not None:
        far = wires.far / domains_share(experts, wires.ep) if once else wires.far
        twice = 2 * collectives.seconds("all_to_all", wires.ep, message, far=far)
        made.put("experts", "ep", twice, twice)
    if wires.etp is not None:
        both = 2 * collectives.seconds("all_gather", wires.etp, message * parallel.etp)
        made.put("experts", "tp", both, both)


def pair_of(parallel: Parallel) -> tuple[str, ...]:
    """What a sublayer sends over tp in one direction: its sum, whole or as gather and scatter."""
    return ("all_gather", "reduce_scatter") if parallel.sequence_parallel else ("all_reduce",)


def _of_latents(
    model: Model, parallel: Parallel, wire: Wire, t: float, width: float
) -> tuple[float, float]:
    """Forward and backward of attention over tp: latents in, the residual stream out.

    Where the sequence is cut latents are gathered and their gradients scattered; what is gathered
    again runs beside products, as for the stream. Else their gradients alone are summed. A query
    that is not compressed has the stream come besides.
    """
    sent = latents(model)
    assert sent is not None
    each = width * t

    def seconds(name: str, features: float) -> float:
        return collectives.seconds(name, wire, each * features)

    if not parallel.sequence_parallel:
        summed = seconds("all_reduce", model.hidden)
        back = seconds("all_reduce", sent.sent) + sent.stream * summed
        return summed, back
    gathered, scattered = (seconds(name, model.hidden) for name in ("all_gather", "reduce_scatter"))
    forward = seconds("all_gather", sent.sent) + scattered + sent.stream * gathered
    backward = gathered + seconds("reduce_scatter", sent.sent) + sent.stream * scattered
    return forward, backward


def _exchanges(
    made: Layer,
    model: Model,
    train: Train,
    parallel: Parallel,
    wires: Wires,
    t: float,
    *,
    experts: bool,
) -> None:
    """What attention and MLP send over tp and cp.

    Of latents those travel in place of the stream on the way in.
    Two all-reduces forward and two backward, or their gather and scatter (arXiv:2205.05198).

    A layer with routed experts exchanges over ep in place of the MLP's pair, unless shared experts
    are cut over tp. In a ring keys and values go round once, and twice that in the backward.
    """
    width = shapes.element(train)
    if wires.tp is not None:
        message = width * t * model.hidden
        pair = sum(collectives.seconds(name, wires.tp, message) for name in pair_of(parallel))
        mixture = model.experts
        one = experts and mixture is not None and not mixture.shared
        both = (
            (pair, pair) if model.mla is None else _of_latents(model, parallel, wires.tp, t, width)
        )
        made.put("attention", "tp", *both)
        if not one:
            made.put("router" if experts else "mlp", "tp", pair, pair)
    if wires.cp is not None:
        _, key, value, _ = shapes.widths(model, parallel.tp)
        turn = collectives.seconds("send", wires.cp, width * t * (key + value))
        made.put("core_attention", "cp", (parallel.cp - 1) * turn, 2 * (parallel.cp - 1) * turn)
