"""A pipeline schedule that the target does not have.

What
    `schedule` is not `dualpipe`.
Why
    PyTorch's schedules hold each stage once; DualPipe with two copies of every stage is not
    among them, its half (`dualpipe_v`) is.
Example
    model from "llama3-8b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      schedule = dualpipe
      #          ^^^^^^^^ B605
    }
Instead
    model from "llama3-8b"
    cluster { nodes = 8, node from "dgx-h100" }
    parallel {
      tp = 2
      pp = 4
      schedule = dualpipe_v
    }
Source
    torchtitan, August 2026, distributed/pipeline_parallel.py: the schedules of
    torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.checks import Subject, fix, suggest
from parlay.compiler.spec.schema import Setting
from parlay.dsl.diagnostics import Diagnostic, error

CODE = "B605"
TITLE = "a pipeline schedule that the target does not have"
READS = ("parallel.pp", "parallel.schedule")
ALLOWED = False


def check(subject: Subject) -> Iterator[Diagnostic]:
    if subject.parallel.pp == 1 or subject.parallel.schedule.name != "dualpipe":
        return
    path = "parallel.schedule"
    holds = suggest.holds(subject, {path: Setting("dualpipe_v")})
    yield error(
        CODE,
        "torchtitan has no schedule `dualpipe`",
        *subject.label(path, "two copies of every stage"),
        help=["`dualpipe_v` is its half, with one copy"],
        fixes=fix.set_fields(subject, {path: "dualpipe_v"}) if holds else (),
    )
