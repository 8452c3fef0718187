"""What one rank of a proof does: three steps of an emitted folder, everything kept on the way."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from parlay.runtime.axes import Grid
from parlay.runtime.count import Counter, named_groups
from parlay.runtime.plan import Plan
from parlay.runtime.units import UnitWeights

STEPS = 3


def prove(*, code: Path, out: Path) -> None:
    """Runs `build`, then `backward` and `update` of code/train.py; after: `out` has the record.

    {"initial": {name: weight}, "losses": [number or None], "norms": [number],
    "gradients": [[(name, offset or None, tensor)]], "weights": {name: weight}, "counts": [rows]}.
    An offset belongs to a flat piece of a gradient, which is what a rank owns under ZeRO.
    """
    os.chdir(code)
    sys.path.insert(0, str(code))
    # A file edited twice in a second looks unchanged to a cache of its byte code.
    sys.dont_write_bytecode = True
    sys.pycache_prefix = str(out.parent / "no-byte-code")
    train: Any = importlib.import_module("train")
    plan = Plan.load(code / "plan.json")
    job = train.build(plan)
    record: dict[str, Any] = {"initial": weights_of(job), "losses": [], "norms": []}
    record |= {"gradients": [], "counts": []}
    groups = named_groups(Grid(tuple(plan.mesh.items())), experts_of(plan))
    compiled = any(getattr(m, "_compiled_call_impl", None) for m in job.model.modules())
    for step in range(STEPS):
        counter = Counter(groups)
        # Nothing compiles while operators are counted: the first step is counted as it is written,
        # the others, which send the same, run compiled.
        counted: Any = counter if step == 0 or not compiled else nullcontext()
        with counted, eager() if compiled and step == 0 else nullcontext():
            loss = train.backward(job, job.data.batch(step))
        record["losses"].append(number(loss))
        record["gradients"].append(gradients_of(job))
        with counted:
            norm = train.update(job, step)
        record["norms"].append(number(norm))
        record["counts"].append(counter.rows() if counted is counter else record["counts"][0])
    record["weights"] = weights_of(job)
    torch.save(record, out)


def experts_of(plan: Plan) -> Grid | None:
    """The grid of experts, where there is one."""
    sizes = plan.get("expert_mesh")
    return None if sizes is None else Grid(tuple(sizes.items()))


def eager() -> Any:
    """Inside, compiled modules run as they are written."""
    return torch.compiler.set_stance("force_eager")


def weights_of(job: Any) -> dict[str, torch.Tensor]:
    with ExitStack() as stack:
        for name in ("weights", "frozen"):
            weights = getattr(job, name, None)
            if isinstance(weights, UnitWeights):
                stack.enter_context(weights.whole())
        return {name: kept(weight) for name, weight in job.model.named_parameters()}


def gradients_of(job: Any) -> list[tuple[str, int | None, torch.Tensor]]:
    found = []
    for name, *offset, tensor in job.gradients.named():
        found.append((name, offset[0] if offset else None, kept(tensor)))
    return found


def kept(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", torch.float64, copy=True).contiguous()


def number(value: torch.Tensor | float | None) -> float | None:
    return None if value is None else float(value)
