"""The training state of one rank: weights, gradients, master copy and optimizer moments.

Bytes a parameter, by dtype; ZeRO then divides what it shards. With bf16 weights, fp32 gradients, an
fp32 master and two fp32 moments that is 2 + 4 + 4 + 8 = 18; with bf16 gradients 16, the number of
the ZeRO paper (arXiv:1910.02054, section 3.1). ZeRO stage 1 shards master and moments, 2 the
gradients too, 3 the weights too (section 5): `2 + 4 + 12 / dp` and so on.

A frozen base (LoRA) has weights alone. Its adapters have what is trained: weights and gradients
whole on every rank of dp, master and moments cut from ZeRO-1 on. Of a model given by `params` they
are not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.parameters import Parameters, stage_parameters
from parlay.compiler.ledger.shared import trained_parameters
from parlay.compiler.spec.blocks import Parallel, Spec, Train

WIDTHS: Final = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a dtype; weights are kept in bf16 under the fp8 and fp4 recipes."""


@dataclass(frozen=True, slots=True)
class State:
    """Four amounts that add up to the training state: bytes on a rank, or bytes a parameter."""

    weights: float = 0
    gradients: float = 0
    master: float = 0
    optimizer: float = 0

    @property
    def total(self) -> float:
        """All four."""
        return self.weights + self.gradients + self.master + self.optimizer

    def __add__(self, other: State) -> State:
        return State(
            self.weights + other.weights,
            self.gradients + other.gradients,
            self.master + other.master,
            self.optimizer + other.optimizer,
        )


def bytes_per_parameter(train: Train | None) -> State:
    """What each parameter costs before any sharding; without a recipe the default one counts.

    A frozen base model (LoRA) has weights alone; `bytes_per_adapter` is of its adapters.
    """
    if train is None:
        return State(weights=2, gradients=4, master=4, optimizer=8)
    weights = WIDTHS.get(train.precision, 2)
    if train.lora is not None:
        return State(weights=weights)
    return State(
        weights=weights,
        gradients=max(WIDTHS[train.gradients], 8 if train.precision == "fp64" else 0),
        master=0 if train.master == "none" else WIDTHS[train.master],
        optimizer=_moments(train),
    )


def bytes_per_adapter(train: Train) -> State:
    """What each parameter of an adapter costs before any sharding: that of full training."""
    return bytes_per_parameter(replace(train, lora=None))


def of_adapters(number: int, train: Train, parallel: Parallel, *, shard: int) -> State:
    """The state of `number` parameters of adapters on one rank, of which `offload` moves nothing.

    Their gradients are one buffer that is reduced once a step: whole from ZeRO-2 on too.
    """
    each, cut = bytes_per_adapter(train), shard if parallel.zero else 1
    return State(
        number * each.weights,
        number * each.gradients,
        number * each.master / cut,
        number * each.optimizer / cut,
    )


def _moments(train: Train) -> int:
    """Adam's two moments (and Kahan's compensation, in fp32), or SGD's momentum."""
    wide = 8 if train.precision == "fp64" else 0
    match train.optimizer.name:
        case "adamw":
            moments = 2 * max(WIDTHS[train.optimizer["states"]], wide)
            return moments + (max(4, wide) if train.optimizer["kahan"] else 0)
        case "sgd":
            return max(4, wide) if train.optimizer["momentum"] else 0
    raise AssertionError(f"no optimizer {train.optimizer.name}")


def on_rank(
    held: Parameters, each: State, *, parallel: Parallel, shard: int, expert_shard: int
) -> State:
    """The state that a rank keeps on its GPU for the parameters it holds.

    `shard` and `expert_shard` are the ranks that share one copy of the dense and of the routed
    experts' state. What `offload` moves to the host is not counted.
    """
    state = State()
    for number, ranks in ((held.dense, shard), (held.expert, expert_shard)):
        cut = [ranks if parallel.zero >= stage else 1 for stage in (3, 2, 1, 1)]
        state += State(
            weights=number * each.weights / cut[0],
            gradients=number * each.gradients / cut[1],
            master=number * each.master / cut[2],
            optimizer=number * each.optimizer / cut[3],
        )
    return _without_offloaded(state, parallel)


def _without_offloaded(state: State, parallel: Parallel) -> State:
    offload = parallel.offload
    if offload is None or offload.name == "none":
        return state
    weights = 0 if "params" in offload.flags else state.weights
    # From stage 2 on the gradients that a rank keeps are where its optimizer is.
    beside = parallel.zero >= 2 and "optimizer" in offload.flags
    return State(weights=weights, gradients=0 if beside else state.gradients)


def states(spec: Spec, layout: Layout) -> tuple[State, ...]:
    """The state of a rank of each pipeline rank; one entry for all where the model has no shape.

    A model given by `params` is split evenly: N / (tp · pp) parameters a rank; adapters are left
    out of it, since they follow from shapes.
    """
    parallel, model = spec.parallel, spec.model
    assert model is not None
    each = bytes_per_parameter(spec.train)
    shard = layout.size("shard")
    if not layout.stages:
        assert model.params is not None
        even = State(*(part / (parallel.tp * parallel.pp) for part in _parts(each)))
        return (
            on_rank(Parameters(model.params), even, parallel=parallel, shard=shard, expert_shard=1),
        )
    expert_shard = next(
        (layout.size(kind) for kind in ("expert_shard", "edp") if kind in layout.kinds), 1
    )
    frozen = tuple(
        on_rank(held, each, parallel=parallel, shard=shard, expert_shard=expert_shard)
        for held in _held(spec, layout)
    )
    train = spec.train
    if train is None or train.lora is None:
        return frozen
    return tuple(
        state + of_adapters(trained_parameters(spec, chunks).dense, train, parallel, shard=shard)
        for state, chunks in zip(frozen, layout.rows, strict=True)
    )


def _held(spec: Spec, layout: Layout) -> list[Parameters]:
    """The parameters of a rank of each pipeline rank, its chunks added up."""
    assert spec.model is not None
    parallel = spec.parallel
    held = [Parameters() for _ in range(parallel.pp)]
    known: dict[tuple[int, int, bool, bool], Parameters] = {}
    experts = spec.model.experts
    for chunk in layout.stages:
        mixed = 0
        if experts is not None:
            mixed = experts.layers_before(chunk.last + 1) - experts.layers_before(chunk.first)
        key = (chunk.layers, mixed, chunk.embedding, chunk.head)
        if key not in known:
            known[key] = stage_parameters(
                spec.model,
                range(chunk.first, chunk.last + 1),
                embedding=chunk.embedding,
                head=chunk.head,
                copied=chunk.copies_embedding,
                tp=parallel.tp,
                etp=parallel.etp,
                ep=parallel.ep,
                vocab_rows=padded_vocab(spec),
            )
        held[chunk.stage] += known[key]
    return held


def _parts(state: State) -> tuple[float, float, float, float]:
    return state.weights, state.gradients, state.master, state.optimizer
