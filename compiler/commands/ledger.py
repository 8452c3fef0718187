"""`parlay ledger`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parlay.compiler import pipeline
from parlay.compiler.commands.ledger_accounts import print_communication, print_memory, size_of
from parlay.compiler.commands.ledger_tables import print_asserts, print_scaling, print_time
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import (
    has_figures,
    incomplete,
    plain,
    priced,
    print_json,
    show,
)
from parlay.compiler.commands.scaling import Point, scaling
from parlay.compiler.commands.scaling import to_json as scaling_to_json
from parlay.compiler.ledger.asserts import Judgement, judge
from parlay.compiler.ledger.asserts import to_json as asserts_to_json
from parlay.compiler.ledger.document import Ledger, ledger
from parlay.compiler.ledger.stated import beyond_peak
from parlay.compiler.ledger.to_json import to_json
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.units import Quantity

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Account:
    """One phase of a file: its ledger, its asserts, and the same file on other nodes."""

    book: Ledger
    judgement: Judgement
    scaling: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """One file: its phases' accounts, what is told of it, and `words` where no rule says why it
    has none."""

    job: pipeline.Job
    accounts: Sequence[Account] = ()
    words: str = ""
    failed: bool = False


def run(
    files: Sequence[Path],
    targets: Sequence[str] = (),
    *,
    formulas: bool = False,
    json: bool = False,
    nodes: Sequence[int] = (),
    at: Quantity | None = None,
) -> int:
    """Prints the ledger of every phase of every file, as the software of `targets` runs it.

    1 where a file has errors, `at` is a speed that no GPU has, or one of `targets` cannot express
    the file. Errors that leave it its figures are told beside them.
    """
    told = [_told(path, targets, nodes, at) for path in dict.fromkeys(files)]
    if json:
        print_json({"version": 1, "files": [_entry(each, formulas=formulas) for each in told]})
    else:
        _print([(each.job.path, each.accounts) for each in told], formulas=formulas)
    return 1 if any(each.failed for each in told) else 0


def _told(path: Path, targets: Sequence[str], nodes: Sequence[int], at: Quantity | None) -> Told:
    """The accounts of one file; what is wrong with it is told on stderr."""
    job = priced(path, at=at)
    if not has_figures(job):
        return Told(job, failed=True)
    refusals = _refused_by(targets, job)
    shown = _priced_by(targets, job)
    accounts, wrong = [], list[Diagnostic]()
    for phase in shown.phases:
        layout = pipeline.lay_out(phase)
        if layout is None or phase.open or phase.spec.model is None:
            words = _lacks(phase, path)
            incomplete(job, words)
            return Told(pipeline.checked(job), words="" if job.errors else words, failed=True)
        book = ledger(phase, layout, stated=at)
        too_fast = beyond_peak(phase, book)
        if too_fast is not None:
            show([replace(job, diagnostics=(too_fast,))], summary=True, stream=sys.stderr)
            return Told(replace(job, diagnostics=(*job.diagnostics, too_fast)), failed=True)
        judgement = judge(phase, book, job.sources)
        wrong += (each for each in judgement.diagnostics if each not in job.diagnostics)
        accounts.append(Account(book, judgement, scaling(phase, book, nodes)))
    wrong = list(dict.fromkeys(wrong))
    if wrong:
        show([replace(job, diagnostics=tuple(wrong))], summary=True, stream=sys.stderr)
    whole = replace(job, diagnostics=(*job.diagnostics, *refusals, *wrong))
    return Told(whole, accounts, failed=bool(whole.errors))


SOFTWARE: Final = {
    "torch": "parlay",
    "megatron": "megatron",
    "deepspeed": "deepspeed",
    "torchtitan": "torchtitan",
}
"""Target -> the `train.stack` that is its own. What starts another's code has none."""


def _priced_by(targets: Sequence[str], job: pipeline.Job) -> pipeline.Job:
    """The job with the software of the targets as `train.stack`, where the file names none."""
    stacks = [SOFTWARE[target] for target in targets if target in SOFTWARE]
    return replace(job, phases=tuple(_of_stack(phase, stacks) for phase in job.phases))


def _of_stack(phase: Phase, stacks: Sequence[str]) -> Phase:
    train, origin = phase.spec.train, phase.origins.get("train.stack")
    if not stacks or train is None or origin is None or origin.kind is not Kind.DEFAULT:
        return phase
    return replace(phase, spec=replace(phase.spec, train=replace(train, stack=stacks[0])))


def _refused_by(targets: Sequence[str], job: pipeline.Job) -> list[Diagnostic]:
    """What the targets say of the job, told on stderr too: what they cannot express, warnings."""
    if not targets:
        return []
    of_all = pipeline.check(job.path, targets).diagnostics
    told = [each for each in of_all if each not in job.diagnostics]
    of_targets = replace(job, diagnostics=tuple(told))
    show([of_targets], summary=bool(told), stream=sys.stderr)
    return told


def _entry(each: Told, *, formulas: bool) -> dict[str, Any]:
    """One file of the document of `--json`; without figures it has no phases."""
    from parlay.dsl.diagnostics.to_json import file_entry

    entry = file_entry(str(each.job.path), each.job.diagnostics, each.job.sources)
    phases = [document(account, formulas=formulas) for account in each.accounts]
    return {"file": entry["file"], "phases": phases, "error": each.words or None} | entry


def document(each: Account, *, formulas: bool) -> dict[str, Any]:
    """One phase of the document of `--json`."""
    found = to_json(each.book, formulas=formulas)
    found["asserts"] = asserts_to_json(each.judgement)
    found["scaling"] = scaling_to_json(each.scaling)
    return found


def _lacks(phase: Phase, path: Path) -> str:
    if phase.open:
        return f"fields are left to the planner: `parlay plan {path}` chooses them"
    return "the ledger needs a model and a cluster"


def _print(books: Sequence[tuple[Path, Sequence[Account]]], *, formulas: bool) -> None:

    console = new_console()
    for path, accounts in books:
        for account in accounts:
            each = account.book
            title = f"{path}" + (f" · {each.name}" if len(accounts) > 1 else "")
            console.rule(plain(title), align="left")
            _heading(console, each)
            print_memory(console, each, formulas=formulas)
            print_communication(console, each, formulas=formulas)
            if formulas and each.time is not None:
                print_time(console, each.time)
            _closing(console, each)
            print_asserts(console, account.judgement)
            print_scaling(console, account.scaling)


def _heading(console: Console, each: Ledger) -> None:
    from parlay.compiler.ledger import parameters

    model = each.spec.model
    assert model is not None
    whole, active = parameters.total(model), parameters.active(model)
    words = f"{_count(whole)} parameters"
    if active != whole:
        words += f", {_count(active)} active"
    console.print(f"{words} on {each.layout.world} GPUs", style="bold")


def _closing(console: Console, each: Ledger) -> None:
    from parlay.compiler.ledger.values import NO_TIME

    time, run = each.time, each.run
    console.print()
    train, model = each.spec.train, each.spec.model
    if train is not None and train.lora is not None and model is not None and model.layers is None:
        console.print("adapters are not counted: they follow from shapes, which `params` has not")
    if time is not None:
        mfu = "" if time.mfu is None else f", MFU {time.mfu:.1%}"
        band = f"± {time.band:.0%}" if time.band else "as stated"
        console.print(
            f"step {time.step_seconds:.3g} s {band}, "
            f"{time.tokens_per_second_per_gpu:,.0f} tokens/s/GPU{mfu}, bubble {time.bubble:.1%}"
        )
    else:
        console.print(f"no step time: {NO_TIME}")
    cluster = each.spec.cluster
    if any(call.source.startswith("measured") for call in each.calls) and cluster is not None:
        assert cluster.calibration is not None
        console.print(plain(f"priced by what was measured: {cluster.calibration.source}"))
    if run.days is not None and run.gpu_hours is not None:
        cost = "" if run.cost is None else f", ${run.cost:,.0f}"
        console.print(f"{run.days:.3g} days, {run.gpu_hours:,.0f} GPU-hours{cost}")
    if each.goodput is not None:
        found = each.goodput
        share = "" if found.useful_share is None else f", {found.useful_share:.1%} useful"
        console.print(f"an interruption every {found.mtbf_s / 3600:.3g} h{share}")
    note = each.inference
    if note.kv_bytes_per_token is not None:
        console.print(
            f"in use: weights {size_of(note.weights_bytes)}, "
            f"{size_of(note.kv_bytes_per_token)} of cache a token",
            style="dim",
        )


def _count(number: float) -> str:
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.4g}{unit}"
    return str(int(number))
