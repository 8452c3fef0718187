"""Read -> parse -> resolve -> lay out -> check -> account -> emit: the table of contents.

Every arrow is one function with plain data on both sides. Diagnostics are returned, never raised;
an exception is a fault of Parlay's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from parlay.compiler.project import DASH, STDIN, FilePresets, Imports, project_root, reader
from parlay.compiler.spec.resolve import Phase, resolve
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

if TYPE_CHECKING:
    from parlay.compiler.backends.emission import Emission
    from parlay.compiler.layout import Layout
    from parlay.dsl.units import Quantity


@dataclass(frozen=True, slots=True)
class Job:
    """A file with its phases resolved: what every later step starts from.

    `phases` is empty where the text could not be read at all. `sources` holds the texts that
    diagnostics point into, by name.
    """

    path: Path
    sources: Mapping[str, Source]
    phases: tuple[Phase, ...]
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that stop a compilation."""
        return tuple(d for d in self.diagnostics if d.severity is Severity.ERROR)


# ── The steps ─────────────────────────────────────────────────────────────────


WEIGHED: Final = "MNW"
"""The families of rules that weigh a layout: memory, network, speed."""
NO_TEXTS: Final[Mapping[Path, str]] = MappingProxyType({})


def load(path: Path, texts: Mapping[Path, str] = NO_TEXTS) -> Job:
    """Read, parse and resolve one file and what it imports.

    `texts` stand in place of what the files at their (resolved) paths hold; `-` is stdin.
    """
    path = STDIN if path == DASH else path
    shown, read = str(path), reader(texts)
    source, told = read(path, shown)
    if source is None:
        return Job(path, {}, (), told)
    tree, wrong = parse(source)
    imports = Imports(path, project_root(path), read)
    phases, unresolved = resolve(tree, imports, FilePresets(imports))
    diagnostics = (*told, *wrong, *unresolved, *_unknown_targets(tree))
    return Job(path, {shown: source, **imports.sources}, phases, diagnostics)


def _unknown_targets(tree: syntax.File) -> Iterator[Diagnostic]:
    """Blocks of settings for no back end there is."""
    for item in tree.statements:
        if isinstance(item, syntax.Block) and item.kind == "target":
            from parlay.compiler.backends import TARGETS
            from parlay.compiler.spec.problems import unknown_target

            if isinstance(item.label, syntax.String) and item.label.value not in TARGETS:
                yield unknown_target(item.label, tuple(TARGETS))


def lay_out(phase: Phase) -> Layout | None:
    """Axes, groups, placement and stages of a phase; None where its degrees do not make a grid."""
    from parlay.compiler.checks import degrees_hold
    from parlay.compiler.layout import lay_out as laid_out

    return laid_out(phase.spec) if degrees_hold(phase) else None


def check(path: Path, targets: Iterable[str] = (), texts: Mapping[Path, str] = NO_TEXTS) -> Job:
    """Everything wrong with a file, in one run: its text, its names and units, its layout."""
    return checked(load(path, texts), targets)


def checked(job: Job, targets: Iterable[str] = (), *, at: Quantity | None = None) -> Job:
    """The job with the diagnostics of the rules added, for the general case and for `targets`.

    Asserts are judged at the speed `at`, where one was measured.
    """
    from parlay.compiler.checks import check_phases
    from parlay.compiler.spec.problems import weighs

    targets = tuple(targets)
    told = [*job.diagnostics]
    found = check_phases(job.phases, targets, broken=bool(job.errors))
    unknown = {block for each in job.diagnostics if (block := weighs(each)) is not None}
    told += (each for each in found if not _follows(each.code, unknown))
    if targets:
        from parlay.compiler.backends import refusals

        told += [
            said
            for phase in job.phases
            for name in targets
            for said in refusals(name, phase, targets)
        ]
    told += _asserted(replace(job, diagnostics=tuple(told)), at)
    return Job(job.path, job.sources, job.phases, tuple(dict.fromkeys(told)))


def _follows(code: str, unknown: set[str]) -> bool:
    """Whether what a rule tells may follow from a field without a name in the blocks `unknown`.

    What a layout weighs is then another's; what reads no layout is told, unless it reads that
    block. The empty name stands for a block that is not known itself.
    """
    if not unknown or code[0] not in WEIGHED:
        return False
    from parlay.compiler.checks import rule

    found = rule(code)
    if found is None or "" in unknown:
        return True
    parts = {part for path in found.READS for part in path.split(".")}
    return not parts.isdisjoint({"layout", "whole", "parallel", *unknown})


def _asserted(job: Job, at: Quantity | None) -> Iterator[Diagnostic]:
    """The asserts that do not hold; they are asked where no error stands."""
    for phase in job.phases:
        if not phase.asserts or job.errors or phase.open or phase.spec.model is None:
            continue
        from parlay.compiler.ledger.asserts import judge
        from parlay.compiler.ledger.document import ledger

        layout = lay_out(phase)
        if layout is not None:
            yield from judge(phase, ledger(phase, layout, stated=at), job.sources).diagnostics


def emit(job: Job, target: str, beside: Sequence[str] = ()) -> Emission:
    """The files of `target` for every phase; an `Emission` without files says why.

    `beside` are the targets asked for with it: a batch script starts the code of one of them.
    """
    from parlay.compiler.backends import emitter
    from parlay.compiler.backends.emission import Emission

    emit_phase = emitter(target, beside)
    files: dict[str, str] = {}
    told: list[Diagnostic] = []
    names = _folders([phase.name for phase in job.phases])
    for phase, name in zip(job.phases, names, strict=True):
        layout = lay_out(phase)
        assert layout is not None, "emission follows a clean check"
        folder = f"{name}/{target}" if len(job.phases) > 1 else target
        emitted = emit_phase(phase, layout, job.sources)
        told += emitted.diagnostics
        files.update({f"{folder}/{name}": text for name, text in emitted.files.items()})
    if any(diagnostic.severity is Severity.ERROR for diagnostic in told):
        return Emission({}, tuple(told))
    return Emission(files, tuple(told))


def _folders(phases: Iterable[str]) -> list[str]:
    """Folder names, each once: letters, digits, `-` and `_` of a phase's name, the rest replaced.

    `long context`, `long/context` --> `long-context`, `long-context-2`
    """
    taken: list[str] = []
    for phase in phases:
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in phase)
        name = base = plain.strip("-")[:64] or "phase"
        number = 1
        # Some file systems take `A` and `a` for one name.
        while name.lower() in (other.lower() for other in taken):
            number += 1
            name = f"{base}-{number}"
        taken.append(name)
    return taken
