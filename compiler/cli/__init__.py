"""The commands, thin: each calls the pipeline and prints. Nothing heavy is imported before use."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Final, NoReturn

import typer
from parlay.compiler.cli import asking, making
from parlay.compiler.cli.asking import Objective
from parlay.compiler.cli.examples import shown

__all__ = ["Objective", "app", "main"]

HELP: Final = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="parlay",
    help="A compiler for parallel training layouts.",
    epilog="Exit status: 0 clean, 1 errors in the file, 2 wrong usage, 70 a fault of Parlay's own.",
    no_args_is_help=True,
    context_settings=HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, Callable[..., None]] = {
    "check": asking.check,
    "fmt": making.fmt,
    "init": making.init,
    "schema": asking.schema,
    "lsp": asking.lsp,
    "layout": asking.layout,
    "ledger": asking.ledger,
    "diff": asking.diff,
    "explain": asking.explain,
    "plan": asking.plan,
    "compile": making.compile_,
    "run": making.run,
    "verify": making.verify,
    "export": making.export,
    "timeline": making.timeline,
    "report": making.report,
    "compare": asking.compare,
    "calibrate": making.calibrate,
    "import": making.import_,
    "catalog": asking.catalog,
}
"""In the order of `parlay --help`."""

for name, command in COMMANDS.items():
    app.command(name=name, epilog=shown(name), context_settings=HELP)(command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"parlay {version('parlay')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A compiler for parallel training layouts."""


FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What a disk answers that takes no more: no fault of Parlay's."""


def _unheard(failure: OSError) -> NoReturn:
    """Ends where what was to be printed, or kept beside it, found no room."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        print(f"parlay: the output cannot be written: {failure.strerror}", file=sys.stderr)
        sys.stderr.flush()
    sys.exit(1)


def _document(words: str, status: int) -> None:
    """Where JSON is asked for, the document of a command that did not come to its own."""
    if "--json" in sys.argv[1:]:
        from parlay.compiler.commands.printing import failed

        failed(words=words, json=True, status=status)


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
            # Typer raises it while it tells what is wrong with the command line.
            wrong = getattr(end.__context__, "format_message", None)
            if wrong is not None:
                _document(wrong(), 2)
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
        if isinstance(fault, OSError) and fault.errno in FULL:
            _unheard(fault)
        words = f"{type(fault).__name__}: {fault}".splitlines()[0][:200]
        words = (
            f"a fault of its own ({words}); please report the file and this line. "
            "PARLAY_TRACEBACK=1 shows where."
        )
        print(f"parlay: {words}", file=sys.stderr)
        status = 70
        _document(words, status)
    sys.exit(status)
