"""`parlay timeline`: the predicted step as a trace that opens in Perfetto."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from parlay.compiler import pipeline
from parlay.compiler.commands.printing import has_figures, priced, show
from parlay.compiler.commands.rewrite import written
from parlay.compiler.ledger.time import priceable
from parlay.compiler.ledger.time.trace import trace
from parlay.compiler.output import MADE_BY
from parlay.dsl.diagnostics.cells import harmless

BY: Final = "parlay timeline"


def run(
    file: Path,
    out: Path,
    *,
    phase: str | None = None,
    microbatches: int | None = None,
    force: bool = False,
) -> int:
    """Writes the trace of one phase's step, by default the first's, to `out`.

    1 where it has none, or the file errors.
    """
    job = priced(file)
    if not has_figures(job):
        return 1
    found = next((each for each in job.phases if phase in (None, each.name)), None)
    if found is None:
        names = ", ".join(each.name for each in job.phases)
        print(f"parlay: {file} has no phase {phase!r}; there are: {names}", file=sys.stderr)
        return 1
    layout = pipeline.lay_out(found)
    spec = found.spec
    if layout is None or found.open or spec.train is None or not layout.stages:
        show([job], summary=True, stream=sys.stderr)
        print(
            f"parlay: a timeline needs a model with a shape, every degree and a `train` block; "
            f"`parlay plan {file} --write` fills in what is `auto`",
            file=sys.stderr,
        )
        return 1
    if not priceable(spec):
        print(
            f"parlay: {file} states no peak and memory bandwidth of its GPU, so that no step is "
            "predicted; `parlay calibrate -o FILE` measures them",
            file=sys.stderr,
        )
        return 1
    made = trace(spec, layout, most=microbatches)
    about = made["otherData"]
    about[MADE_BY] = BY
    if not written(out, json.dumps(made), by=BY, force=force):
        return 1
    shown = about["microbatches_shown"]
    part = "" if shown == about["microbatches"] else f", {shown} of {about['microbatches']} shown"
    print(
        f"{harmless(str(out))}: {spec.parallel.pp} pipeline ranks, "
        f"{about['microbatches']} microbatches{part}, step {about['step_seconds']:.3g} s; "
        "open it at https://ui.perfetto.dev"
    )
    return 1 if job.errors else 0
