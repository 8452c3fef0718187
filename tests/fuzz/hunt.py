"""Each input through `load`, the rules, every renderer and the formatter; what went wrong."""

from __future__ import annotations

import resource
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from parlay.compiler import pipeline
from parlay.compiler.backends import TARGETS
from parlay.dsl.diagnostics import Severity
from parlay.dsl.diagnostics.github import to_github
from parlay.dsl.diagnostics.sarif import to_sarif
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.diagnostics.to_json import to_json
from parlay.dsl.equal import same_tree
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

from tests.fuzz.mutate import Mutator

SECONDS: Final = 1.0
MEGABYTES: Final = 500


@dataclass(frozen=True)
class Finding:
    """An input that did harm, and how."""

    data: bytes
    what: str

    @property
    def place(self) -> str:
        """The last line of what went wrong, for telling one fault from another."""
        lines = [line for line in self.what.splitlines() if line.strip()]
        where = [line.strip() for line in lines if line.strip().startswith("File ")]
        return f"{lines[-1]} {where[-1] if where else ''}"


def hunt(seed: int, count: int, folder: Path) -> Iterator[Finding]:
    """The findings of `count` inputs of one seed; files go into `folder`."""
    (folder / "other.par").write_text("let y = 8\nparallel { cp = 1 }\n")
    yield from found_in(Mutator(seed).inputs(count), folder)


def _again(path: Path, data: bytes) -> float:
    """The processor time of a second try: the first may have paid for a busy machine."""
    began = time.process_time()
    one(path, data, target_of(data))
    return time.process_time() - began


def found_in(inputs: Iterable[bytes], folder: Path) -> Iterator[Finding]:
    """Tries every input; none may raise, take more than a second, or much memory."""
    path = folder / "run.par"
    for data in inputs:
        # Processor time: on a busy machine the clock on the wall measures the others.
        began, before = time.process_time(), _megabytes()
        try:
            one(path, data, target_of(data))
        except Exception:
            yield Finding(data, traceback.format_exc())
            continue
        spent, peak = time.process_time() - began, _megabytes()
        if spent > SECONDS and _again(path, data) > SECONDS:
            yield Finding(data, f"{spent:.1f} s")
        if peak > MEGABYTES and peak > before + 1:
            yield Finding(data, f"{peak:.0f} MB")


def target_of(data: bytes) -> Sequence[str]:
    """One input in three is asked of a target too, by its own bytes."""
    names = tuple(TARGETS)
    chosen = crc32(data) % (3 * len(names))
    return names[chosen : chosen + 1]


def one(path: Path, data: bytes, targets: Sequence[str] = ()) -> None:
    """One input the whole way."""
    path.write_bytes(data)
    job = pipeline.checked(pipeline.load(path), targets)
    told = job.diagnostics
    for diagnostic in told:
        for label in diagnostic.labels:
            source = job.sources.get(label.span.file)
            assert source is not None, f"{diagnostic.code} points into no text"
            assert 0 <= label.span.start <= label.span.end <= len(source.text)
        for fix in diagnostic.fixes:
            for edit in fix.edits:
                assert 0 <= edit.span.start <= edit.span.end, diagnostic.code
                assert edit.span.end <= len(job.sources[edit.span.file].text), diagnostic.code
    assert render(told, job.sources, color=True, width=80).count("\n") < 20_000
    to_json([(str(path), told)], job.sources)
    to_sarif(told, job.sources)
    to_github(told, job.sources)
    source = job.sources.get(str(path))
    if source is not None:
        _formatted(source)


def _formatted(source: Source) -> None:
    tree, wrong = parse(source)
    if any(diagnostic.severity is Severity.ERROR for diagnostic in wrong):
        return
    again = Source(source.name, format(tree, source))
    second, wrong = parse(again)
    assert not any(diagnostic.severity is Severity.ERROR for diagnostic in wrong), "format broke it"
    assert same_tree(tree.statements, second.statements), "format changed the tree"
    assert format(second, again) == again.text, "format is not stable"


def _megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def chunk(task: tuple[int, int]) -> list[Finding]:
    """The findings of one seed, in a folder of its own: a task for a pool of processes."""
    seed, count = task
    with tempfile.TemporaryDirectory() as folder:
        return list(hunt(seed, count, Path(folder)))
