"""The degrees do not fill the cluster.

What
    tp · cp · pp · dp is the number of GPUs: nodes · GPUs of a node.
Why
    Every GPU is one point of the grid of tp, cp, pp and dp. With a smaller product GPUs are left
    over, with a larger one ranks have nowhere to run. Frameworks that round the data-parallel
    degree down leave GPUs idle in silence.
Example
    model from "llama3-8b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      dp = 4
      #    ^ L201
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      tp = 8
      pp = 4
      dp = auto
    }
Source
    Megatron-Core, parallel_state.initialize_model_parallel; torchtitan, ParallelDims.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.source import Span

CODE = "L201"
TITLE = "the degrees do not fill the cluster"
READS = ("cluster.nodes", "cluster.node.gpus", "parallel.tp", "parallel.cp", "parallel.pp")
ALLOWED = False

FACTORS = ("tp", "cp", "pp")


def check(subject: Subject) -> Iterator[Diagnostic]:
    world = subject.world
    assert world is not None
    dp = subject.parallel.dp
    model = _product(subject)
    if dp is not None:
        if model * dp != world:
            yield _unequal(subject, world, model, dp)
    elif subject.derived("parallel.dp") and "parallel.dp" not in subject.open and world % model:
        yield _indivisible(subject, world, model)


def _product(subject: Subject) -> int:
    return subject.parallel.tp * subject.parallel.cp * subject.parallel.pp


def _unequal(subject: Subject, world: int, model: int, dp: int) -> Diagnostic:
    """dp is given, and not what the other degrees leave."""
    names = _named(subject, (*FACTORS, "dp"))
    span, label = subject.label("parallel.dp", words.ranks("dp", dp))
    fits, rest = divmod(world, model)
    if rest == 0:
        arithmetic = f"{_division(subject, world)} = {fits}: dp would be {fits}"
        same = suggest.choices(subject, "parallel.dp", [fits], wanted=dp)
    else:
        arithmetic = f"{_division(subject, world)} leaves {rest}: no dp fits"
        same = suggest.Help()
    near = suggest.layouts(subject)
    return error(
        CODE,
        f"{_said(subject, names)}, but the cluster has {words.counted(world, 'GPU')}",
        span,
        label,
        also=_places(subject, names[:-1] if names[-1] == "dp" else names),
        notes=[_cluster(subject, world), arithmetic],
        help=[*same.help, *near.help][: suggest.MOST],
        fixes=[*same.fixes, *near.fixes][: suggest.MOST],
    )


def _indivisible(subject: Subject, world: int, model: int) -> Diagnostic:
    """dp follows from the others, which do not divide the world."""
    names = _named(subject, FACTORS)
    at = next((name for name in names if world % getattr(subject.parallel, name)), names[-1])
    size = getattr(subject.parallel, at)
    if world % size:
        beyond = f"more than {words.counted(world, 'GPU')}"
        reason = f"{size} does not divide {world}" if size <= world else beyond
    else:
        reason = "one factor too many"
    span, label = subject.label(f"parallel.{at}", reason)
    near = suggest.layouts(subject)
    fault = "does not divide" if model <= world else "is more than"
    return error(
        CODE,
        f"{_said(subject, names)} {fault} the {words.counted(world, 'GPU')} of the cluster",
        span,
        label,
        also=_places(subject, [name for name in names if name != at]),
        notes=[_cluster(subject, world), f"{_division(subject, world)} leaves {world % model}"],
        help=near.help,
        fixes=near.fixes,
    )


# ── Words ─────────────────────────────────────────────────────────────────────


def _named(subject: Subject, names: tuple[str, ...]) -> list[str]:
    """The degrees above 1; the last one anyway, so that something is named."""
    return [name for name in names if getattr(subject.parallel, name) > 1] or [names[-1]]


def _said(subject: Subject, names: list[str]) -> str:
    return words.product(names, [getattr(subject.parallel, name) for name in names])


def _division(subject: Subject, world: int) -> str:
    names = _named(subject, FACTORS)
    sizes = " · ".join(str(getattr(subject.parallel, name)) for name in names)
    return f"{world} / {sizes}" if len(names) == 1 else f"{world} / ({sizes})"


def _cluster(subject: Subject, world: int) -> str:
    cluster = subject.cluster
    nodes = words.counted(cluster.nodes, "node")
    return f"{nodes} · {words.counted(cluster.node.gpus, 'GPU')} = {world}"


def _places(subject: Subject, names: list[str]) -> list[tuple[Span, str]]:
    places = [
        subject.label(f"parallel.{name}", words.ranks(name, getattr(subject.parallel, name)))
        for name in names
    ]
    cluster = subject.cluster
    places.append(subject.label("cluster.nodes", words.counted(cluster.nodes, "node")))
    gpus = words.counted(cluster.node.gpus, "GPU")
    places.append(subject.label("cluster.node.gpus", f"{gpus} a node"))
    return places
