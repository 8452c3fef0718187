"""The commands, thin: each calls the pipeline and prints. Nothing heavy is imported before use."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from parlay.compiler.commands import complete

app = typer.Typer(
    name="parlay",
    help="A compiler for parallel training layouts.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """How diagnostics are printed."""

    terminal = "terminal"
    json = "json"
    sarif = "sarif"
    github = "github"


File = Annotated[Path, typer.Argument(help="A .par file.", show_default=False)]
Files = Annotated[list[Path], typer.Argument(help=".par files.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", help="Also the rules of this back end.", autocompletion=complete.targets
    ),
]


@app.command()
def check(
    files: Files,
    target: Targets = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.terminal,
    json: Json = False,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the fixes that are offered.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Check again after a change.")] = False,
) -> None:
    """Tell every mistake of every file, before anything is queued."""
    from parlay.compiler.commands.check import run

    how = "json" if json else format.value
    _exit(run(files, _known(target or []), how, fix=fix, watch=watch))


@app.command()
def fmt(
    files: Annotated[
        list[Path], typer.Argument(help=".par files; - is stdin.", show_default=False)
    ],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show it.")] = False,
) -> None:
    """Write files in their canonical form, comments kept."""
    from parlay.compiler.commands.fmt import run

    _exit(run(files, check=check, diff=diff))


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The file to write.")] = "job",
    model: Annotated[
        str, typer.Option("--model", help="A model preset.", autocompletion=complete.models)
    ] = "llama3-8b",
    cluster: Annotated[
        str, typer.Option("--cluster", help="A node preset.", autocompletion=complete.nodes)
    ] = "dgx-h100",
) -> None:
    """Write a commented starter file."""
    from parlay.compiler.commands.init import run

    _exit(run(name, model, cluster))


@app.command()
def schema() -> None:
    """Print the JSON schema of the blocks."""
    from parlay.compiler.commands.schema import run

    _exit(run())


@app.command()
def lsp() -> None:
    """Serve an editor over stdin and stdout (the Language Server Protocol)."""
    from parlay.compiler.server import serve

    _exit(serve())


@app.command()
def layout(
    file: File,
    rank: Annotated[int | None, typer.Option("--rank", help="One rank's place and peers.")] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Every group's ranks.")] = False,
    json: Json = False,
) -> None:
    """Show axes, groups, nodes and stages."""
    from parlay.compiler.commands.layout import run

    _exit(run(file, rank=rank, groups=groups, json=json))


@app.command()
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
    json: Json = False,
) -> None:
    """Account parameters, memory, communication and time of every phase."""
    from parlay.compiler.commands.ledger import run
    from parlay.compiler.commands.options import node_counts, stated_speed

    counts, speed = node_counts(nodes), stated_speed(at)
    _exit(run(files, formulas=formulas, json=json, nodes=counts, at=speed))


@app.command()
def diff(
    a: File,
    b: File,
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", help='Exit 1 where it holds, such as "memory.peak > +2%".'),
    ] = None,
    json: Json = False,
) -> None:
    """Tell what changes from one file to another, and whether a checkpoint reshards."""
    from parlay.compiler.commands.diff import run
    from parlay.compiler.commands.options import gates

    _exit(run(a, b, gates(fail_if or []), json=json))


@app.command()
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
    """Print the page of a rule, or where a field's value comes from."""
    from parlay.compiler.commands.explain import run

    if field is not None and file is None and code is not None:
        file, code = Path(code), None
    if (code is None) == (field is None) or (field is None) != (file is None):
        raise typer.BadParameter("a code is needed, or --field PATH and a file")
    _exit(run(code, field, file))


class Objective(StrEnum):
    """What a plan seeks."""

    step_time = "step_time"
    tokens_per_gpu = "tokens_per_gpu"
    cost = "cost"
    headroom = "headroom"


@app.command()
def plan(
    file: File,
    objective: Annotated[
        Objective, typer.Option("--objective", help="What is sought.")
    ] = Objective.step_time,
    top: Annotated[int, typer.Option("--top", min=1, help="How many of the best.")] = 5,
    target: Targets = None,
    phase: Annotated[str | None, typer.Option("--phase", help="Which phase.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Put the best into the file.")] = False,
    json: Json = False,
) -> None:
    """Choose what a file leaves `auto`: the best layout, and why the others lost."""
    from parlay.compiler.commands.plan import run

    _exit(
        run(
            file,
            phase=phase,
            objective=objective.value,
            top=top,
            targets=_known(target or []),
            write=write,
            json=json,
        )
    )


@app.command(name="compile")
def compile_(
    file: File,
    target: Annotated[
        list[str],
        typer.Option(
            "--target",
            "-t",
            help="A back end; `list` names them.",
            autocompletion=complete.targets,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The output folder.")] = Path("out"),
    force: Annotated[bool, typer.Option("--force", help="Replace edited files too.")] = False,
) -> None:
    """Emit the code and configurations of a back end."""
    from parlay.compiler.commands.compile import list_targets, run

    if target == ["list"]:
        _exit(list_targets())
    _exit(run(file, _known(target), out, force=force))


@app.command()
def run(
    file: File,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps to train.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last save.")] = False,
) -> None:
    """Compile and train here on CPU ranks."""
    from parlay.compiler.commands.run import run as train

    _exit(train(file, out=out, steps=steps, resume=resume))


@app.command()
def verify(
    file: File,
    code: Annotated[
        Path | None, typer.Option("--code", help="Verify this emitted folder as it stands.")
    ] = None,
    json: Json = False,
) -> None:
    """Prove the emitted code: loss, gradients and weights as in one process, and the bytes."""
    from parlay.compiler.commands.verify import run

    _exit(run(file, code=code, json=json))


@app.command()
def timeline(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="The trace.")] = Path("trace.json"),
    phase: Annotated[str, typer.Option("--phase", help="Which phase.")] = "main",
    microbatches: Annotated[
        int | None, typer.Option("--microbatches", min=1, help="Show only so many.")
    ] = None,
) -> None:
    """Write the predicted step as a trace for Perfetto."""
    from parlay.compiler.commands.timeline import run

    _exit(run(file, out, phase=phase, microbatches=microbatches))


@app.command()
def compare(
    file: File,
    metrics: Annotated[Path, typer.Argument(help="A metrics.jsonl.", show_default=False)],
    json: Json = False,
) -> None:
    """Set what is predicted beside what a run measured."""
    from parlay.compiler.commands.compare import run

    _exit(run(file, metrics, json=json))


@app.command()
def calibrate(
    log: Annotated[
        list[Path] | None, typer.Option("--from", help="A log of nccl-tests or nvbandwidth.")
    ] = None,
    ranks: Annotated[int, typer.Option("--ranks", min=2, help="Ranks that measure here.")] = 2,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The figures as JSON.")] = None,
    json: Json = False,
) -> None:
    """Measure this machine's products, copies and collectives, or read them from logs."""
    from parlay.compiler.commands.calibrate import run

    _exit(run(log or [], ranks=ranks, out=out, json=json))


class Importable(StrEnum):
    """What `parlay import` reads."""

    hf = "hf"
    megatron = "megatron"
    deepspeed = "deepspeed"
    torchtitan = "torchtitan"


@app.command(name="import")
def import_(
    format: Annotated[Importable, typer.Argument(help="Whose file it is.", show_default=False)],
    path: Annotated[
        Path,
        typer.Argument(
            help="A file, or a folder of it; of torchtitan also FILE.py::NAME.", show_default=False
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new .par file.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs in all.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="A node of the catalog.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="deepspeed: a model of the catalog, or a config.json.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Read the configuration of a framework, never running it, as a .par file."""
    from parlay.compiler.commands.import_ import NAMELESS, run

    if model is not None and format.value not in NAMELESS:
        raise typer.BadParameter(f"--model: a file of {format.value} names its own")
    _exit(run(format.value, path, out=out, gpus=gpus, node=node, model=model))


@app.command()
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

    _exit(run(kind, name))


def _known(targets: list[str]) -> list[str]:
    from parlay.compiler.backends import TARGETS

    targets = list(dict.fromkeys(name for given in targets for name in given.split(",")))
    for target in targets:
        if target not in TARGETS:
            names = ", ".join(TARGETS)
            raise typer.BadParameter(f"no target is called {target!r}; there are: {names}")
    return targets


def _exit(status: int) -> NoReturn:
    raise typer.Exit(status)


def main() -> NoReturn:
    """The console script: a fault of Parlay's own ends in one line and exit 70."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A path or a terminal that cannot take a character is no reason to fall over.
            stream.reconfigure(errors="backslashreplace")
    # At exit nothing needs a last search for cycles, which takes a sixth of `parlay check`.
    atexit.register(gc.freeze)
    status: int | str | None = 0
    try:
        try:
            app(prog_name="parlay")
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone; nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except KeyboardInterrupt:
        status = 130
    except Exception as fault:
        if os.environ.get("PARLAY_TRACEBACK"):
            raise
        words = f"{type(fault).__name__}: {fault}".splitlines()[0][:200]
        print(
            f"parlay: a fault of its own ({words}); please report the file and this line. "
            "PARLAY_TRACEBACK=1 shows where.",
            file=sys.stderr,
        )
        status = 70
    sys.exit(status)


if __name__ == "__main__":
    main()
