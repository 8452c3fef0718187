"""Expert parallelism leaves the fast domain.

What
    A warning where the ranks of one ep · etp group lie in several fast domains; a note where the
    router keeps each token to a few nodes (`experts.node_limit`).
Why
    Every token travels to its experts and back, forward and backward, in every layer with experts.
    Large ep over a network is common practice, but it needs a fast one, and routing limited to few
    nodes helps.
Example
    model from "mixtral-8x7b"
    cluster { nodes = 8, node from "h100-nvl-pairs" }
    parallel {
      ep = 8
      #    ^ N202
      zero = 1
    }
Instead
    model from "mixtral-8x7b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      ep = 8
      zero = 1
    }
Source
    arXiv:2412.19437 (DeepSeek-V3), section 3.2.2: node-limited routing over four nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import wires, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note, warning

CODE = "N202"
TITLE = "expert parallelism leaves the fast domain"
READS = ("layout", "model.experts.count", "parallel.ep", "parallel.etp")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    layout, parallel = subject.laid_out, subject.parallel
    if layout.expert is None:
        return
    reach = layout.reach("etp_ep")
    if reach.domains == 1:
        return
    names = [name for name in ("etp", "ep") if getattr(parallel, name) > 1]
    said = words.product(names, [getattr(parallel, name) for name in names])
    spans = words.counted(reach.domains, "fast domain")
    span, label = subject.label(f"parallel.{names[-1]}", f"one group touches {spans}")
    limit = subject.model.experts.node_limit if subject.model.experts else None
    yield (warning if limit is None else note)(
        CODE,
        f"{said} spans {spans} of {words.counted(layout.placement.domain, 'GPU')}",
        span,
        label,
        also=[wires.domain_label(subject, layout.placement.domain)],
        notes=[
            "each token is sent to its experts and back, forward and backward, in every expert "
            "layer",
            *wires.cost(subject, reach.link),
        ],
    )
