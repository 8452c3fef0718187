"""What a page is made of: the phases of a job with everything that is known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.document import Ledger
from parlay.compiler.report.figure import Figures
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.source import Source


@dataclass(frozen=True, slots=True)
class Part:
    """One phase: its spec, layout and ledger, and the documents of `--json` of both.

    `ledger` is what `parlay ledger --formulas --nodes …` prints, `groups` what `parlay layout`.
    """

    phase: Phase
    layout: Layout
    book: Ledger
    ledger: Figures
    groups: Figures


@dataclass(frozen=True, slots=True)
class Subject:
    """A job; `told` is what its checks say, `parts` are empty where it has no figures.

    `plans` are the `phases` of `parlay plan --json` where the file left fields to it.

    `path` is the file as it was named, `sources` are the texts by name, the job's own first.
    """

    path: str
    sources: Mapping[str, Source]
    told: Sequence[Diagnostic]
    parts: Sequence[Part]
    plans: Sequence[Mapping[str, Any]] = ()


def part(
    phase: Phase,
    layout: Layout,
    book: Ledger,
    ledger: Mapping[str, Any],
    groups: Mapping[str, Any],
) -> Part:
    """One phase with its documents."""
    return Part(phase, layout, book, Figures(ledger), Figures(groups, "layout"))
