"""The vocabulary is padded.

What
    A note: rows are added to embedding and head until vocab_multiple · tp divides them.
Why
    Both are cut by rows over tp. The rows that are added never receive probability nor gradient,
    but take memory and time; a checkpoint's shape depends on tp through them.
Example
    model from "qwen3-8b" {
      vocab = 151_669
      #       ^^^^^^^ L226
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 4 }
Instead
    model from "qwen3-8b" {
      vocab = 151_936
    }
    cluster { node from "dgx-h100" }
    parallel { tp = 4 }
Source
    Megatron-LM, vocab_utils: ceil(vocab / (multiple · tp)) · multiple · tp, multiple 128 there.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "L226"
TITLE = "the vocabulary is padded"
READS = ("model.vocab", "parallel.tp", "parallel.vocab_multiple")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    vocab, parallel = subject.model.vocab, subject.parallel
    step = parallel.vocab_multiple * parallel.tp
    if vocab % step == 0:
        return
    padded = vocab + step - vocab % step
    span, label = subject.label("model.vocab", f"{vocab} rows")
    also = [subject.label("parallel.tp", f"embedding and head are cut over {parallel.tp} ranks")]
    if parallel.vocab_multiple > 1:
        also.append(subject.label("parallel.vocab_multiple", "rows come in multiples of this"))
    yield note(
        CODE,
        f"the vocabulary is padded to {padded} rows",
        span,
        label,
        also=also,
        notes=[
            f"{words.leaves(vocab, step)}: {words.counted(padded - vocab, 'row')} more",
        ],
    )
