"""Back ends that are checked for and not emitted yet."""

from __future__ import annotations

from parlay.compiler.backends.emission import Emission
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import error

CODE = "B302"

CODES: dict[str, tuple[str, str]] = {
    CODE: (
        "emission for a target is not there yet",
        """
What: the rules of this target are known, its files cannot be written yet.
Why: a layout for another framework is still told its mistakes: `parlay check --target deepspeed`
asks the rules that were read in that framework's sources.
Example:
    parlay compile 70b.par --target deepspeed
Instead:
    parlay check 70b.par --target deepspeed
    parlay compile 70b.par --target torch
""",
    ),
}
"""Code -> (title, page)."""


def refused(target: str, phase: Phase) -> Emission:
    """No files, and the diagnostic that says so."""
    place = phase.origins.block("parallel")
    told = error(
        CODE,
        f"emission for the target {target} is not there yet",
        place,
        "checked by its rules alone",
        help=["`check --target` asks its rules; `compile --target torch` emits"],
    )
    return Emission({}, (told,))
