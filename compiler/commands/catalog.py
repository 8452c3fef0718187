"""`parlay catalog`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from parlay.compiler import catalog
from parlay.dsl.nearest import nearest


def run(kind: str | None, name: str | None) -> int:
    """Lists kinds, presets of a kind, or one preset with its source."""
    if kind is None:
        for known in catalog.KINDS:
            print(f"{known}: {len(catalog.names(known))} presets")
        return 0
    if kind not in catalog.KINDS:
        print(f"parlay: the catalog holds {', '.join(catalog.KINDS)}, no {kind!r}", file=sys.stderr)
        return 2
    if name is None:
        print("\n".join(catalog.names(kind)))
        return 0
    preset = catalog.load(kind, name)
    if preset is None:
        close = ", ".join(nearest(name, catalog.names(kind)))
        print(
            f"parlay: the catalog has no {kind} {name!r}"
            + (f"; nearest: {close}" if close else ""),
            file=sys.stderr,
        )
        return 1
    print(f"# {preset.source}")
    if preset.note:
        print(f"# {preset.note}")
    print(f"{kind} {{")
    _print(preset.values[kind], "  ")
    print("}")
    return 0


def _print(values: Mapping[str, Any], indent: str) -> None:
    for key, value in values.items():
        match value:
            case Mapping() if "from" in value:
                rest = {k: v for k, v in value.items() if k != "from"}
                print(f'{indent}{key} from "{value["from"]}"' + (" {" if rest else ""))
                if rest:
                    _print(rest, indent + "  ")
                    print(f"{indent}}}")
            case Mapping():
                print(f"{indent}{key} {{")
                _print(value, indent + "  ")
                print(f"{indent}}}")
            case bool():
                print(f"{indent}{key} = {'on' if value else 'off'}")
            case list():
                print(f"{indent}{key} = [{', '.join(map(str, value))}]")
            case _:
                print(f"{indent}{key} = {value}")
