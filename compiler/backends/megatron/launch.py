"""The two files: arguments, an option a line, and the script that starts them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version as version_of_package

from parlay.compiler.backends.fabric import exports
from parlay.compiler.backends.megatron.argument import Argument
from parlay.compiler.backends.megatron.options import NEWEST, version_of
from parlay.compiler.backends.places import file_name
from parlay.compiler.backends.render import Code, render
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase


def files(
    phase: Phase, layout: Layout, sections: Mapping[str, Sequence[Argument]]
) -> dict[str, str]:
    """arguments.txt and pretrain.sh."""
    cluster = phase.spec.cluster
    assert cluster is not None
    target = phase.targets.get("megatron")
    ranks = f"{layout.world} ranks" if layout.world > 1 else "1 rank"
    nodes = f"{cluster.nodes} nodes" if cluster.nodes > 1 else "1 node"
    context = {
        "name": Code(file_name(phase.origins)),
        "parlay": Code(version_of_package("parlay")),
        "version": Code(version_of((target.version if target else None) or NEWEST) or NEWEST),
        "ranks": Code(ranks),
        "machines": Code(nodes),
        "nodes": cluster.nodes,
        "gpus": cluster.node.gpus,
        "world": layout.world,
        "sections": [
            (Code(title), [Code(line(argument)) for argument in arguments])
            for title, arguments in sections.items()
            if arguments
        ],
        "one_queue": one_queue(phase),
        "exports": [Code(line) for line in exports(cluster)],
    }
    return {
        "arguments.txt": render("megatron/arguments.txt.j2", context),
        "pretrain.sh": render("megatron/pretrain.sh.j2", context),
    }


def line(argument: Argument) -> str:
    """An option and its values, each a word of the shell."""
    return " ".join((argument.option, *map(shlex.quote, argument.values)))


def one_queue(phase: Phase) -> bool:
    """Whether kernels must be started in order: tp or cp, up to Hopper, and no FSDP."""
    parallel, cluster = phase.spec.parallel, phase.spec.cluster
    assert cluster is not None
    # Blackwell is the first with products in four bits.
    older = cluster.node.gpu.fp4_flops is None
    return older and (parallel.tp > 1 or parallel.cp > 1) and parallel.zero < 2
