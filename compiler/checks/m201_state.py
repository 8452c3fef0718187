"""The training state does not fit the GPU.

What
    Weights, gradients, master copy and optimizer state of the fullest rank are at most
    budget.memory · gpu.memory - budget.reserve. Activations come on top and are the ledger's.
Why
    Mixed-precision Adam keeps 18 bytes a parameter (2 weight, 4 gradient, 4 master, 8 moments), 16
    with bf16 gradients. TP and PP divide them, ZeRO stage 1 shards master and moments over dp · cp,
    2 the gradients too, 3 the weights too. Of adapters on a frozen model weights and gradients are
    whole on each replica; of a model given by `params` they are not known, and not counted. A job
    that does not fit dies at its first step, after hours in the queue.
Example
    model from "llama3-70b"
    cluster { nodes = 4, node from "dgx-h100" }
     parallel {
    #^^^^^^^^ M201
      tp = 8
      dp = 4
    }
Instead
    model from "llama3-70b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 8
      dp = 4
      zero = 1
    }
Source
    ZeRO, arXiv:1910.02054, sections 3.1 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import budget, fix, suggest, words
from parlay.compiler.checks.budget import Fullest
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.state import State, bytes_per_adapter, bytes_per_parameter
from parlay.dsl.diagnostics import Diagnostic, Fix, error
from parlay.dsl.source import Span

CODE = "M201"
TITLE = "the training state does not fit the GPU"
READS = (*budget.READS, "parallel.tp", "parallel.pp")
ALLOWED = False

CATEGORIES: Final = {
    "weights": "weights",
    "gradients": "gradients",
    "master": "master weights",
    "optimizer": "optimizer state",
}
SHARDED_FROM: Final = {"weights": 3, "gradients": 2, "master": 1, "optimizer": 1}


def check(subject: Subject) -> Iterator[Diagnostic]:
    most = budget.fullest(subject)
    if most is None or most.fits:
        return
    needed, there = words.memories(most.total, most.budget)
    where = f" on stage {most.stage}" if subject.parallel.pp > 1 else ""
    help, fixes = _help(subject)
    yield error(
        CODE,
        f"the training state needs {needed} a GPU{where}, the budget is {there}",
        subject.origins.block("parallel"),
        f"{needed} a GPU",
        also=_feeding(subject, most),
        notes=[*_table(subject, most.state), _budget(subject, most)],
        help=help,
        fixes=fixes,
    )


def _table(subject: Subject, state: State) -> list[str]:
    """One line a category: bytes on the rank, bytes a parameter, and what divides them."""
    train = subject.spec.train
    each, low = bytes_per_parameter(train), train is not None and train.lora is not None
    adapters = bytes_per_adapter(train) if train is not None and low else each
    lines = []
    for name in CATEGORIES:
        held: float = getattr(state, name)
        if not held:
            continue
        by = f"{getattr(each, name):g} bytes a parameter"
        if low and name != "weights":
            by = f"{getattr(adapters, name):g} bytes a parameter of adapters"
            if name == "gradients":
                lines.append(f"{CATEGORIES[name] + ':':<17}{words.memory(held):>9}  {by}")
                continue
        if subject.parallel.zero >= SHARDED_FROM[name] and subject.parallel.shard > 1:
            by += f", sharded {subject.parallel.shard} ways"
        lines.append(f"{CATEGORIES[name] + ':':<17}{words.memory(held):>9}  {by}")
    if low and subject.model.params is not None:
        lines.append("adapters are not counted: they follow from shapes, which `params` has not")
    return lines


def _budget(subject: Subject, most: Fullest) -> str:
    allowed, memory = subject.spec.budget, subject.cluster.node.gpu.memory_bytes
    said = f"{words.percent(allowed.memory)} of {words.memory(memory)}"
    if allowed.reserve_bytes:
        said += f" less {words.memory(allowed.reserve_bytes)} in reserve"
    return f"budget: {said} is {words.memory(most.budget)}"


def _feeding(subject: Subject, most: Fullest) -> list[tuple[Span, str]]:
    """The fields that the largest category follows from."""
    largest = max(CATEGORIES, key=lambda name: getattr(most.state, name))
    parallel = subject.parallel
    model = "model.params" if subject.model.params is not None else "model.layers"
    called = CATEGORIES[largest]
    places = [subject.label(model, f"the largest part: {called}")]
    mixed = subject.spec.model is not None and subject.spec.model.experts is not None
    for axis, divided in (
        ("tp", "all but the experts" if mixed else "it"),
        ("etp", "the experts"),
        ("ep", "the experts"),
        ("pp", "it"),
    ):
        size = getattr(parallel, axis)
        if size > 1 or subject.written(f"parallel.{axis}"):
            share = f"divides {divided} by {size}" if size > 1 else f"{axis} = 1 divides nothing"
            places.append(subject.label(f"parallel.{axis}", share))
    if parallel.zero < SHARDED_FROM[largest]:
        places.append(subject.label("parallel.zero", f"each replica keeps all {called}"))
    else:
        ranks = words.counted(parallel.shard, "rank")
        places.append(subject.label("parallel.zero", f"shards the {called} over {ranks}"))
    return places


def _help(subject: Subject) -> tuple[list[str], list[Fix]]:
    """The lowest ZeRO stage that fits, else whose state alone does; then the nearest layouts."""
    if subject.searching:
        return [], []
    help: list[str] = []
    fixes: list[Fix] = []
    stages = range(subject.parallel.zero + 1, 4) if subject.parallel.shard > 1 else ()
    sharded = {stage: subject.with_values({"parallel.zero": stage}) for stage in stages}
    whole = [stage for stage, other in sharded.items() if budget.fits(other)]
    state = [
        stage
        for stage, other in sharded.items()
        if (most := budget.fullest(other)) is not None and most.fits
    ]
    for stage in (whole or state)[:1]:
        other = sharded[stage]
        figures = budget.figures(other) if whole else budget.state_figures(other)
        help.append(f"zero = {stage} fits{figures}")
        fixes += fix.set_fields(subject, {"parallel.zero": stage})
    near = suggest.layouts(subject)
    return [*help, *near.help][: suggest.MOST], [*fixes, *near.fixes][: suggest.MOST]
