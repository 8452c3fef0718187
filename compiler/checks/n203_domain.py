"""Fast domains and nodes do not nest.

What
    `link.domain` divides the GPUs of a node, or is a whole number of nodes.
Why
    A fast domain is a part of a node (a PCIe pair) or several nodes (an NVL72): consecutive GPUs.
    With another size one domain would end in the middle of a node.
Example
    cluster {
      nodes = 2
      node from "dgx-h100" {
        link {
          domain = 3
          #        ^ N203
        }
      }
    }
    model from "llama3-8b"
    parallel { zero = 1 }
Instead
    cluster {
      nodes = 2
      node from "dgx-h100" {
        link {
          domain = 4
        }
      }
    }
    model from "llama3-8b"
    parallel { zero = 1 }
Source
    NVIDIA DGX H100 and GB200 NVL72 user guides.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import suggest, words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.layout.placement import domain_fits
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "N203"
TITLE = "fast domains and nodes do not nest"
READS = ("cluster.node.gpus", "cluster.node.link.domain")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    node = subject.cluster.node
    assert node.link is not None
    gpus, domain = node.gpus, node.link.domain
    if domain_fits(node=gpus, domain=domain):
        return
    span, label = subject.label("cluster.node.link.domain", "would end inside a node")
    near = suggest.choices(
        subject,
        "cluster.node.link.domain",
        (*words.divisors(gpus), 2 * gpus),
        wanted=domain,
        most=2,
    )
    yield error(
        CODE,
        f"domain = {domain} neither divides the {words.counted(gpus, 'GPU')} of a node nor is a "
        "whole number of nodes",
        span,
        label,
        also=[subject.label("cluster.node.gpus", f"{words.counted(gpus, 'GPU')} a node")],
        notes=[words.leaves(max(gpus, domain), min(gpus, domain))],
        help=near.help,
        fixes=near.fixes,
    )
