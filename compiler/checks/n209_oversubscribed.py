"""Busy groups behind oversubscribed switches.

What
    A warning where `fabric.oversubscription` is above 1 and groups that communicate in every layer
    (tp, cp, ep, or ZeRO-3 shards) reach beyond one node, or one pod where `fabric.pod` says so.
Why
    Behind the leaf switches nodes share fewer wires than they have. Gradients once a step bear
    that; exchanges in every layer multiply it.
Example
    model from "mixtral-8x7b"
    cluster {
      nodes = 8
      node from "dgx-h100"
      fabric {
        oversubscription = 4
        #                  ^ N209
        pod = 2
      }
    }
    parallel {
      zero = 3
    }
Instead
    model from "mixtral-8x7b"
    cluster {
      nodes = 8
      node from "dgx-h100"
      fabric {
        oversubscription = 4
        pod = 2
      }
    }
    parallel {
      zero = 3
      shard = 16
    }
Source
    arXiv:2407.21783 (Llama 3), section 3.3.1: a fabric with 1 : 7 above the pods, jobs laid out by
    it.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import wires, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "N209"
TITLE = "busy groups behind oversubscribed switches"
READS = ("layout", "cluster.fabric.oversubscription", "parallel.zero", "parallel.shard")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    fabric, layout, parallel = subject.cluster.fabric, subject.laid_out, subject.parallel
    assert fabric is not None
    over = fabric.oversubscription
    if over <= 1:
        return
    unit = (fabric.pod or 1) * subject.cluster.node.gpus
    kinds = ["tp", "cp"]
    experts = subject.spec.model.experts if subject.spec.model else None
    if experts is not None and layout.expert is not None:
        kinds.append("ep")
    if parallel.zero == 3 and parallel.shard > 1:
        kinds.append("shard")
    beyond = [kind for kind in kinds if layout.kinds[kind].spread(unit).worst > 1]
    if not beyond:
        return
    inside = words.counted(fabric.pod or 1, "node")
    span, label = subject.label(
        "cluster.fabric.oversubscription", f"beyond {inside}, 1 / {over:g} of the cards' speed"
    )
    places = [kind for kind in beyond if kind != "shard" or subject.written("parallel.shard")]
    yield warning(
        CODE,
        f"{words.listed(beyond)} groups exchange every layer over a fabric oversubscribed {over:g} "
        "times",
        span,
        label,
        also=[
            subject.label(f"parallel.{kind}", words.ranks(kind, layout.size(kind)))
            for kind in places
        ],
        notes=wires.cost(subject, "fabric"),
    )
