"""Trains tiny.par: tp 2 with sequence parallelism, dp 2, pp 2 by 1F1B; bf16 over fp32 masters.

Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import CUT, Stage
from parlay.runtime import init, pipeline, precision, timeline
from parlay.runtime.data import Loader
from parlay.runtime.log import Log
from parlay.runtime.loss import Batch, valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.plan import Plan
from parlay.runtime.schedule import cosine
from parlay.runtime.shard import Gradients
from parlay.runtime.timeline import Timeline
from parlay.runtime.weights import Weights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    mesh: Mesh
    model: Stage
    gradients: Gradients
    optimizer: AdamW
    timeline: Timeline
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, dp, pp] (tiny.par:24)
    mesh = build_mesh(plan)

    # parallel.tp = 2, parallel.pp = 2 (tiny.par:18, tiny.par:20)
    with torch.device("meta"):
        model = Stage(plan, mesh, stage=plan.stages[mesh.pp.rank])

    # train.precision = bf16, train.gradients = fp32 (tiny.par:31)
    dtype = precision.dtype(plan.dtypes.compute)
    weights = Weights(model, dtype=dtype, device=mesh.device, cut=CUT)
    init.fill(model, plan=plan, cut=CUT, axis=mesh.tp)
    gradients = Gradients(weights, dtype=precision.dtype(plan.dtypes.gradients))

    # train.optimizer = adamw(...), train.master = fp32 (tiny.par:34)
    optimizer = AdamW(
        weights,
        gradients,
        master=precision.dtype(plan.dtypes.master),
        states=precision.dtype(plan.dtypes.optimizer),
        betas=plan.optimizer.betas,
        eps=plan.optimizer.eps,
        weight_decay=plan.optimizer.weight_decay,
    )
    return Job(
        plan=plan,
        mesh=mesh,
        model=model,
        gradients=gradients,
        optimizer=optimizer,
        # parallel.schedule = one_f_one_b (tiny.par:21)
        timeline=timeline.one_f_one_b(mesh.pp.size, plan.batch.microbatches),
        # data.format = text (tiny.par:41)
        data=Loader(plan, rank=mesh.dp.rank, ranks=mesh.dp.size),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor | None:
    """Gradients summed over every axis; the mean loss on ranks of the last stage."""
    plan, mesh = job.plan, job.mesh
    valid = None
    if mesh.pp.last:
        valid = valid_labels(batch, device=mesh.device, axis=mesh.dp)
    loss = pipeline.run(
        job.timeline,
        stages=[job.model],
        batch=batch,
        valid=valid,
        axis=mesh.pp,
        shape=(plan.batch.micro_batch, plan.batch.seq // mesh.tp.size, plan.model.hidden),
    )
    if loss is not None:
        dist.all_reduce(loss, group=mesh.dp.group)

    # parallel.sequence_parallel = on (tiny.par:19): norms have seen a piece of the sequence each.
    job.gradients.sum_whole(axis=mesh.tp)

    # parallel.dp = 2, parallel.zero = 0 (tiny.par:22)
    job.gradients.all_reduce(axis=mesh.dp, bucket=plan.buckets.gradients)
    return loss


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(warmup = 20, min_lr = 3e-5) (tiny.par:35)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1.0 (tiny.par:36)
    norm = job.gradients.norm(over=job.mesh.tp_pp, once=job.mesh.tp)
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    mesh = job.mesh
    writes = mesh.pp.last and mesh.dp.first and mesh.tp.first
    log = Log(job.plan, writes=writes, folder=folder)
    for step in range(job.plan.steps):
        loss = backward(job, job.data.batch(step))
        norm = update(job, step)
        log.step(step=step, loss=loss, grad_norm=norm, lr=learning_rate(job.plan, step))
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
