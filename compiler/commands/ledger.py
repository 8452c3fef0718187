"""`parlay ledger`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parlay.compiler import pipeline
from parlay.compiler.commands.ledger_tables import print_asserts, print_scaling, print_time
from parlay.compiler.commands.printing import broken, plain, print_json, show
from parlay.compiler.commands.scaling import Point, scaling
from parlay.compiler.commands.scaling import to_json as scaling_to_json
from parlay.compiler.ledger.asserts import Judgement, judge
from parlay.compiler.ledger.asserts import to_json as asserts_to_json
from parlay.compiler.ledger.document import Ledger, ledger
from parlay.compiler.ledger.stated import beyond_peak
from parlay.compiler.ledger.to_json import to_json
from parlay.dsl.diagnostics import Diagnostic
from parlay.dsl.units import Quantity

if TYPE_CHECKING:
    from rich.console import Console

BAR = 12
STAGES = 16
SHORT = {
    "weights": "weights",
    "gradients": "grads",
    "optimizer": "optim",
    "activations": "activ",
    "logits": "logits",
    "gathered": "gather",
    "buffers": "bufs",
    "temporaries": "temps",
    "reserve": "spare",
}
"""Categories as the table's heads have them."""


@dataclass(frozen=True, slots=True)
class Account:
    """One phase of a file: its ledger, its asserts, and the same file on other nodes."""

    book: Ledger
    judgement: Judgement
    scaling: tuple[Point, ...] = ()


def run(
    files: Sequence[Path],
    *,
    formulas: bool = False,
    json: bool = False,
    nodes: Sequence[int] = (),
    at: Quantity | None = None,
) -> int:
    """Prints the ledger of every phase of every file.

    1 where a file has no layout, an assert does not hold or `at` is a speed that no GPU has.
    """
    books: list[tuple[Path, list[Account]]] = []
    failed = False
    for path in dict.fromkeys(files):
        job = pipeline.load(path)
        if broken(job):
            return 1
        accounts, told = [], list[Diagnostic]()
        for phase in job.phases:
            layout = pipeline.lay_out(phase)
            if layout is None or phase.open or phase.spec.model is None:
                show([pipeline.checked(job)], summary=True, stream=sys.stderr)
                if layout is not None:
                    print(_lacks(phase.open, path), file=sys.stderr)
                return 1
            book = ledger(phase, layout, stated=at)
            too_fast = beyond_peak(phase, book)
            if too_fast is not None:
                show([replace(job, diagnostics=(too_fast,))], summary=True, stream=sys.stderr)
                return 1
            judgement = judge(phase, book, job.sources)
            told += judgement.diagnostics
            accounts.append(Account(book, judgement, scaling(phase, book, nodes)))
        if told:
            failed = True
            told = list(dict.fromkeys(told))
            show([replace(job, diagnostics=tuple(told))], summary=True, stream=sys.stderr)
        books.append((path, accounts))
    if json:
        documents = [
            {"file": str(path), "phases": [_document(each, formulas=formulas) for each in accounts]}
            for path, accounts in books
        ]
        print_json({"version": 1, "files": documents})
    else:
        _print(books, formulas=formulas)
    return 1 if failed else 0


def _document(each: Account, *, formulas: bool) -> dict[str, Any]:
    document = to_json(each.book, formulas=formulas)
    document["asserts"] = asserts_to_json(each.judgement)
    document["scaling"] = scaling_to_json(each.scaling)
    return document


def _lacks(open_fields: object, path: Path) -> str:
    if open_fields:
        return f"fields are left to the planner: `parlay plan {path}` chooses them"
    return "the ledger needs a model"


def _print(books: Sequence[tuple[Path, list[Account]]], *, formulas: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for path, accounts in books:
        for account in accounts:
            each = account.book
            title = f"{path}" + (f" · {each.name}" if len(accounts) > 1 else "")
            console.rule(plain(title), align="left")
            _heading(console, each)
            _memory(console, each, formulas=formulas)
            _communication(console, each, formulas=formulas)
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


def _memory(console: Console, each: Ledger, *, formulas: bool) -> None:
    """The worst stage first, each with a bar against the budget."""
    from rich.table import Table

    memory = each.memory
    classes = sorted(memory.classes, key=lambda one: -one.peak_bytes)
    used = [name for name in SHORT if any(one.peak.categories[name] for one in classes)]
    size, unit = (2**30, "GiB") if memory.budget_bytes >= 2**33 else (2**20, "MiB")
    budget = memory.budget_bytes / size
    table = Table(box=None, header_style="bold", title=f"Memory in {unit}, of {budget:.1f}")
    table.title_justify = "left"
    for title in ("stage", "peak", "", "at", *(SHORT[name] for name in used)):
        left = title in ("", "at")
        table.add_column(title, justify="left" if left else "right")
    for one in classes[:STAGES]:
        share = one.peak_bytes / memory.budget_bytes if memory.budget_bytes else 0.0
        color = "red" if share > 1 else "yellow" if share > 0.9 else "green"
        filled = min(BAR, round(share * BAR))
        bar = f"[{color}]{'█' * filled}[/]{'░' * (BAR - filled)} {share:4.0%}"
        categories = one.peak.categories
        table.add_row(
            str(one.stage),
            f"{one.peak_bytes / size:.1f}",
            bar,
            one.peak.name,
            *(f"{categories[name] / size:.1f}" if categories[name] else "" for name in used),
        )
    console.print(table)
    if len(classes) > STAGES:
        console.print(f"… and {len(classes) - STAGES} emptier stages")
    for bytes_, place in (
        (memory.host_bytes_per_node, "host memory"),
        (memory.disk_bytes_per_node, "local disks"),
    ):
        if bytes_:
            console.print(f"{_bytes(bytes_)} of {place} a node")
    if formulas:
        for line in classes[0].peak.lines:
            console.print(f"  {line.category:12} {line.name}: {line.formula} = {line.value_bytes}")
        for kind in memory.layers:
            console.print("  one expert layer" if kind.experts else "  one dense layer")
            for row in kind.saved:
                console.print(f"    {row.name}: {row.formula} = {row.value_bytes}")


def _communication(console: Console, each: Ledger, *, formulas: bool) -> None:
    from rich.table import Table

    lines = sorted(each.communication, key=lambda line: -line.wire_bytes_per_step)
    if not lines:
        return
    table = Table(box=None, header_style="bold", title="Sent by one rank in a step")
    table.title_justify = "left"
    titles = ["group", "what", "collective", "calls", "each", "sent", "link", "stages"]
    for title in (*titles, *(("formula",) if formulas else ())):
        right = title in ("calls", "each", "sent")
        table.add_column(title, justify="right" if right else "left")
    for line in lines if formulas else lines[:12]:
        cells = [
            line.group,
            line.what,
            line.collective,
            str(line.calls_per_step),
            _bytes(line.bytes_per_call),
            _bytes(line.wire_bytes_per_step),
            line.link,
            _span(line.stages),
        ]
        table.add_row(*cells, *((line.formula,) if formulas else ()))
    console.print(table)
    if len(lines) > 12 and not formulas:
        console.print(f"… and {len(lines) - 12} smaller ones (--formulas shows all)")


def _closing(console: Console, each: Ledger) -> None:
    time, run = each.time, each.run
    if time is not None:
        mfu = "" if time.mfu is None else f", MFU {time.mfu:.1%}"
        band = f"± {time.band:.0%}" if time.band else "as stated"
        console.print(
            f"step {time.step_seconds:.3g} s {band}, "
            f"{time.tokens_per_second_per_gpu:,.0f} tokens/s/GPU{mfu}, bubble {time.bubble:.1%}"
        )
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
            f"in use: weights {_bytes(note.weights_bytes)}, "
            f"{_bytes(note.kv_bytes_per_token)} of cache a token",
            style="dim",
        )


def _span(stages: tuple[int, ...]) -> str:
    first, last = stages[0], stages[-1]
    if len(stages) == 1:
        return str(first)
    if len(stages) == last - first + 1:
        return f"{first}-{last}"
    return ", ".join(map(str, stages))


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024
    raise AssertionError


def _count(number: float) -> str:
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.4g}{unit}"
    return str(int(number))
