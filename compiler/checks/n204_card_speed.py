"""A network card in bytes whose speed is sold in bits.

What
    A warning where one card is given 100 GB/s or more.
Why
    Cards are sold in bits: a "400" card moves 400 Gb/s, that is 50 GB/s one way. Written as
    `400GB/s` the network is eight times as fast as it is, and every figure about it is wrong.
Example
    model from "llama3-8b"
    cluster {
      nodes = 2
      node from "dgx-h100" {
        nic {
          bandwidth = 400GB/s
          #           ^^^^^^^ N204
        }
      }
    }
    parallel { tp = 8 }
Instead
    model from "llama3-8b"
    cluster {
      nodes = 2
      node from "dgx-h100" {
        nic {
          bandwidth = 400Gb/s
        }
      }
    }
    parallel { tp = 8 }
Source
    NVIDIA ConnectX-7: 400 Gb/s a port; the fastest cards of 2026 have 800 Gb/s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parlay.compiler.checks import literals, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "N204"
TITLE = "a network card in bytes whose speed is sold in bits"
READS = ("cluster.node.nic.bandwidth",)
ALLOWED = False

LEAST: Final = 100e9  # bytes a second: 800 Gb/s


def check(subject: Subject) -> Iterator[Diagnostic]:
    literal = literals.written(subject, "cluster.node.nic.bandwidth")
    nic = subject.cluster.node.nic
    assert nic is not None
    if literal is None or literal.unit == "Gb/s" or nic.bandwidth_bytes_per_s < LEAST:
        return
    bits = nic.bandwidth_bytes_per_s / 1e9
    meant = literal.with_unit("Gb/s") if literal.unit == "GB/s" else f"{bits:.10g}Gb/s"
    yield warning(
        CODE,
        f"a network card of {literal.text} is {bits * 8:,.10g} Gb/s",
        literal.span,
        "bytes a second, one card one way",
        notes=[f"a {meant} card moves {words.speed(bits * 1e9 / 8)} = {bits / 8:.10g} GB/s"],
        help=[f"`{meant}` is in bits, as cards are sold"],
        fixes=literals.replaced(subject, literal, [meant]),
    )
