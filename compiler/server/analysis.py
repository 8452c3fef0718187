"""A text as it stands in the editor, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from parlay.compiler import pipeline
from parlay.compiler.ledger.values import Value
from parlay.compiler.spec.resolve import Phase
from parlay.dsl import syntax
from parlay.dsl.parse import parse
from parlay.dsl.source import Source


@dataclass
class Analysis:
    """One text, its imports from other open texts or from disk. Everything is made when asked."""

    path: Path
    text: str
    texts: Mapping[Path, str]
    targets: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name that spans have for the text."""
        return str(self.path)

    @cached_property
    def source(self) -> Source:
        """The text."""
        return Source(self.name, self.text)

    @cached_property
    def tree(self) -> syntax.File:
        """What could be read of the text."""
        return parse(self.source)[0]

    @cached_property
    def loaded(self) -> pipeline.Job:
        """The phases, without what the rules find: quick, and enough for names and values."""
        return pipeline.load(self.path, self.texts)

    @cached_property
    def job(self) -> pipeline.Job:
        """With all that is wrong."""
        return pipeline.checked(self.loaded, self.targets)

    def phase(self, name: str | None) -> Phase | None:
        """The phase of that name, the first for None."""
        phases = self.loaded.phases
        return next((phase for phase in phases if name in (None, phase.name)), None)

    def figures(self, phase: Phase) -> Mapping[str, Value]:
        """The ledger's values by the names that asserts have; none where there is no ledger."""
        if self.job.errors or phase.open or phase.spec.model is None:
            return {}
        layout = pipeline.lay_out(phase)
        if layout is None:
            return {}
        from parlay.compiler.ledger.document import ledger
        from parlay.compiler.ledger.values import values

        return values(ledger(phase, layout))
