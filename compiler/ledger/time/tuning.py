"""Fine-tuning: adapters on frozen weights, and documents packed into one sequence.

An adapter of rank r on a matrix n x k makes r features of a token, and n of those
(arXiv:2106.09685): two narrow products forward, four backward, which move more than they compute,
and sums with what the matrix made. They run at 16 bits, whatever the matrices run at. What a frozen
matrix has no more, its weight's gradient, is left out in `layer.py`.
"""

from __future__ import annotations

from typing import Final

from parlay.compiler.ledger import adapters
from parlay.compiler.ledger.time import collectives, gemm, shapes
from parlay.compiler.ledger.time.efficiency import Efficiency
from parlay.compiler.ledger.time.layer import HALF_SEQUENCE, LAUNCH_S, Layer, Wires
from parlay.compiler.ledger.time.layer import layer as plain
from parlay.compiler.ledger.time.machine import LOW, Machine
from parlay.compiler.spec.blocks import Spec

KERNELS: Final = 1
"""Of an adapter's forward, counted as `layer.KERNELS` are, behind each of which stand two or three
small ones: two products, scale and sum. Its backward starts twice as many: four products, scale,
sum, and what adds both gradients up over microbatches."""


def layer(
    efficiency: Efficiency,
    spec: Spec,
    machine: Machine,
    wires: Wires,
    *,
    experts: bool,
    once: bool = False,
) -> Layer:
    """A layer of a run whose documents are packed, or that has adapters."""
    made = plain(spec, machine, wires, experts=experts, once=once)
    assert spec.train is not None
    if efficiency.documents is not None:
        _pack(made, efficiency.documents, spec)
    if spec.train.lora is not None:
        inputs = efficiency.adapters == "qkv"
        _adapt(made, spec, machine, wires, experts=experts, inputs=inputs)
    return made


def _pack(made: Layer, length: float, spec: Spec) -> None:
    """Attention of documents of `length` in place of the whole sequence.

    Of a document a token sees half of it in the mean, and kernels on so short ones are as slow as
    on any sequence of that length: (L/s) x (1 + S/L) / (1 + S/s), with S tokens at half the rate.
    """
    assert spec.train is not None
    seq, knee = spec.train.seq, HALF_SEQUENCE * spec.parallel.cp
    share = (min(length, seq) + knee) / (seq + knee)
    for parts in (made.forward["core_attention"], made.backward["core_attention"]):
        if "attention" in parts:
            parts["attention"] *= share


def _adapt(
    made: Layer, spec: Spec, machine: Machine, wires: Wires, *, experts: bool, inputs: bool
) -> None:
    """What the adapters of a layer compute, move and send."""
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None and train.lora is not None
    rank, together = train.lora["rank"], adapters.cuts_both(train)
    ffn, mixture = model.ffn, model.experts
    if experts:
        ffn = mixture.shared * mixture.shared_ffn if mixture is not None else 0
    places = {"attention": "attention", "mlp": "router" if experts else "mlp"}
    for one in adapters.linears(model, ffn, together=together, inputs=inputs):
        _adapter(made, places[one.part], one, rank, spec, machine, together=together)
    if wires.tp is None:
        return
    each = shapes.element(train) * shapes.tokens(train, parallel)
    for sent in adapters.messages(
        *(model, rank, ffn),
        sequence=parallel.sequence_parallel,
        together=together,
        inputs=inputs,
    ):
        seconds = collectives.seconds(sent.collective, wires.tp, each * sent.features)
        made.put(places[sent.part], "tp", sent.forward * seconds, sent.backward * seconds)


def _adapter(
    made: Layer,
    sublayer: str,
    one: adapters.Linear,
    rank: int,
    spec: Spec,
    machine: Machine,
    *,
    together: bool,
) -> None:
    """One adapter on a rank of tp.

    In the emitted code features are made of a rank's piece of the sequence, where it is cut, and
    what a row side adds is whole on each rank; where both sides are cut each rank makes its part
    of them, and scales what it adds in place of the features.
    """
    train, parallel = spec.train, spec.parallel
    assert train is not None
    t, tp, cut = shapes.tokens(train, parallel), parallel.tp, parallel.sequence_parallel
    row, column = one.side == "row", one.side == "column"
    k, n = one.into / (tp if row else 1), one.out / (tp if column else 1)
    low = rank / tp if together and not row else float(rank)
    tokens = t / tp if column and cut and not together else t
    made_of = one.out / tp if together else n

    def product(rows: float, columns: float, depth: float) -> float:
        return gemm.seconds(rows, columns, depth, machine)

    forward = product(tokens, low, k) + product(t, made_of, rank)
    backward = product(t, rank, made_of) + product(made_of, rank, t)
    backward += product(low, k, tokens) + product(tokens, k, low)
    made.put(sublayer, "gemm", forward, backward)
    rate = machine.memory_rate / shapes.element(train)
    added = t * n / (tp if together and row and cut else 1)
    scaled = 2.0 * (added if together else tokens * rank)
    summed = 3.0 * tokens * k
    made.put(sublayer, "pointwise", (3.0 * added + scaled) / rate, (summed + scaled) / rate)
    made.put(sublayer, "launch", KERNELS * LAUNCH_S, 2 * KERNELS * LAUNCH_S)


def unasked(spec: Spec, machine: Machine, wires: Wires, efficiency: Efficiency) -> dict[str, float]:
    """What the backward of the first layer has less than others: seconds, below zero.

    What comes before its first adapters is frozen, so their input has no gradient: no product for
    it, and no sum over tp. Megatron's recompute of whole layers asks for it all the same.
    """
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None
    if train.recompute.name == "full" and not efficiency.early_stop:
        return {}
    t, low = shapes.tokens(train, parallel), train.precision in LOW
    spared = shapes.attention(model, t, parallel.tp)[:1]
    if model.mla is not None:
        spared = [p for p in shapes.attention(model, t, parallel.tp) if p.k == model.hidden][:2]
    if model.parallel_blocks:
        spared.append(shapes.mlp(model, t, model.ffn / parallel.tp)[0])
    name = "gemm_low" if low else "gemm"
    found = {name: -sum(gemm.seconds(p.m, p.k, p.n, machine, low=low) for p in spared)}
    if wires.tp is not None:
        whole = "reduce_scatter" if parallel.sequence_parallel else "all_reduce"
        message = shapes.element(train) * t * model.hidden
        # Parallel adapters sum the gradient of their input apart, where it is whole.
        apart = adapters.cuts_both(train) and model.mla is None and not parallel.sequence_parallel
        found["tp"] = -(1 + apart) * collectives.seconds(whole, wires.tp, message)
    return found


def words(spec: Spec, efficiency: Efficiency) -> dict[str, str]:
    """What is told behind the formula of a component."""
    train, found = spec.train, {}
    if efficiency.documents is not None:
        found["attention"] = f"; of documents of {efficiency.documents:g} tokens"
    if train is None or train.lora is None:
        return found
    some = " of queries, keys and values" if efficiency.adapters == "qkv" else ""
    found["gemm"] = f"; of adapters{some} tokens·r·(n + k) forward and twice that backward, in bf16"
    found["pointwise"] = "; their sums, 6 bytes an output forward and an input backward"
    found["launch"] = f"; {KERNELS} an adapter forward, {2 * KERNELS} backward"
    found["tp"] = "; features of adapters"
    found["dp"] = "; of adapters alone" + "; frozen ones gathered" * (spec.parallel.zero == 3)
    found["optimizer"] = ", of adapters"
    return found
