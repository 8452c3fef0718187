"""A phase as arguments by section, each field in one place; the table of contents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from parlay.compiler.backends.megatron.argument import Argument, Piece, refused
from parlay.compiler.backends.megatron.experts import experts
from parlay.compiler.backends.megatron.model import model
from parlay.compiler.backends.megatron.options import NEWEST, TABLES, table, version_of
from parlay.compiler.backends.megatron.parallel import parallel
from parlay.compiler.backends.megatron.passed import PLACE, merged
from parlay.compiler.backends.megatron.recipe import recipe
from parlay.compiler.backends.megatron.services import checkpoint, data, log, machines
from parlay.compiler.backends.megatron.stages import stages
from parlay.compiler.layout import Layout
from parlay.compiler.spec.blocks import Target
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error

VERSION: Final = "B311"

_OPTION: Final = re.compile(r"-(?!\d+$|\d*\.\d+$)\S+")
"""What argparse takes for an option: a dash, unless it is a negative number or has a space."""


def pieces(phase: Phase, layout: Layout) -> dict[str, list[Piece]]:
    """The arguments of each section, and what is told in place of some."""
    target = phase.targets.get("megatron") or Target(version=None, options={})
    version = version_of(target.version or NEWEST)
    if version is None:
        return {"": [_unknown_version(phase, target.version or "")]}
    spec = phase.spec
    sections: dict[str, list[Piece]] = {
        "model": list(model(phase, spec, version=version)),
        "experts": list(experts(phase, spec)),
        "layout": [*parallel(phase, spec, layout), *stages(phase, spec, layout)],
        "recipe": list(recipe(phase, spec)),
        "data": list(data(phase, spec, target.options or {})),
        "checkpoints": list(checkpoint(phase, spec)),
        "log and machines": [*log(spec), *machines(phase, spec)],
    }
    arguments = [
        piece for section in sections.values() for piece in section if isinstance(piece, Argument)
    ]
    known = {argument.option for argument in arguments}
    kept = {id(piece): piece for piece in merged(phase, target, arguments, version)}
    out: dict[str, list[Piece]] = {}
    for title, section in sections.items():
        out[title] = [
            piece for piece in section if isinstance(piece, Diagnostic) or id(piece) in kept
        ]
    ours = {id(argument) for argument in arguments}
    out["options of the target"] = [piece for key, piece in kept.items() if key not in ours]
    out[""] = [
        *_not_in_version(phase, arguments, known, version),
        *_unfit(phase, (piece for piece in kept.values() if isinstance(piece, Argument))),
    ]
    return out


def _not_in_version(
    phase: Phase, arguments: list[Argument], known: set[str], version: str
) -> Iterator[Piece]:
    """What this version of Megatron-LM has no option for."""
    for argument in arguments:
        if argument.option in known - set(table(version)) and not argument.path.startswith(PLACE):
            words = f"no {argument.option} in Megatron-LM {version}"
            yield refused(phase, argument.path, f"`{argument.path}` in {version}", words=words)


def _unfit(phase: Phase, arguments: Iterable[Argument]) -> Iterator[Piece]:
    """What no line of options can hold, or the parser would take for an option."""
    for argument in arguments:
        if any("\n" in value or "\0" in value for value in argument.values):
            yield refused(phase, argument.path, "a value of several lines", words="one line")
        elif any(_OPTION.fullmatch(value) for value in argument.values):
            words = "read as an option"
            yield refused(phase, argument.path, "a value that begins with a dash", words=words)


def _unknown_version(phase: Phase, written: str) -> Diagnostic:
    origin = phase.origins.get("target.megatron.version")
    span = origin.span if origin else phase.origins.block("target.megatron")
    known = ", ".join(f'"{version}"' for version in TABLES)
    said = f'Megatron-LM "{written}" is not known'
    return error(VERSION, said, span, "another version", help=[f"known are {known}"])
