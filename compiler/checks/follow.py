"""What has to move when tp, pp and dp do: the experts' degrees, chunks and shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2
from typing import Any

from parlay.compiler.checks import words
from parlay.compiler.checks.subject import Subject


def degrees(subject: Subject, degrees: Mapping[str, int], world: int) -> Mapping[str, Any]:
    """`degrees`, with the nearest values of whatever the file writes that no longer fits them.

    `pp: 4` with `ep = 8` on 16 GPUs --> `pp: 4, ep: 4`
    """
    found: dict[str, Any] = dict(degrees)
    model, parallel = subject.spec.model, subject.parallel
    pp = degrees["parallel.pp"]
    if model is not None and model.experts is not None and model.experts.count:
        found.update(_experts(subject, world // pp, model.experts.count, model.experts.ffn))
    if subject.written("parallel.shard") and subject.has(("parallel.shard",)):
        group = degrees["parallel.dp"] * parallel.cp
        if group % parallel.shard:
            found["parallel.shard"] = _nearest(parallel.shard, words.divisors(group))
    schedule = parallel.schedule
    if schedule is not None and schedule.name == "interleaved" and model and model.layers:
        found.update(_chunks(schedule["chunks"], model.layers, pp))
    return found


def _experts(subject: Subject, ranks: int, count: int, ffn: int | None) -> dict[str, int]:
    """The nearest ep and etp whose product divides the ranks of a stage."""
    ep, etp = subject.parallel.ep, subject.parallel.etp
    if ep is None or etp is None:
        return {}
    if ranks % (ep * etp) == 0 and count % ep == 0:
        return {}
    fitting = [size for size in words.divisors(ranks) if not ffn or ffn % size == 0]
    new_etp = etp if ranks % etp == 0 else _nearest(etp, fitting)
    new_ep = _nearest(ep, [d for d in words.divisors(ranks // new_etp) if count % d == 0])
    return {"parallel.ep": new_ep, "parallel.etp": new_etp}


def _chunks(chunks: int, layers: int, pp: int) -> dict[str, Any]:
    """The number of chunks nearest to the one asked for that divides the layers of a rank."""
    each, rest = divmod(layers, pp)
    fitting = [] if rest else [number for number in words.divisors(each) if number > 1]
    if not fitting or each % chunks == 0:
        return {}
    return {"parallel.schedule.chunks": _nearest(chunks, fitting)}


def _nearest(wanted: int, values: Iterable[int]) -> int:
    return min(values, key=lambda value: (abs(log2(value / wanted)), value))
