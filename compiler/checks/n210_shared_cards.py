"""Several busy groups share the network cards of a node.

What
    A note where a node has fewer cards than GPUs, and groups of two kinds or more cross nodes.
Why
    Groups of different kinds may be busy at once (gradients of dp beside sends of pp), and the
    ranks of one node queue at its cards. Bandwidth per rank is the card's, divided.
Example
    model from "llama2-7b"
    cluster {
      nodes = 4
      node from "dgx-h100" {
        nic {
          count = 1
          #       ^ N210
        }
      }
    }
    parallel {
      pp = 2
      order = [dp, pp]
      zero = 1
    }
Instead
    model from "llama2-7b"
    cluster {
      nodes = 4
      node from "dgx-h100"
    }
    parallel {
      pp = 2
      order = [dp, pp]
      zero = 1
    }
Source
    NVIDIA DGX user guides: one card a GPU on the compute network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "N210"
TITLE = "several busy groups share the network cards of a node"
READS = ("layout", "cluster.node.nic.count", "cluster.node.nic.bandwidth")
ALLOWED = False

KINDS: Final = ("tp", "cp", "pp", "dp", "ep")


def check(subject: Subject) -> Iterator[Diagnostic]:
    node, layout = subject.cluster.node, subject.laid_out
    assert node.nic is not None
    if node.nic.count >= node.gpus:
        return
    experts = subject.spec.model.experts if subject.spec.model else None
    kinds = [kind for kind in KINDS if kind != "ep" or (experts and layout.expert)]
    reached = [(kind, layout.reach(kind)) for kind in kinds]
    busy = [(kind, reach) for kind, reach in reached if reach.groups_per_nic > 0]
    if len(busy) < 2:
        return
    cards = words.counted(node.nic.count, "card")
    span, label = subject.label("cluster.node.nic.count", f"for {words.counted(node.gpus, 'GPU')}")
    yield note(
        CODE,
        f"{words.listed([kind for kind, _ in busy])} groups share the {cards} of a node",
        span,
        label,
        notes=[
            f"{kind}: {reach.groups_per_nic:.3g} "
            f"{'group' if reach.groups_per_nic == 1 else 'groups'} a card"
            for kind, reach in busy
        ],
    )
