"""Where in the `.par` file a piece of emitted code comes from, for its comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Final

from parlay.compiler.backends.render import Code
from parlay.compiler.spec.origins import Kind, Origins
from parlay.dsl.source import Source

LONGEST: Final = 36
LONGEST_NAME: Final = 16
_PLAIN: Final = re.compile(r"[A-Za-z0-9._ =:(),\[\]%/+-]*")


def plain(text: str) -> str:
    """`text` with everything but plain letters, digits and signs replaced: safe in any comment."""
    return text if _PLAIN.fullmatch(text) else re.sub(r"[^A-Za-z0-9._ =:(),\[\]%/+-]", "_", text)


def file_name(origins: Origins) -> str:
    """The name of the `.par` file, made plain."""
    return plain(PurePath(origins.start.file).name)


def placer(origins: Origins, sources: Mapping[str, Source]) -> Callable[[str], Code]:
    """A function from a field's path to `parallel.tp = 2 (tiny.par:18)`."""

    def at(path: str) -> Code:
        origin = origins[path]
        shown = origin.shown
        if len(shown) > LONGEST:
            shown = f"{shown.partition('(')[0]}(...)"
        match origin.kind:
            case Kind.FILE:
                place = _line(origin.span.file, origin.span.start, sources)
            case Kind.PRESET:
                place = origin.words
            case Kind.DEFAULT:
                place = "default"
            case Kind.DERIVED:
                # A derived value that a field of the file asked for stands at that field.
                written = path in origins.fields and origin.span != origins.block(path)
                line = _line(origin.span.file, origin.span.start, sources)
                place = line if written else "derived"
        return Code(plain(f"{path} = {shown} ({place})"))

    return at


def _line(file: str, offset: int, sources: Mapping[str, Source]) -> str:
    name = PurePath(file).name
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 2]}.."
    return f"{name}:{sources[file].position(offset).line}"
