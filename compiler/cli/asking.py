"""The commands that tell of a file or of Parlay, and change no file unless asked."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from parlay.compiler.cli.arguments import File, Files, Json, Targets, changeable, known, leave
from parlay.compiler.commands import complete


class Format(StrEnum):
    """How diagnostics are printed."""

    terminal = "terminal"
    json = "json"
    sarif = "sarif"
    github = "github"


def check(
    files: Files,
    target: Targets = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.terminal,
    json: Json = False,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the fixes that are offered.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Check again after a change.")] = False,
) -> None:
    """Tell every mistake of every file before a job is queued."""
    from parlay.compiler.commands.check import run

    if json and format not in (Format.terminal, Format.json):
        raise typer.BadParameter(f"--json and --format {format.value} ask for two things")
    for option, wanted in (("--fix", fix), ("--watch", watch)):
        changeable(files if wanted else (), option)
    how = "json" if json else format.value
    leave(run(files, known(target or []), how, fix=fix, watch=watch))


def schema() -> None:
    """Print the JSON schema of the blocks."""
    from parlay.compiler.commands.schema import run

    leave(run())


def lsp() -> None:
    """Serve an editor by the Language Server Protocol."""
    from parlay.compiler.server import serve

    leave(serve())


def layout(
    file: File,
    rank: Annotated[int | None, typer.Option("--rank", help="One rank's place and peers.")] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Every group's ranks.")] = False,
    json: Json = False,
) -> None:
    """Show axes, groups, nodes and stages."""
    from parlay.compiler.commands.layout import run

    leave(run(file, rank=rank, groups=groups, json=json))


def ledger(
    files: Files,
    formulas: Annotated[
        bool, typer.Option("--formulas", help="The arithmetic of each figure.")
    ] = False,
    nodes: Annotated[
        str, typer.Option("--nodes", help="Also on these numbers of nodes: 8,16,32.")
    ] = "",
    at: Annotated[
        str | None, typer.Option("--at", help="A speed that was measured, such as 430TFLOP/s.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="As this back end runs it: its software's price, and what it cannot express.",
            autocompletion=complete.targets,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Account parameters, memory, communication and time."""
    from parlay.compiler.commands.ledger import run
    from parlay.compiler.commands.options import node_counts, stated_speed

    counts, speed = node_counts(nodes), stated_speed(at)
    targets = known([target] if target else [])
    leave(run(files, targets, formulas=formulas, json=json, nodes=counts, at=speed))


def diff(
    a: File,
    b: File,
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", help='Exit 1 where it holds, such as "memory.peak > +2%".'),
    ] = None,
    json: Json = False,
) -> None:
    """Tell what changes between two files.

    Layout, groups, memory, communication, time, and whether a checkpoint reshards.
    """
    from parlay.compiler.commands.diff import run
    from parlay.compiler.commands.options import gates

    leave(run(a, b, gates(fail_if or []), json=json))


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            help="A diagnostic's code.", show_default=False, autocompletion=complete.codes
        ),
    ] = None,
    file: Annotated[Path | None, typer.Argument(help="With --field.", show_default=False)] = None,
    field: Annotated[
        str | None,
        typer.Option(
            "--field",
            help="A field's path, such as parallel.dp.",
            autocompletion=complete.fields,
        ),
    ] = None,
) -> None:
    """Print the page of a rule, or where a value comes from."""
    from parlay.compiler.commands.explain import run

    if field is not None and file is None and code is not None:
        file, code = Path(code), None
    if (code is None) == (field is None) or (field is None) != (file is None):
        raise typer.BadParameter("a code is needed, or --field PATH and a file")
    leave(run(code, field, file))


class Objective(StrEnum):
    """What a plan seeks."""

    step_time = "step_time"
    tokens_per_gpu = "tokens_per_gpu"
    cost = "cost"
    headroom = "headroom"


def plan(
    file: File,
    objective: Annotated[
        Objective, typer.Option("--objective", help="What is sought.")
    ] = Objective.step_time,
    top: Annotated[int, typer.Option("--top", min=1, help="How many of the best.")] = 5,
    target: Targets = None,
    phase: Annotated[str | None, typer.Option("--phase", help="One phase alone.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Put the best into the file.")] = False,
    json: Json = False,
) -> None:
    """Choose what a file leaves `auto`, and tell why the rest lost."""
    from parlay.compiler.commands.plan import run

    changeable([file] if write else (), "--write")
    leave(
        run(
            file,
            phase=phase,
            objective=objective.value,
            top=top,
            targets=known(target or []),
            write=write,
            json=json,
        )
    )


def compare(
    file: File,
    metrics: Annotated[
        list[Path], typer.Argument(help="A metrics.jsonl, or one a phase.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Set what is predicted beside what a run measured."""
    from parlay.compiler.commands.compare import run

    leave(run(file, metrics, json=json))


def catalog(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="model, gpu or node.", show_default=False, autocompletion=complete.kinds
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="One preset.", show_default=False, autocompletion=complete.presets),
    ] = None,
) -> None:
    """List the presets, or print one with its source."""
    from parlay.compiler.commands.catalog import run

    leave(run(kind, name))
