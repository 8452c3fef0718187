"""What a run says: one JSON line a step in `metrics.jsonl`, one plain line on standard output.

The first rank of the last stage holds the loss, so that rank writes; the others are silent.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from parlay.runtime.plan import Plan
from parlay.runtime.scaling import LossScale

SHOWN = ("loss", "validation_loss", "grad_norm", "lr", "tokens_per_second", "mfu")
"""What TensorBoard is shown of a line."""


class Log:
    """Writes `$PARLAY_OUT/metrics.jsonl`, or `metrics.jsonl` in `folder`, line by line.

    A line: {"step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "seconds", "mfu"}.
    A run that goes on from step `start` keeps the lines of the steps before it, and those alone.
    `step` counts from 0, `tokens` is cumulative, `seconds` is the time of one step (the mean since
    the last line, where only every n-th step is logged), `mfu` is null where no peak is known.
    With a loss `scale` a line has `loss_scale`, of the next step, and `skipped`, the steps left out
    so far.
    Where the plan asks for TensorBoard, the same numbers go to `tensorboard` beside it, by step.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        writes: bool,
        folder: Path,
        start: int = 0,
        scale: LossScale | None = None,
    ) -> None:
        self.writes, self.scale = writes, scale
        self.every, self.steps = plan.log.every, plan.steps
        self.tokens_per_step = plan.batch.global_batch * plan.batch.seq
        self.flops_per_token, self.peak_flops = plan.flops_per_token, plan.peak_flops
        self.ranks = math.prod(plan.mesh.values())
        self.file: TextIO | None = None
        self.board: Any = None
        if writes:
            out = Path(os.environ.get("PARLAY_OUT") or folder)
            out.mkdir(parents=True, exist_ok=True)
            path = out / "metrics.jsonl"
            kept = lines_before(path, start)
            anew = path.with_suffix(".tmp")
            anew.write_text("".join(kept), encoding="utf-8")
            anew.replace(path)  # a run that is killed here has lost no line
            self.file = path.open("a", encoding="utf-8", buffering=1)
            if plan.log.get("tensorboard", False):
                self.board = board(out / "tensorboard", start)
        self.since, self.pending = time.perf_counter(), 0

    def step(
        self,
        *,
        step: int,
        loss: torch.Tensor | float | None,
        grad_norm: torch.Tensor | float,
        lr: float,
        validation: torch.Tensor | None = None,
    ) -> None:
        """Before: step `step` is done on this rank. After: it is written, if it is due here.

        A line has `validation_loss` where `validation` is given, and is due there.
        """
        self.pending += 1
        due = (step + 1) % self.every == 0 or step + 1 == self.steps or validation is not None
        if self.file is None or not due:
            return
        if loss is None:
            raise ValueError(
                "the rank that writes the log has no loss: it is not of the last stage"
            )
        # float() waits for the device, so the clock is read after it.
        values = {"loss": float(loss), "grad_norm": float(grad_norm), "lr": float(lr)}
        now = time.perf_counter()
        seconds = (now - self.since) / self.pending
        self.since, self.pending = now, 0
        speed = self.tokens_per_step / seconds
        mfu = None
        if self.peak_flops:
            mfu = self.flops_per_token * speed / (self.peak_flops * self.ranks)
        line: dict[str, Any] = {
            "step": step,
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
            "tokens": (step + 1) * self.tokens_per_step,
            "tokens_per_second": speed,
            "seconds": seconds,
            "mfu": mfu,
        }
        if self.scale is not None:
            line |= {"loss_scale": self.scale.value, "skipped": self.scale.skipped}
        said = self._sentence(step=step, speed=speed, mfu=mfu, **values)
        if self.scale is not None and not math.isfinite(values["grad_norm"]):
            said += f"  left out, {self.scale.skipped} so far"
        if validation is not None:
            held = float(validation)
            line["validation_loss"] = held if math.isfinite(held) else None
            said += f"  validation loss {held:.4f}"
        self.file.write(json.dumps(line) + "\n")
        if self.board is not None:
            for name in SHOWN:
                if line.get(name) is not None:
                    self.board.add_scalar(name, line[name], step)
        print(said, flush=True)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is done in it counts in no step's time."""
        began = time.perf_counter()
        yield
        self.since += time.perf_counter() - began

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()

    def _sentence(
        self,
        *,
        step: int,
        loss: float,
        grad_norm: float,
        lr: float,
        speed: float,
        mfu: float | None,
    ) -> str:
        width = len(str(self.steps))
        parts = [
            f"step {step + 1:>{width}}/{self.steps}",
            f"loss {loss:.4f}",
            f"grad norm {grad_norm:.3f}",
            f"lr {lr:.2e}",
            f"{speed:,.0f} tokens/s",
        ]
        if mfu is not None:
            parts.append(f"mfu {mfu:.1%}")
        return "  ".join(parts)


def board(folder: Path, start: int) -> Any:
    """Writes TensorBoard's files; what an earlier run wrote of step `start` and later is void."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SystemExit(
            "`log { tensorboard = on }` needs the package tensorboard, which is not installed: "
            "`pip install tensorboard`, or `tensorboard = off`"
        ) from error
    return SummaryWriter(folder, purge_step=start or None)


def lines_before(path: Path, start: int) -> list[str]:
    """The whole lines of `path` of steps before `start`; a run that was killed may leave a half."""
    if start == 0 or not path.is_file():
        return []
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            continue
        if line.endswith("\n") and step < start:
            kept.append(line)
    return kept
