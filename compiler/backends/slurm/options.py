"""The options of `target "slurm"`: the code that a job starts, and what a site wants to be told.

`#SBATCH` lines take no quotes, so a value is a word of letters and signs that mean nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from parlay.compiler.backends.slurm.batch import BEFORE
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.nearest import nearest

UNKNOWN: Final = "B361"
UNFIT: Final = "B362"
SHORT: Final = "B363"
PLACE: Final = "target.slurm."

ENTRIES: Final = ("torch", "megatron", "deepspeed")
"""The targets whose code a job may start."""

SETTINGS: Final[Mapping[str, str]] = {
    "account": "the account that is charged",
    "partition": "a partition, or several with commas between",
    "qos": "a quality of service",
    "constraint": "features of nodes, `h100&ib`",
    "reservation": "a reservation",
    "time": "the time limit: a time of whole minutes, `24h`",
}
"""Option of the same name of sbatch -> what it is."""

EARLY: Final = 60
"""Seconds by which Slurm may send a signal sooner than it was asked to."""

_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@&|+-]{0,254}", re.ASCII)


def entries_of(phase: Phase, beside: Sequence[str] = ()) -> tuple[str, ...]:
    """The entry points: as the file names one, else those asked for beside Slurm, else torch."""
    named = _given(phase).get("entry")
    if named in ENTRIES:
        return (named,)
    return tuple(entry for entry in ENTRIES if entry in beside) or ("torch",)


def settings(phase: Phase) -> list[str]:
    """Settings of sbatch, `time=24:00:00`, in the order of `SETTINGS`."""
    given = _given(phase)
    return [f"{name}={read}" for name in SETTINGS if (read := _read(name, given.get(name)))]


def refusals_of_options(phase: Phase) -> Iterator[Diagnostic]:
    """An error for every option and value that is not known, and for a version."""
    target = phase.targets.get("slurm")
    if target is not None and target.version is not None:
        span = phase.origins.span(f"{PLACE}version")
        said = "versions of Slurm are not told apart"
        yield error(UNKNOWN, said, span, "no version is asked for")
    for name, value in _given(phase).items():
        span = phase.origins.span(f"{PLACE}options.{name}")
        known = ["entry", *SETTINGS]
        if name not in known:
            meant = [f"did you mean `{each}`?" for each in nearest(name, known)[:1]]
            help = meant or [f"there are {', '.join(known)}"]
            yield error(UNKNOWN, f"no option is called {name}", span, "not known", help=help)
        elif name == "entry":
            if value not in ENTRIES:
                help = [f"it is one of {', '.join(ENTRIES)}: the target whose code is started"]
                said = "`entry` names no code that a job can start"
                yield error(UNFIT, said, span, "not one of them", help=help)
        elif _read(name, value) is None:
            said = f"`{name}` has a value that cannot stand in a line of #SBATCH"
            yield error(UNFIT, said, span, "not taken", help=[f"it is {SETTINGS[name]}"])
        elif name == "time" and phase.spec.checkpoint.path is not None:
            yield from _too_short(phase, value)


def _too_short(phase: Phase, limit: int) -> Iterator[Diagnostic]:
    """An error where the job would be told to end before it has begun, and so without end."""
    if limit > BEFORE + EARLY:
        return
    span = phase.origins.span(f"{PLACE}options.time")
    said = f"a job of {limit // 60} min is told to save and end as it starts"
    saved = phase.origins.span("checkpoint.path")
    yield error(
        SHORT,
        said,
        span,
        f"{limit // 60} min in all",
        also=[(saved, "queued again after each save")],
        notes=[
            f"the signal comes {BEFORE // 60} min before the limit",
            f"Slurm may send it {EARLY // 60} min sooner",
        ],
        help=["an hour or more, or no `checkpoint`, which is never queued again"],
    )


def _given(phase: Phase) -> Mapping[str, Any]:
    target = phase.targets.get("slurm")
    return (target.options if target else None) or {}


def _read(name: str, value: Any) -> str | None:
    """A setting as sbatch reads it; None for what is unfit."""
    if name == "time":
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value <= 0 or value % 60:
            return None
        hours, minutes = divmod(value // 60, 60)
        return f"{hours}:{minutes:02}:00"
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None
