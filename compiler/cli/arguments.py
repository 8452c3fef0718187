"""What several commands take alike, and how each of them ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from parlay.compiler.commands import complete

DASH: Final = Path("-")
File = Annotated[Path, typer.Argument(help="A .par file; - is stdin.", show_default=False)]
Files = Annotated[list[Path], typer.Argument(help=".par files; - is stdin.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", help="Also the rules of this back end.", autocompletion=complete.targets
    ),
]


def known(targets: list[str]) -> list[str]:
    """The targets named, each once; wrong usage where there is none of that name."""
    from parlay.compiler.backends import TARGETS

    targets = list(dict.fromkeys(name for given in targets for name in given.split(",")))
    for target in targets:
        if target not in TARGETS:
            names = ", ".join(TARGETS)
            raise typer.BadParameter(f"no target is called {target!r}; there are: {names}")
    return targets


def changeable(files: Iterable[Path], option: str) -> None:
    """Wrong usage where what `option` would change, or wait for, is stdin."""
    if DASH in files:
        raise typer.BadParameter(f"{option} needs a file, and - is stdin")


def leave(status: int) -> NoReturn:
    """Ends the command."""
    raise typer.Exit(status)
