"""A plan as people read it: the choice, how the others lost, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parlay.compiler.checks import rule
from parlay.compiler.commands.ledger_accounts import size_of
from parlay.compiler.commands.printing import console as new_console
from parlay.compiler.commands.printing import plain
from parlay.compiler.ledger.reload import Reload
from parlay.compiler.planner import Candidate, Plan, mfu, spelling
from parlay.dsl.diagnostics.cells import harmless

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 8
"""Layouts of the front that are printed."""


def print_plan(path: Path, found: Plan) -> None:
    """Prints a plan on stdout."""

    console = new_console()
    title = f"{path}" + (f" · {found.phase.name}" if found.phase.name != "main" else "")
    console.rule(plain(title), align="left")
    _print_best(console, found)
    _print_tally(console, found)
    _print_gap(console, found)
    if found.best.top:
        _print_layouts(console, "the best", found.best.top, found.best.top[0])
        _print_values(console, found)
        ordered = found.best.fastest_first()
        few = _spaced(ordered, SHOWN)
        if len(ordered) > 1:
            words = f"no layout is better in both time and memory ({len(few)} of {len(ordered)})"
            _print_layouts(console, words, few, found.best.top[0])
    if found.fewest_gpus is not None:
        console.print(f"fewest GPUs, on whole nodes: {found.fewest_gpus}{_unsettled(found)}")


@dataclass(frozen=True, slots=True)
class Load:
    """What phase `after` loads of the checkpoint of phase `before`: `found` says how it is cut."""

    before: str
    after: str
    value_bytes: int
    found: Reload


def print_loads(loads: Sequence[Load]) -> None:
    """Prints what every phase loads of the one before it."""
    for each in loads:
        cuts = ", ".join(cut.words for cut in each.found.cuts)
        words = f"a resharding load of {size_of(each.value_bytes)}" if each.found.reshards else ""
        if not each.found.loads:
            words = "no load"
        shown = f"{words}: {cuts}" if words else "a load without resharding"
        print(harmless(f"{each.before} -> {each.after}: {shown}"))


def _print_best(console: Console, found: Plan) -> None:
    if not found.best.top:
        console.print("no layout is legal", style="bold red")
        return
    best = found.best.top[0]
    choice = "  ".join(f"{_name(p)} = {spelling(v)}" for p, v in best.chosen.items())
    console.print(plain(choice), style="bold")
    share = mfu(best.subject, best.score.step_seconds)
    words = "" if best.score.step_seconds is None else f"step {best.score.step_seconds:.4g} s, "
    words += "" if share is None else f"MFU {share:.1%}, "
    room = size_of(best.score.budget_bytes)
    console.print(f"{words}{size_of(best.score.peak_bytes)} of {room} on the fullest GPU")


def _print_tally(console: Console, found: Plan) -> None:
    tally = found.tally
    rejected = sum(tally.rejected.values())
    console.print()
    console.print(
        f"{tally.searched:,} layouts in {found.seconds:.3g} s: {tally.legal:,} judged legal, "
        f"{tally.outdone:,} that a bound shows to be no better, {rejected:,} rejected"
    )
    for code, number in tally.rejected.most_common():
        about = rule(code)
        words = about.TITLE if about is not None else tally.words.get(code, "")
        console.print(plain(f"  {code:7} {number:>9,}  {words}"))
    console.print()


def _unsettled(found: Plan) -> str:
    """What is said beside the fewest GPUs where fewer may do."""
    if found.fewest_at_least == found.fewest_gpus:
        return ""
    return f" (whether {found.fewest_at_least} do, or a number between, was not settled)"


def _print_gap(console: Console, found: Plan) -> None:
    """What was not searched, and what is proven all the same."""
    gap = found.gap
    if gap is None:
        return
    console.print(
        f"not exact: {gap.number:,} further layouts were not looked into; none of them takes less "
        f"than {gap.least.seconds:.4g} s or {size_of(gap.least.bytes)}",
        style="bold",
    )
    if found.best.top:
        best = found.best.top[0]
        if found.proven(best):
            told = "proven to be the best: none of them is better"
        elif found.best.objective == "headroom":
            least = gap.least.bytes
            more = best.score.peak_bytes - least
            told = f"within {size_of(more)} of the least that any of them may hold"
        else:
            seconds = best.score.step_seconds or 0.0
            told = f"at most {1 - gap.least.seconds / seconds:.1%} longer than the shortest may be"
        console.print(f"the layout above is {told}; `auto in […]` or `auto <= N` leave less open")
    console.print()


def _print_layouts(
    console: Console, title: str, layouts: Sequence[Candidate], best: Candidate
) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="dim")
    for path in best.chosen:
        table.add_column(_name(path))
    for name in ("step", "", "peak"):
        table.add_column(name, justify="right")
    table.add_column("seconds more")
    for each in layouts:
        chosen = (plain(spelling(value)) for value in each.chosen.values())
        table.add_row(*chosen, *_figures(each, best), plain(_reason(each, best)))
    console.print(table)
    console.print()


def _print_values(console: Console, found: Plan) -> None:
    """The best layout with each value of each open field, or why there is none."""
    from rich.table import Table

    best = found.best.top[0]
    table = Table(
        *("field", "value"),
        box=None,
        pad_edge=False,
        title="the best with each value of a field",
        title_justify="left",
        title_style="dim",
    )
    for name in ("step", "", "peak"):
        table.add_column(name, justify="right")
    table.add_column("seconds more, or what rejects it")
    left = () if found.gap is None else found.gap.values
    known = dict.fromkeys((*found.best.by_value, *found.tally.by_value, *left))
    for path in best.chosen:
        for at in sorted((each for each in known if each[0] == path), key=_natural):
            with_it = found.best.by_value.get(at)
            unproven = found.gap is not None and at in found.gap.values
            if with_it is not None:
                cells = (*_figures(with_it, best), plain(_reason(with_it, best)))
            elif unproven:
                cells = ("", "", "", plain("not looked into"))
            else:
                codes = [code for code, _ in found.tally.by_value[at].most_common(3)]
                cells = ("", "", "", plain(", ".join(codes)))
            table.add_row(_name(path), plain(at[1]), *cells)
    console.print(table)
    console.print()


def _figures(each: Candidate, best: Candidate) -> tuple[str, str, str]:
    seconds, least = each.score.step_seconds, best.score.step_seconds
    peak = size_of(each.score.peak_bytes)
    if seconds is None or least is None:
        return "", "", peak
    more = "" if each is best else f"{seconds / least - 1:+.1%}"
    return f"{seconds:.4g} s", more, peak


def _reason(each: Candidate, best: Candidate) -> str:
    """The parts of the step that take more than in the best, the largest first."""
    largest = list(longer(each, best).items())
    return ", ".join(f"{name} {seconds:+.3g}" for name, seconds in largest[:3])


def longer(each: Candidate, best: Candidate) -> dict[str, float]:
    """Seconds of the parts of the step that take more than in the best, the largest first."""
    names = dict.fromkeys((*each.score.parts, *best.score.parts))
    more = {n: each.score.parts.get(n, 0.0) - best.score.parts.get(n, 0.0) for n in names}
    found = sorted((item for item in more.items() if item[1] > 0), key=lambda item: -item[1])
    return dict(found)


def _spaced(layouts: Sequence[Candidate], most: int) -> list[Candidate]:
    """At most so many, the first and the last among them."""
    if len(layouts) <= most:
        return list(layouts)
    return [layouts[round(i * (len(layouts) - 1) / (most - 1))] for i in range(most)]


def _natural(at: tuple[str, str]) -> tuple[bool, int, str]:
    """Numbers by size, words as they are."""
    value = at[1]
    return not value.isdecimal(), int(value) if value.isdecimal() else 0, value


def _name(path: str) -> str:
    return path.rpartition(".")[2]
