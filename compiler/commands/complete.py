"""What a shell completes: names that start with what is written, read only when it asks."""

from __future__ import annotations

from collections.abc import Iterable

from typer import Context


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """The back ends; also the next of several, as in `megatron,slurm`."""
    from parlay.compiler.backends import TARGETS

    given, comma, begun = incomplete.rpartition(",")
    left = [name for name in TARGETS if name not in given.split(",")]
    return [f"{given}{comma}{name}" for name in _starting(begun, left)]


def models(incomplete: str) -> list[str]:
    """The catalog's models."""
    from parlay.compiler import catalog

    return _starting(incomplete, catalog.names("model"))


def nodes(incomplete: str) -> list[str]:
    """The catalog's nodes."""
    from parlay.compiler import catalog

    return _starting(incomplete, catalog.names("node"))


def kinds(incomplete: str) -> list[str]:
    """The kinds of presets."""
    from parlay.compiler import catalog

    return _starting(incomplete, catalog.KINDS)


def presets(context: Context, incomplete: str) -> list[str]:
    """The presets of the kind that stands before, as in `parlay catalog model …`."""
    from parlay.compiler import catalog

    return _starting(incomplete, catalog.names(str(context.params.get("kind") or "")))


def codes(incomplete: str) -> list[str]:
    """The codes that have a page."""
    from parlay.compiler.commands.explain import all_codes

    return _starting(incomplete.upper(), all_codes())


def fields(incomplete: str) -> list[str]:
    """The paths of the fields."""
    from parlay.compiler.spec.resolve import schemas

    return _starting(incomplete, schemas())
