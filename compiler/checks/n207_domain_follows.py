"""The fast domain follows the GPUs of the node.

What
    A note where a preset node is given other `gpus` and no `link.domain`.
Why
    A preset whose GPUs all share one fast domain still has one domain with another number of them.
    Where the machine is wired otherwise (two boards of four, say), `domain` says it.
Example
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        gpus = 4
        #      ^ N207
      }
    }
    parallel { tp = 4 }
Instead
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        gpus = 4
        link { domain = 4 }
      }
    }
    parallel { tp = 4 }
Source
    The reference of the language: `domain` follows `gpus` if it did in the preset.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import devices, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "N207"
TITLE = "the fast domain follows the GPUs of the node"
READS = ("cluster.node.gpus", "cluster.node.link.domain")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if not subject.written("cluster.node.gpus") or not subject.derived("cluster.node.link.domain"):
        return
    preset = devices.preset(subject, "cluster.node.link")
    if preset is None:
        return
    gpus = subject.cluster.node.gpus
    span, label = subject.label("cluster.node.gpus", f"{words.counted(gpus, 'GPU')} a node")
    yield note(
        CODE,
        f"the fast domain follows: {words.counted(gpus, 'GPU')}",
        span,
        label,
        notes=[f"all GPUs of {preset} share one; `link {{ domain = … }}` sets another size"],
    )
