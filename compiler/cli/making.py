"""The commands that write files, or run what was written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from parlay.compiler.cli.arguments import File, Json, known, leave
from parlay.compiler.commands import complete


def fmt(
    files: Annotated[
        list[Path], typer.Argument(help=".par files; - is stdin.", show_default=False)
    ],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show it.")] = False,
) -> None:
    """Write files in their canonical form, comments kept."""
    from parlay.compiler.commands.fmt import run

    leave(run(files, check=check, diff=diff))


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

    leave(run(name, model, cluster))


def compile_(
    target: Annotated[
        list[str],
        typer.Option(
            "--target",
            "-t",
            help="A back end; `list` names them.",
            autocompletion=complete.targets,
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(help="A .par file; - is stdin.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The output folder.")] = Path("out"),
    vendor: Annotated[
        bool, typer.Option("--vendor", help="Copy the runtime beside the code that calls it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace edited files too.")] = False,
) -> None:
    """Emit the code and configurations of a back end."""
    from parlay.compiler.commands.compile import list_targets, run

    if target == ["list"]:
        leave(list_targets())
    targets = known(target)
    if file is None:
        raise typer.BadParameter("a .par file is needed")
    leave(run(file, targets, out, force=force, vendor=vendor))


def run(
    file: File,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps to train.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last save.")] = False,
) -> None:
    """Compile and train here on CPU ranks."""
    from parlay.compiler.commands.run import run as train

    leave(train(file, out=out, steps=steps, resume=resume))


def verify(
    file: File,
    code: Annotated[
        Path | None, typer.Option("--code", help="Verify this emitted folder as it stands.")
    ] = None,
    json: Json = False,
) -> None:
    """Prove the emitted code against one process.

    Loss, gradients and weights are to be those of a plain model, and what is sent what was
    predicted.
    """
    from parlay.compiler.commands.verify import run

    leave(run(file, code=code, json=json))


class Dtype(StrEnum):
    """What exported weights are kept in."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def export(
    folder: Annotated[
        Path,
        typer.Argument(help="What `run` or `compile` wrote.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A new folder for the weights.", show_default=False)
    ],
    save: Annotated[
        Path | None,
        typer.Option("--save", help="A save, or a folder of saves; else the run's newest."),
    ] = None,
    dtype: Annotated[
        Dtype | None, typer.Option("--dtype", help="Else the dtype of the products.")
    ] = None,
) -> None:
    """Write a save of a run as Hugging Face weights.

    The save may be of any layout.
    """
    from parlay.compiler.commands.export import run

    leave(run(folder, out, save=save, dtype=dtype.value if dtype else None))


def timeline(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="The trace.")] = Path("trace.json"),
    phase: Annotated[
        str | None, typer.Option("--phase", help="Which phase; by default the first.")
    ] = None,
    microbatches: Annotated[
        int | None, typer.Option("--microbatches", min=1, help="Show only so many.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another file too.")] = False,
) -> None:
    """Write the predicted step as a trace for Perfetto."""
    from parlay.compiler.commands.timeline import run

    leave(run(file, out, phase=phase, microbatches=microbatches, force=force))


def report(
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page; - is stdout.")] = Path(
        "report.html"
    ),
    nodes: Annotated[
        str, typer.Option("--nodes", help="Scaled to these numbers of nodes: 8,16,32.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace another file too.")] = False,
) -> None:
    """Write one page of it all: checks, memory, messages, time."""
    from parlay.compiler.commands.options import node_counts
    from parlay.compiler.commands.report import run

    leave(run(file, out, nodes=node_counts(nodes), force=force))


def calibrate(
    log: Annotated[
        list[Path] | None, typer.Option("--from", help="A log of nccl-tests or nvbandwidth.")
    ] = None,
    ranks: Annotated[int, typer.Option("--ranks", min=2, help="Ranks that measure here.")] = 2,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The figures as JSON.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another file too.")] = False,
    json: Json = False,
) -> None:
    """Measure this machine, or read the logs of a cluster.

    Of products, copies and collectives.
    """
    from parlay.compiler.commands.calibrate import run

    leave(run(log or [], ranks=ranks, out=out, json=json, force=force))


class Importable(StrEnum):
    """What `parlay import` reads."""

    hf = "hf"
    megatron = "megatron"
    deepspeed = "deepspeed"
    torchtitan = "torchtitan"


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
    node: Annotated[
        str | None,
        typer.Option("--node", help="A node of the catalog.", autocompletion=complete.nodes),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="deepspeed: a model of the catalog, or a config.json.",
            show_default=False,
            autocompletion=complete.models,
        ),
    ] = None,
) -> None:
    """Read a framework's configuration as a .par file.

    What is read is never run.
    """
    from parlay.compiler.commands.import_ import NAMELESS, run

    if model is not None and format.value not in NAMELESS:
        raise typer.BadParameter(f"--model: a file of {format.value} names its own")
    leave(run(format.value, path, out=out, gpus=gpus, node=node, model=model))
