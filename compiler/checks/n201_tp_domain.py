"""Tensor parallelism leaves the fast domain.

What
    The ranks of one TP group lie in one fast domain (`cluster.node.link.domain` GPUs). Inside of a
    node that has no such domain (`domain = 1`, GPUs on PCIe) it is a warning: no other layout of tp
    is faster there.
Why
    TP exchanges the activations of every layer, twice forward and twice backward, and each GPU
    waits for it. Over a network ten times slower than the wire inside the node, that is most of the
    step. Where it is meant, `allow N201 "reason"` turns the error into a warning.
Example
    model from "llama2-7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 16
      #    ^^ N201
    }
Instead
    model from "llama2-7b"
    cluster { nodes = 2, node from "dgx-h100" }
    parallel {
      tp = 8
    }
Source
    arXiv:2104.04473, section 3.2 (takeaway 1): tensor parallelism up to the GPUs of a server.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix, suggest, wires, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, Fix, error, warning

CODE = "N201"
TITLE = "tensor parallelism leaves the fast domain"
READS = ("layout", "parallel.tp", "parallel.order")
ALLOWED = True


def check(subject: Subject) -> Iterator[Diagnostic]:
    layout, parallel = subject.laid_out, subject.parallel
    reach = layout.reach("tp")
    if reach.domains == 1:
        return
    domain = layout.placement.domain
    spans = words.counted(reach.domains, "fast domain")
    span, label = subject.label("parallel.tp", f"one group touches {spans}")
    also = [wires.domain_label(subject, domain)]
    help: list[str] = []
    fixes: tuple[Fix, ...] = ()
    if parallel.tp <= domain and parallel.order[0] != "tp":
        first = ("tp", *(axis for axis in parallel.order if axis != "tp"))
        also.append(subject.label("parallel.order", "tp does not vary fastest"))
        help.append("with tp first its ranks are neighbours")
        fixes = fix.set_fields(subject, {"parallel.order": fix.order_text(first)})
    near = suggest.layouts(subject)
    bare = domain == 1 and reach.nodes == 1
    yield (warning if bare else error)(
        CODE,
        f"tp = {parallel.tp} spans {spans} of {words.counted(domain, 'GPU')}",
        span,
        label,
        also=also,
        notes=wires.cost(subject, reach.link),
        help=[*help, *near.help, *([] if bare else [f'`allow {CODE} "…"` says that it is meant'])],
        fixes=[*fixes, *near.fixes],
    )
