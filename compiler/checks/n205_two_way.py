"""An NVLink at its two-way total.

What
    A warning where `link.bandwidth` is twice what the GPU's NVLink moves in one direction, or is
    given in bits.
Why
    Data sheets add up both directions: 900 GB/s of an H100 is 450 GB/s each way. Bandwidths here
    are one way, as a collective sees them; the total makes TP look twice as cheap as it is.
Example
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        link {
          bandwidth = 900GB/s
          #           ^^^^^^^ N205
        }
      }
    }
    parallel { tp = 8 }
Instead
    model from "llama3-8b"
    cluster {
      node from "dgx-h100" {
        link {
          bandwidth = 450GB/s
        }
      }
    }
    parallel { tp = 8 }
Source
    NVIDIA H100 data sheet: NVLink 900 GB/s, the sum of both directions.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import devices, literals, words
from parlay.compiler.checks.literals import Literal
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "N205"
TITLE = "an NVLink at its two-way total"
READS = ("cluster.node.link.kind", "cluster.node.link.bandwidth")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    link = subject.cluster.node.link
    assert link is not None
    literal = literals.written(subject, "cluster.node.link.bandwidth")
    if literal is None or link.kind not in devices.WIRED:
        return
    one_way = _one_way(subject)
    written = link.bandwidth_bytes_per_s
    if any(devices.close(written, speed) for speed in one_way):
        return
    if literal.unit == "Gb/s":
        meant = [speed for speed in one_way if devices.close(written * 8, speed)]
        meant += [speed for speed in one_way if devices.close(written * 4, speed)]
        said = f"{literal.text} is {words.speed(written)}"
    else:
        meant = [speed for speed in one_way if devices.close(written, 2 * speed)]
        said = f"{literal.text} is the total of both directions"
    if meant:
        yield _slip(subject, literal, meant[0], said)


def _one_way(subject: Subject) -> list[float]:
    """What the NVLinks of the GPUs that may be meant move one way."""
    gpus = devices.meant(subject)
    wires = [wire for wire in devices.wires() if wire.gpu in gpus]
    return sorted({wire.bandwidth for wire in wires or devices.wires()})


def _slip(subject: Subject, literal: Literal, speed: float, said: str) -> Diagnostic:
    text = f"{speed / 1e9:.10g}GB/s"
    return warning(
        CODE,
        f"this NVLink moves {text} in one direction",
        literal.span,
        said,
        notes=["a bandwidth is one way: what a rank can send while it receives as much"],
        help=[f"`{text}` is one way"],
        fixes=literals.replaced(subject, literal, [text]),
    )
