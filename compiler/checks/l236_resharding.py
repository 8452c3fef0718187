"""A phase starts from a checkpoint that is cut anew.

What
    A note where the layout of a phase gives ranks other pieces of the weights or of the optimizer
    state than the phase before left in its checkpoint.
Why
    Such a load is legal: every rank reads the pieces it holds now. But it reads from files that
    other ranks wrote, so all of them must be in reach, and it wants a format that can be cut anew
    (one file a rank with that rank's own pieces cannot).
Example
    model from "llama3.2-3b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    phase "long" {
      parallel { tp = 4, cp = 2 }
      #               ^ L236
      train { seq = 32Ki }
    }
Instead
    model from "llama3.2-3b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    phase "long" {
      train { seq = 32Ki }
    }
Source
    Llama 3, arXiv:2407.21783, section 3.3: its long-context phase trains under another layout.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.ledger.goodput import checkpoint_bytes
from parlay.compiler.ledger.reload import Placed, reload
from parlay.dsl.diagnostics import Diagnostic, note

CODE = "L236"
TITLE = "a phase starts from a checkpoint that is cut anew"
READS = ("layout", "whole", "model.layers", "model.hidden", "model.vocab")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    before = subject.before
    if before is None or not before.has(READS):
        return
    found = reload(Placed(before.spec, before.laid_out), Placed(subject.spec, subject.laid_out))
    if not found.reshards:
        return
    cuts = {cut.path: cut.words for cut in found.cuts}
    (path, first), *rest = cuts.items()
    size = words.memory(checkpoint_bytes(subject.spec))
    span, label = subject.label(path, first)
    yield note(
        CODE,
        f"the phase starts with a resharding load of {size}",
        span,
        label,
        also=[subject.label(other, said) for other, said in rest],
        notes=[f"{before.world} ranks wrote the checkpoint, {subject.world} ranks read it"],
    )
