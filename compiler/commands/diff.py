"""`parlay diff`: what changes from one file to another, as a table, as JSON, or as a gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from parlay.compiler import pipeline
from parlay.compiler.commands.gates import Gate
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import (
    failed,
    has_figures,
    incomplete,
    plain,
    priced,
    print_json,
)
from parlay.compiler.ledger.differences import Change, changes
from parlay.compiler.ledger.document import Ledger, ledger
from parlay.compiler.ledger.reload import Reload, reload
from parlay.compiler.ledger.values import values
from parlay.dsl.units import Dimension
from parlay.dsl.units import show as words

PART = Fraction(1, 10**6)
NEEDS = "a difference needs a model, a cluster and every degree"


def run(a: Path, b: Path, gates: Sequence[Gate], *, json: bool = False) -> int:
    """Prints the changes phase by phase; 1 where a file has no ledger or a gate holds."""
    jobs = [priced(path) for path in dict.fromkeys((a, b))]
    first, second = (_books(job) if has_figures(job) else None for job in (jobs[0], jobs[-1]))
    if first is None or second is None:
        return failed(*jobs, words="" if any(job.errors for job in jobs) else NEEDS, json=json)
    phases = [_phase(name, first.get(name), second.get(name)) for name in {**first, **second}]
    judged = [_judged(gate, phase) for gate in gates for phase in phases]
    for each in phases:
        each.pop("figures")
    names = str(jobs[0].path), str(jobs[-1].path)
    document = {"version": 1, "a": names[0], "b": names[1], "phases": phases, "fail_if": judged}
    if json:
        print_json(document)
    else:
        _print(document)
    wrong = any(job.errors for job in jobs)
    return 1 if wrong or any(each["fails"] for each in judged) else 0


def _books(job: pipeline.Job) -> dict[str, Ledger] | None:
    found: dict[str, Ledger] = {}
    for phase in job.phases:
        layout = pipeline.lay_out(phase)
        if layout is None or phase.open or phase.spec.model is None:
            incomplete(job, NEEDS)
            return None
        found[phase.name] = ledger(phase, layout)
    return found


def _phase(name: str, a: Ledger | None, b: Ledger | None) -> dict[str, Any]:
    if a is None or b is None:
        only = "b" if a is None else "a"
        return {"name": name, "only": only, "changes": [], "checkpoint": None, "figures": {}}
    return {
        "name": name,
        "only": None,
        "changes": [_change(each) for each in changes(a, b)],
        "checkpoint": _checkpoint(reload(a, b)),
        "figures": _figures(a, b),
    }


def _change(each: Change) -> dict[str, Any]:
    return {
        "part": each.part,
        "name": each.name,
        "a": each.a,
        "b": each.b,
        "unit": each.unit,
        "relative": each.relative,
    }


def _checkpoint(found: Reload) -> dict[str, Any]:
    why = [cut.words for cut in found.cuts]
    return {"loads": found.loads, "reshards": found.reshards, "why": why}


Pair = tuple[Fraction | None, Fraction | None]


def _figures(a: Ledger, b: Ledger) -> dict[str, Pair]:
    before, after = values(a), values(b)

    def number(of: dict[str, Any], name: str) -> Fraction | None:
        quantity = of[name].quantity if name in of else None
        return None if quantity is None else quantity.value

    return {name: (number(before, name), number(after, name)) for name in {**before, **after}}


def _judged(gate: Gate, phase: dict[str, Any]) -> dict[str, Any]:
    pair: Pair = phase["figures"].get(gate.name, (None, None))
    value = gate.measured(*pair)
    # A figure that is gone cannot be held below anything: the gate fails.
    missing = value is None and phase["only"] is None
    return {
        "text": gate.text,
        "phase": phase["name"],
        "value": None if value is None else float(value),
        "fails": missing or (value is not None and gate.holds(value)),
    }


# ── For people ────────────────────────────────────────────────────────────────


def _print(document: dict[str, Any]) -> None:
    from rich.table import Table

    console = new_console()
    for phase in document["phases"]:
        if len(document["phases"]) > 1:
            console.rule(plain(phase["name"]), align="left")
        if phase["only"] is not None:
            console.print(plain(f"only in {document[phase['only']]}"))
            continue
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2))
        for title in ("", document["a"], document["b"], "change"):
            table.add_column(plain(title), justify="right" if title else "left", overflow="fold")
        for row in _rows(phase["changes"]):
            table.add_row(*row)
        if phase["changes"]:
            console.print(table)
        else:
            console.print("nothing changes")
        found = phase["checkpoint"]
        word = "loads as it is" if not found["reshards"] else "loads, resharded"
        console.print(
            f"checkpoint: {word if found['loads'] else 'does not load'}"
            + (f" ({'; '.join(found['why'])})" if found["why"] else ""),
            markup=False,
        )
    for gate in document["fail_if"]:
        style = "red" if gate["fails"] else "green"
        word = "holds" if gate["fails"] else "does not hold"
        if gate["fails"] and gate["value"] is None:
            word = "there is no such figure to hold"
        console.print(f"fail if {gate['text']}: {word}", style=style, markup=False)


def _rows(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    part = ""
    for each in found:
        if each["part"] != part:
            part = each["part"]
            yield (f"[bold]{part}[/]", "", "", "")
        relative = each["relative"]
        change = "" if relative is None else f"{100 * relative:+.3g}%"
        cells = (_said(each[side], each["unit"]).replace("[", r"\[") for side in ("a", "b"))
        yield (f"  {each['name']}", *cells, change)  # type: ignore[misc]


def _said(value: Any, unit: str | None) -> str:
    if value is None:
        return "–"
    if unit is None or isinstance(value, str | bool):
        return str(value)
    return words(Fraction(value).limit_denominator(10**12), Dimension(unit))
