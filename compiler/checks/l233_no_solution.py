"""No value of an open field gives a legal layout.

What
    Where fields are `auto`, some values of theirs satisfy every rule together.
Why
    A search over nothing finds nothing. The nearest candidate and what stands in its way show which
    of the fixed values is the tightest conflict.
Example
    model from "llama2-13b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = auto in [3, 6]
      #    ^^^^^^^^^^^^^^ L233
    }
Instead
    model from "llama2-13b"
    cluster { node from "dgx-h100" }
    parallel {
      tp = 8
    }
Source
    The reference of the language: `auto`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from typing import Any, Final

from parlay.compiler.checks import faults, words
from parlay.compiler.checks.subject import Subject
from parlay.compiler.spec.schema import Open, Setting
from parlay.dsl.diagnostics import Diagnostic, Severity, error

CODE = "L233"
TITLE = "no value of an open field gives a legal layout"
READS = ("cluster.nodes", "cluster.node.gpus")
ALLOWED = False

MOST: Final = 250
"""Candidates that are looked at; beyond them nothing is said."""

DEGREES: Final = ("tp", "cp", "pp")
ANY: Final[Mapping[str, tuple[Any, ...]]] = {
    "parallel.zero": (3, 0),
    "parallel.schedule": (Setting("one_f_one_b"),),
    "parallel.stages": ("auto", None),
    "parallel.cp_method": (Setting("ring"), Setting("allgather"), Setting("ulysses")),
    "parallel.order": (("tp", "cp", "dp", "pp"),),
    "train.recompute": (Setting("full", {"first": None, "every": None}),),
}
"""What an unrestricted field may take: enough to find a legal layout where there is one."""


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.searching or not subject.open or subject.world is None:
        return
    # What is wrong whatever the open fields become is told by itself.
    known = {(each.code, each.message) for each in faults.told(replace(subject, searching=True))}
    rejected: Counter[str] = Counter()
    nearest: tuple[int, Mapping[str, Any], list[Diagnostic]] | None = None
    tried = 0
    for values in islice(_candidates(subject, subject.world), MOST):
        tried += 1
        candidate = subject.with_values(values)
        found = [
            each
            for each in faults.told(candidate, values)
            if each.severity is Severity.ERROR and (each.code, each.message) not in known
        ]
        if not found and (known or faults.makes_a_grid(candidate, values)):
            return
        rejected.update(dict.fromkeys((each.code for each in found), 1))
        if nearest is None or len(found) < nearest[0]:
            nearest = (len(found), values, found)
    # Degrees that make no grid, all of them given, are told where they stand.
    given = subject.open.keys().isdisjoint(f"parallel.{axis}" for axis in (*DEGREES, "dp"))
    if tried == MOST or (tried == 0 and given):
        return
    yield _none(subject, rejected, tried, nearest)


def _candidates(subject: Subject, world: int) -> Iterator[Mapping[str, Any]]:
    """Every combination of values of the open fields; degrees that fill no grid are left out."""
    paths = sorted(subject.open)
    for values in product(*(_values(subject, path, world) for path in paths)):
        chosen = dict(zip(paths, values, strict=True))
        size = 1
        for axis in DEGREES:
            size *= chosen.get(f"parallel.{axis}", getattr(subject.parallel, axis)) or 1
        dp = chosen.get("parallel.dp", subject.parallel.dp)
        fixed = dp is not None and not subject.derived("parallel.dp")
        if world % size == 0 and (not fixed or size * dp == world):
            chosen.setdefault("parallel.dp", dp if fixed else world // size)
            yield chosen


def _values(subject: Subject, path: str, world: int) -> tuple[Any, ...]:
    """What an open field may take, as far as the file restricts it."""
    restricted: Open = subject.open[path]
    values: tuple[Any, ...]
    if restricted.choices is not None:
        values = restricted.choices
    elif path in ANY:
        values = ANY[path]
    elif path == "train.micro_batch":
        batch = subject.value("train.global_batch")
        values = (1,) if batch is None else tuple(words.divisors(batch))
    else:
        values = tuple(words.divisors(world))
    if restricted.limit is None:
        return values
    return tuple(v for v in values if not isinstance(v, int) or v <= restricted.limit)


def _none(
    subject: Subject,
    rejected: Counter[str],
    tried: int,
    nearest: tuple[int, Mapping[str, Any], list[Diagnostic]] | None,
) -> Diagnostic:
    paths = sorted(subject.open)
    names = words.listed([f"`{path.rpartition('.')[2]}`" for path in paths])
    notes = []
    if nearest is None:
        notes.append(f"no choice makes tp · cp · pp · dp = {subject.world}")
    else:
        _, values, found = nearest
        said = ", ".join(f"{path.rpartition('.')[2]} = {_shown(values[path])}" for path in paths)
        notes.append(f"nearest: {said}")
        notes += [f"{each.code}: {each.message}" for each in found[:3]]
        often = [f"{code} {count} of {tried}" for code, count in rejected.most_common(3)]
        notes.append(f"rejected by {words.listed(often)}")
    place = subject.label(paths[0], "none of its values fits")
    seen = {place[0]}
    also = []
    for each in nearest[2] if nearest else ():
        for label in each.labels:
            if label.span not in seen:
                seen.add(label.span)
                also.append((label.span, label.text))
    return error(
        CODE,
        f"no value of {names} gives a legal layout",
        *place,
        also=also[:3],
        notes=notes,
    )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return value.name if isinstance(value, Setting) else str(value)
