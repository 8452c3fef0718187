"""`parlay init`: a commented starter that checks clean."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from shlex import quote
from typing import Final

from parlay.compiler import catalog, pipeline
from parlay.compiler.commands.rewrite import create, reason
from parlay.compiler.spec.blocks import Model, Node
from parlay.dsl.diagnostics import Severity
from parlay.dsl.diagnostics.cells import harmless
from parlay.dsl.nearest import nearest

MODEL: Final = "llama3-8b"
NODE: Final = "dgx-h100"
TRIED: Final = 40
"""So many layouts are checked before init gives up; one without errors is taken sooner."""
ENOUGH: Final = 12
"""After so many a layout with warnings is good enough."""
ROOM: Final = 0.9
"""Of the memory, what a starter may fill."""


def run(name: str, model: str, node: str) -> int:
    """Writes NAME.par; 1 where it is there, cannot be written, or nothing fits; 2 for bad names."""
    for kind, wanted in (("model", model), ("node", node)):
        if catalog.load(kind, wanted) is None:
            close = ", ".join(nearest(wanted, catalog.names(kind)))
            said = f"; nearest: {close}" if close else f"; `parlay catalog {kind}` lists them"
            print(f"parlay: the catalog has no {kind} {harmless(wanted)}{said}", file=sys.stderr)
            return 2
    path = Path(name if name.endswith(".par") else f"{name}.par")
    text = starter(model, node)
    if not text:
        print(f"parlay: no layout of {model} fits on nodes of {node}", file=sys.stderr)
        return 1
    try:
        create(path, text)
    except FileExistsError:
        print(f"parlay: {harmless(str(path))} is there; it stays as it is", file=sys.stderr)
        return 1
    except (OSError, ValueError) as failure:
        why = reason(failure) if isinstance(failure, OSError) else str(failure)
        print(f"parlay: {harmless(str(path))} cannot be written: {why}", file=sys.stderr)
        return 1
    shown = harmless(str(path))
    print(f"{shown}: {model} on {node}; `parlay check {quote(shown)}` checks it")
    return 0


# ── Which layout ──────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Cut:
    """The degrees of a starter."""

    nodes: int
    tp: int
    pp: int
    dp: int
    ep: int
    uneven: bool

    @property
    def microbatches(self) -> int:
        """Enough of them to keep a pipeline busy."""
        return 4 * self.pp


def starter(model: str, node: str) -> str:
    """The text: the smallest cluster and the least cut that the rules take and that fits.

    Empty where no layout is found: a model too large for what its fast domain holds.
    """
    shape, machine = _presets(model, node)
    best, least = "", (1, 0)
    for tried, cut in zip(range(TRIED), _cuts(shape, machine), strict=False):
        if best and tried >= ENOUGH:
            break
        text = _written(model, node, shape, machine, cut)
        found = _mistakes(text)
        if found < least:
            best, least = text, found
        if least == (0, 0):
            break
    return best


def _presets(model: str, node: str) -> tuple[Model, Node]:
    job = _loaded(f'model from "{model}"\ncluster {{ node from "{node}" }}\n')
    spec = job.phases[0].spec
    assert spec.model is not None and spec.cluster is not None
    return spec.model, spec.cluster.node


def _loaded(text: str) -> pipeline.Job:
    path = Path("starter.par")
    return pipeline.load(path, {path.resolve(): text})


def _cuts(model: Model, node: Node) -> Iterator[Cut]:
    """Layouts whose states fit by a rough count, fewest nodes first, then the least cut."""
    from parlay.compiler.ledger import parameters

    total, active = parameters.total(model), parameters.active(model)
    routed = 0.0
    if model.experts is not None and model.experts.count > model.experts.top_k:
        unused = 1 - model.experts.top_k / model.experts.count
        routed = (total - active) / unused
    domain = min(node.link.domain if node.link else node.gpus, node.gpus)
    memory = node.gpu.memory_bytes * ROOM
    nodes = 1
    while nodes <= 1 << 20:
        world = nodes * node.gpus
        for cut in _cuts_of(model, node, nodes, domain) if total * 4 < memory * world else ():
            # Rank 0 holds its part of the rest as well as an expert's; activations take the rest.
            held = (total - routed) / (cut.tp * cut.pp) + routed / (cut.ep * cut.tp * cut.pp)
            if held * 6 + held * cut.ep * 12 / world * cut.tp * cut.pp < memory * 0.8:
                yield cut
        nodes *= 2


def _cuts_of(model: Model, node: Node, nodes: int, domain: int) -> Iterator[Cut]:
    world = nodes * node.gpus
    experts = model.experts.count if model.experts else 1
    ranked: list[tuple[int, int, int, int, bool]] = []
    for tp in (1, 2, 4, 8, 16):
        if tp > domain or world % tp:
            continue
        for pp in (*(2**power for power in range(7)), *_odd_divisors(model.layers)):
            if pp > model.layers or world // tp % pp:
                continue
            dp = world // tp // pp
            for ep in sorted({1, gcd(experts, dp), gcd(experts, min(dp, node.gpus))}):
                ranked.append((tp * pp * (1 if ep > 1 else experts), tp, pp, ep, tp > 1))
    for _, tp, pp, ep, _ in sorted(ranked):
        yield Cut(nodes, tp, pp, world // tp // pp, ep, bool(model.layers % pp))


def _odd_divisors(layers: int) -> list[int]:
    return [n for n in range(3, min(layers, 128) + 1, 2) if layers % n == 0]


def _mistakes(text: str) -> tuple[int, int]:
    """Errors (one more where memory does not hold it) and warnings of a starter."""
    from parlay.compiler.ledger.memory import account

    job = pipeline.checked(_loaded(text))
    errors = len(job.errors)
    warnings = sum(one.severity is Severity.WARNING for one in job.diagnostics)
    if not errors:
        layout = pipeline.lay_out(job.phases[0])
        if layout is None:
            return 1, warnings
        memory = account(job.phases[0].spec, layout)
        errors += any(one.peak_bytes > ROOM * memory.budget_bytes for one in memory.classes)
    return errors, warnings


# ── The text ──────────────────────────────────────────────────────────────────


def _written(model: str, node: str, shape: Model, machine: Node, cut: Cut) -> str:
    world = cut.nodes * machine.gpus
    seq = min(shape.context or 4096, 4096)
    replicas = f"{world} / ({cut.tp} * {cut.pp}) = {cut.dp}"
    batch = cut.dp * cut.microbatches
    lines = [
        f"# {model} on {_counted(world, 'GPU')}: {_counted(cut.nodes, 'node')} of {node}.",
        "#",
        "# parlay check      tells every mistake      parlay ledger     memory, traffic, time",
        "# parlay layout     groups and stages        parlay explain    where a value comes from",
        "",
        f'model from "{model}"  # a body overrides fields: {{ layers = 8 }}',
        "",
        "cluster {",
        f"  nodes = {cut.nodes}",
        f'  node from "{node}"  # {_counted(machine.gpus, "GPU")} each',
        "}",
        "",
        "parallel {",
        f"  tp = {cut.tp}  # ranks that share each matrix, inside a fast domain",
        f"  pp = {cut.pp}  # pipeline ranks, each with a part of the layers",
    ]
    if cut.uneven:
        lines.append(f"  stages = auto  # {shape.layers} layers do not divide by {cut.pp}")
    if cut.ep > 1:
        lines.append(f"  ep = {cut.ep}  # ranks that the experts are dealt over")
    lines.append(f"  dp = auto  # replicas: {replicas}")
    if cut.dp > 1:
        lines.append("  zero = 1  # optimizer states sharded over the replicas")
    lines += [
        "}",
        "",
        "train {",
        f"  seq = {_count(seq)}  # tokens of a sequence",
        "  micro_batch = 1  # sequences that a rank computes at once",
        f"  global_batch = {batch}  # {_counted(cut.microbatches, 'microbatch', 'es')} a replica",
        f"  precision = {_precision(machine)}",
        "  optimizer = adamw(lr = 3e-4, betas = [0.9, 0.95], weight_decay = 0.1)",
        "  lr_schedule = cosine(warmup = 100, min_lr = 3e-5)",
        "  clip = 1.0",
        "  recompute = full  # less memory for a third more computation; `none` where it fits",
        "  steps = 1000",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _precision(node: Node) -> str:
    if node.gpu.bf16_flops is not None:
        return "bf16"
    return "fp16" if node.gpu.fp16_flops is not None else "fp32"


def _count(number: int) -> str:
    return f"{number // 1024}Ki" if number % 1024 == 0 else str(number)


def _counted(number: int, thing: str, plural: str = "s") -> str:
    return f"{number} {thing}" + ("" if number == 1 else plural)
