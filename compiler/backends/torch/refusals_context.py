"""What the PyTorch back end cannot express where sequences are cut over ranks."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.backends.torch.refusals_model import CODE
from parlay.compiler.spec.blocks import Parallel, Train
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error


def context_refusals(phase: Phase, train: Train, parallel: Parallel) -> Iterator[Diagnostic]:
    """One diagnostic for each field that cannot be expressed with cp above 1."""
    method = parallel.cp_method
    if method is None or parallel.cp is None or parallel.cp == 1:  # in error, or open
        return
    name = method.name

    def refused(path: str, what: str, *, words: str, help: str) -> Diagnostic:
        place, label = phase.origins.label(path, words)
        said = f"target torch cannot express {what} under `cp_method = {name}`"
        return error(CODE, said, place, label, help=[help])

    if name != "ulysses" and train.attention == "math":
        yield refused(
            "train.attention",
            "attention written out",
            words="a cut sequence is attended block by block, of which no scores are kept",
            help="`attention = flash`, or `cp_method = ulysses`, which sees whole sequences",
        )
