"""ZeRO or `shard` is asked for and shards nothing.

What
    A warning where `zero` is above 0 and one rank holds each copy of the state, or where `shard` is
    set and `zero` is 0. Not where `offload` is set: there the stage says what leaves the GPU, and
    one rank may well offload the whole of it.
Why
    ZeRO shards over dp · cp. With one such rank every GPU keeps the whole state: the file asks for
    memory that it does not get.
Example
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
      zero = 3
      #      ^ W202
    }
Instead
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 4
      zero = 3
    }
Source
    arXiv:1910.02054, section 5: the state is divided by the data-parallel degree.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import fix
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, warning

CODE = "W202"
TITLE = "ZeRO or `shard` is asked for and shards nothing"
READS = ("parallel.zero", "parallel.shard", "parallel.dp", "parallel.cp", "parallel.offload")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    parallel = subject.parallel
    if parallel.zero and parallel.shard == 1 and parallel.offload.name == "none":
        group = parallel.dp * parallel.cp
        span, label = subject.label("parallel.zero", "every rank keeps the whole state")
        single = "dp · cp" if group == 1 else "shard"
        place = "parallel.dp" if group == 1 else "parallel.shard"
        yield warning(
            CODE,
            f"zero = {parallel.zero} shards nothing with {single} = 1",
            span,
            label,
            also=[subject.label(place, "one rank to shard over")],
            help=["more replicas, or ranks of cp, shard it"] if group == 1 else [],
            fixes=fix.set_fields(subject, {"parallel.zero": 0}) if group == 1 else (),
        )
    elif parallel.zero == 0 and subject.written("parallel.shard"):
        span, label = subject.label("parallel.shard", "nothing is sharded")
        yield warning(
            CODE,
            f"shard = {parallel.shard} does nothing with zero = 0",
            span,
            label,
            also=[subject.label("parallel.zero", "every rank keeps the whole state")],
            fixes=fix.set_fields(subject, {"parallel.zero": 1}),
        )
