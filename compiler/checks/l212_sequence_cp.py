"""Context parallelism does not cut the sequence evenly.

What
    2 · cp divides `seq`; cp does under `ulysses`.
Why
    Under a causal mask the last tokens see most. So the sequence is cut in 2 · cp chunks, and rank
    i takes chunk i and the i-th from the end, which gives all ranks the same work. Ulysses deals
    out heads and needs cp equal shares alone.
Example
    model from "llama3.2-1b"
    cluster { node from "dgx-h100" }
    parallel { cp = 4 }
    train {
      seq = 2_999
      #     ^^^^^ L212
      micro_batch = 1
      global_batch = 8
    }
Instead
    model from "llama3.2-1b"
    cluster { node from "dgx-h100" }
    parallel { cp = 4 }
    train {
      seq = 3_000
      micro_batch = 1
      global_batch = 8
    }
Source
    Megatron-LM, arguments.validate_args: seq-length % (2 · context-parallel-size) is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import sequence, words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "L212"
TITLE = "context parallelism does not cut the sequence evenly"
READS = sequence.READS
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    seq, cp = subject.train.seq, subject.parallel.cp
    unit = sequence.context_unit(subject.parallel)
    if seq % unit == 0:
        return
    span, label = subject.label("train.seq", f"{seq} tokens")
    near = sequence.near(subject)
    factors = f"cp = {cp}" if unit == cp else f"2 · cp = {unit}"
    shares = "one share" if unit == cp else "one chunk from the front and one from the back"
    yield error(
        CODE,
        f"{factors} does not divide seq = {seq}",
        span,
        label,
        also=[subject.label("parallel.cp", f"each of {cp} ranks takes {shares}")],
        notes=[words.leaves(seq, unit)],
        help=near.help,
        fixes=near.fixes,
    )
