"""Options of the `target` block: written through, unless a field of the file decides them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from parlay.compiler.backends.deepspeed.config import Entry, entries
from parlay.compiler.backends.deepspeed.options import NEWEST, place_of, sections
from parlay.compiler.backends.deepspeed.rules.b507_options import SAME
from parlay.compiler.backends.options import shown
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.nearest import nearest

UNKNOWN: Final = "B342"
CONTRADICTS: Final = "B343"
PLACE: Final = "target.deepspeed.options."

GOVERNED: Final[Mapping[str, str]] = {
    "scheduler": "train.lr_schedule",
    "tensor_parallel": "parallel.tp",
    "expert_parallel": "parallel.ep",
    "torch_autocast": "train.precision",
    "bf16": "train.precision",
    "bfloat16": "train.precision",
    "fp16": "train.precision",
    "data_types": "train.gradients",
    "zero_optimization.offload_optimizer": "parallel.offload",
    "zero_optimization.offload_param": "parallel.offload",
    "pipeline": "parallel.stages",
    "tensorboard": "log.tensorboard",
    "compile": "train.compile",
    "optimizer": "train.optimizer",
    "optimizer.params": "train.optimizer",
    "gradient_allreduce_op": "train.loss",
    "managed_gradient_accumulation": "train.global_batch",
}
"""Sections, and keys of the top level, that a field of the file decides even where they are not
emitted."""


NOT_THE_SAME: Final = ("zero_hpz_partition_size", "mics_shard_size")
"""What no field says, and what DeepSpeed 0.19 has no more."""

OPEN: Final = (
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param",
    "tensorboard",
)
"""Sections of which a field decides whether they are there, and options the rest."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The keys of ds_config.json with the options over what the back end chose itself."""

    entries: tuple[Entry, ...]
    diagnostics: tuple[Diagnostic, ...]


def passed(phase: Phase) -> Passed:
    """The keys of a phase, and what is told of its options."""
    target = phase.targets.get("deepspeed")
    options: Mapping[str, Any] = (target.options if target else None) or {}
    found = {entry.place: entry for entry in entries(phase)}
    there = {section for section, _ in found if section in OPEN}
    told: list[Diagnostic] = []
    for name, value in options.items():
        if name in SAME and name not in NOT_THE_SAME:
            continue  # B507 holds it against the field, which says it already
        place = place_of(name, NEWEST)
        if place is None:
            told.append(_unknown(phase, name))
            continue
        ours = found.get(place)
        plain = list(value) if isinstance(value, tuple) else value
        if ours is not None and (ours.chosen or _equal(ours.value, plain)):
            found[place] = replace(ours, value=plain)
        elif ours is not None:
            told.append(_contradiction(phase, name, value, ours.path))
        elif place[0] not in there and (field := GOVERNED.get(place[0] or place[1])) is not None:
            told.append(_contradiction(phase, name, value, field))
        else:
            found[place] = Entry(*place, plain, PLACE + name)
    return Passed(tuple(_in_order(found)), tuple(told))


def _in_order(found: Mapping[tuple[str, str], Entry]) -> Iterator[Entry]:
    """Keys of the top level first, then section after section."""
    names = dict.fromkeys(section for section, _ in found)
    for name in sorted(names, key=lambda section: (section != "", list(names).index(section))):
        yield from (entry for entry in found.values() if entry.section == name)


def _equal(ours: Any, given: Any) -> bool:
    return bool(ours == given) and isinstance(ours, bool) == isinstance(given, bool)


def _unknown(phase: Phase, name: str) -> Diagnostic:
    names = [key for keys in sections(NEWEST).values() for key in keys]
    close = nearest(name, names)
    help = ["`section_key` where several sections have it"]
    help += [f"nearest: {', '.join(close)}"] if close else []
    said = f"DeepSpeed has no plain key {name} in one section"
    return error(UNKNOWN, said, phase.origins.span(PLACE + name), "not known", help=help)


def _contradiction(phase: Phase, name: str, value: Any, path: str) -> Diagnostic:
    origin = phase.origins.get(path)
    is_now = f"{path} = {origin.shown}" if origin else f"{path} is absent"
    return error(
        CONTRADICTS,
        f"`{name} = {shown(value)}` contradicts `{path}`",
        phase.origins.span(PLACE + name),
        "another answer to the same question",
        also=[phase.origins.label(path, f"the field, {is_now}")],
        help=["the field decides; the option may go"],
    )
