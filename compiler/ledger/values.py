"""The ledger's figures under the names that `assert` and `diff` have for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from parlay.compiler.ledger.document import Ledger
from parlay.compiler.spec.asserting import CATEGORIES, VALUES
from parlay.dsl.units import Dimension, Quantity, show

NO_RECIPE = "it needs `train` and the model's shape"
NO_TIME = "it needs `train`, the model's shape and the GPU's speed, stated or measured"
NO_END = "`train` states neither `steps` nor `tokens`"


@dataclass(frozen=True, slots=True)
class Value:
    """A figure and the arithmetic behind it; `quantity` is None where `formula` says why."""

    quantity: Quantity | None
    formula: str

    @property
    def known(self) -> Quantity | str:
        """The quantity, or why there is none."""
        return self.formula if self.quantity is None else self.quantity


def values(ledger: Ledger) -> dict[str, Value]:
    """Every name of `VALUES` that a group or a figure of this job stands behind."""
    found = {name: _value(name, number, words) for name, number, words in _figures(ledger)}
    for name in VALUES:
        if name.startswith("communication.") and name not in found:
            found[name] = _value(name, 0, "no such group has more than one rank")
    return found


def _value(name: str, number: float | None, words: str) -> Value:
    return Value(None if number is None else Quantity(Fraction(number), VALUES[name]), words)


Figure = tuple[str, "float | None", str]


def _figures(ledger: Ledger) -> Iterator[Figure]:
    yield from _memory(ledger)
    yield from _communication(ledger)
    yield from _time(ledger)
    run, found = ledger.run, ledger.goodput
    words = NO_TIME if ledger.time is None else NO_END
    steps = "" if run.steps is None else f"{run.steps:,} steps x {_step(ledger)}"
    yield "run.days", run.days, words if run.days is None else f"{steps} / 86400 s"
    hours = f"{steps} / 3600 s x {ledger.layout.world} GPUs"
    yield "run.gpu_hours", run.gpu_hours, words if run.gpu_hours is None else hours
    if run.gpu_hours is not None and run.cost is None:
        words = "the GPU has no `price`"
    yield "run.cost", run.cost, words if run.cost is None else f"{hours} x the GPU's price"
    share = None if found is None else found.useful_share
    lacking = "it needs `reliability.gpu_mtbf` and `storage.bandwidth` of the cluster"
    yield "goodput", share, lacking if share is None or found is None else found.formula


def _step(ledger: Ledger) -> str:
    return "" if ledger.time is None else f"{ledger.time.step_seconds:.4g} s"


def _memory(ledger: Ledger) -> Iterator[Figure]:
    memory = ledger.memory
    worst = memory.worst
    where = f"stage {worst.stage}, {worst.peak.name}: "
    parts = {name: size for name, size in worst.peak.categories.items() if size}
    sum_ = " + ".join(f"{name} {_data(size)}" for name, size in parts.items())
    yield "memory.peak", worst.peak_bytes, where + (sum_ or "nothing")
    for category in CATEGORIES:
        fullest = max(memory.classes, key=lambda each: each.peak.categories[category])
        lines = [
            f"{li.name} {_data(li.value_bytes)}"
            for li in fullest.peak.lines
            if li.category == category
        ]
        words = f"stage {fullest.stage}, {fullest.peak.name}: " + (" + ".join(lines) or "none")
        yield f"memory.{category}", fullest.peak.categories[category], words
    yield "memory.host_per_node", memory.host_bytes_per_node, "what `offload` moves, all GPUs"


def _communication(ledger: Ledger) -> Iterator[Figure]:
    """What one rank sends in a step over each group, on the stage that sends most."""
    sent: dict[str, dict[int, float]] = {}
    for line in ledger.communication:
        if line.collective == "recv":
            continue
        by_stage = sent.setdefault(line.group, {})
        for stage in line.stages:
            by_stage[stage] = by_stage.get(stage, 0.0) + line.wire_bytes_per_step
    for group, by_stage in sent.items():
        stage = max(by_stage, key=by_stage.__getitem__)
        terms = [
            f"{line.calls_per_step} x {_data(line.wire_bytes_per_call)} "
            f"({line.what}, {line.collective})"
            for line in ledger.communication
            if line.group == group and stage in line.stages and line.collective != "recv"
        ]
        name = f"communication.{group}.bytes"
        if name in VALUES:
            yield name, by_stage[stage], f"stage {stage}: " + " + ".join(terms)


def _time(ledger: Ledger) -> Iterator[Figure]:
    time, shape = ledger.time, ledger.pipeline
    if time is None:
        words = NO_RECIPE if shape is None else f"{shape.formula} forwards idle"
        yield "pipeline.bubble", shape.bubble if shape else None, words
        over = shape.bubble_over_ideal if shape else None
        yield "pipeline.bubble_over_ideal", over, words
        for name in VALUES:
            if name.startswith(("throughput.", "time.")):
                yield name, None, NO_TIME
        return
    formulas = time.formulas
    yield "pipeline.bubble", time.bubble, formulas["bubble"]
    yield "pipeline.bubble_over_ideal", time.bubble_over_ideal, formulas["bubble_over_ideal"]
    peak = "the GPU has no peak at this precision"
    yield "throughput.mfu", time.mfu, peak if time.mfu is None else formulas["mfu"]
    yield "throughput.hfu", time.hfu, peak if time.hfu is None else formulas["hfu"]
    yield "throughput.tokens", time.tokens_per_second, formulas["tokens_per_second"]
    each = formulas["tokens_per_second_per_gpu"]
    yield "throughput.tokens_per_gpu", time.tokens_per_second_per_gpu, each
    yield "time.step", time.step_seconds, formulas["step_seconds"]
    yield "time.compute", time.compute_seconds, formulas["compute_seconds"]
    exposed = formulas["exposed_communication_seconds"]
    yield "time.exposed_communication", time.exposed_communication_seconds, exposed


def _data(number: float) -> str:
    return show(Fraction(number), Dimension.DATA)
