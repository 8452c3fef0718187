"""ZeRO sends its shards again with every microbatch.

What
    A warning where `zero` is 2 or 3 and a step of a pipeline has many microbatches.
Why
    From stage 2 on gradients are kept as shards, so each microbatch's gradients are reduced and
    scattered by themselves; stage 3 gathers the weights for each microbatch as well. Stage 1 sums
    gradients locally and sends them once a step. Pipelines want many microbatches, and multiply
    this traffic by their number.
Example
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      zero = 2
      #      ^ W201
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 4, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      zero = 1
    }
    train {
      seq = 8Ki
      micro_batch = 1
      global_batch = 64
    }
Source
    arXiv:1910.02054, section 7; DeepSpeed's pipeline engine refuses ZeRO stages 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import budget, fix, microbatches, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W201"
TITLE = "ZeRO sends its shards again with every microbatch"
READS = (*microbatches.READS, "parallel.zero", "parallel.shard")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    number, parallel = subject.microbatches, subject.parallel
    if number is None or number < 2 or parallel.zero < 2 or parallel.pp == 1:
        return
    if parallel.shard == 1:
        return
    what = "gradients" if parallel.zero == 2 else "gradients and weights"
    span, label = subject.label("parallel.zero", f"{what} cross dp · cp {number} times a step")
    lower = subject.with_values({"parallel.zero": 1})
    fits = budget.fits(lower)
    yield warning(
        CODE,
        f"zero = {parallel.zero} sends {what} {number} times a step, once a microbatch",
        span,
        label,
        also=[
            subject.label("parallel.pp", words.counted(parallel.pp, "pipeline stage")),
            *microbatches.places(subject),
        ],
        notes=[microbatches.arithmetic(subject), "zero = 1 sends gradients once a step"],
        help=[f"zero = 1 fits too{budget.figures(lower)}"] if fits else (),
        fixes=fix.set_fields(subject, {"parallel.zero": 1}) if fits else (),
    )
