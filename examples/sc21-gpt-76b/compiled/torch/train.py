"""Trains sc21-gpt-76b.par: tp 8, dp 32, pp 4 by one_f_one_b.

Computes in fp16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import CUT, TIED, Stage
from parlay.runtime import init, pipeline, precision, timeline
from parlay.runtime.checkpoint import Checkpoints
from parlay.runtime.data import Loader
from parlay.runtime.health import Health
from parlay.runtime.log import Log
from parlay.runtime.loss import valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.pipeline import Batch
from parlay.runtime.plan import Plan
from parlay.runtime.scaling import LossScale
from parlay.runtime.schedule import cosine
from parlay.runtime.shard import Gradients
from parlay.runtime.stop import Stop
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
    scale: LossScale
    timeline: Timeline
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, cp, dp, pp] (default)
    mesh = build_mesh(plan)

    # parallel.tp = 8 (sc21-gpt-76b.par:23), parallel.pp = 4 (sc21-gpt-76b.par:25)
    with torch.device("meta"):
        model = Stage(plan, mesh, stage=plan.stages[mesh.pp.rank])

    # train.precision = fp16 (sc21-gpt-76b.par:34), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    weights = Weights(
        model, dtype=compute, device=mesh.device, cut=CUT, copies=[(TIED, mesh.embedding)]
    )
    init.fill(model, plan=plan, cut=CUT, axis=mesh.tp)
    gradients = Gradients(weights, dtype=precision.dtype(plan.dtypes.gradients))

    # train.optimizer = adamw(...) (sc21-gpt-76b.par:36),
    # train.master = fp32 (derived)
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
        # train.precision = fp16 (sc21-gpt-76b.par:34)
        scale=LossScale(plan),
        # parallel.schedule = one_f_one_b (sc21-gpt-76b.par:26)
        timeline=timeline.one_f_one_b(mesh.pp.size, plan.batch.microbatches),
        # data.format = megatron (sc21-gpt-76b.par:42)
        data=Loader(plan, rank=mesh.dp.rank, ranks=mesh.dp.size),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor | None:
    """Gradients summed over every axis; the mean loss on ranks of the last stage."""
    plan, mesh = job.plan, job.mesh
    valid = None
    if mesh.pp.last:
        valid = valid_labels(batch, device=mesh.device, axis=mesh.dp).double() / job.scale.value
    loss = pipeline.run(
        job.timeline,
        stages=[job.model],
        batch=batch,
        valid=valid,
        axis=mesh.pp,
        shape=(plan.batch.micro_batch, plan.batch.seq, plan.model.hidden),
    )
    if loss is not None:
        dist.all_reduce(loss, group=mesh.dp.group)

    # model.tied_embeddings = on (sc21-gpt-76b.par:13)
    job.gradients.sum(TIED, axis=mesh.embedding)

    # parallel.dp = 32 (sc21-gpt-76b.par:27), parallel.zero = 0 (default)
    job.gradients.all_reduce(axis=mesh.dp, bucket=plan.buckets.gradients)

    # train.precision = fp16 (sc21-gpt-76b.par:34): the loss was scaled up, by fewer labels.
    job.gradients.scale(1 / job.scale.value)
    return None if loss is None else loss / job.scale.value


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(...) (sc21-gpt-76b.par:37)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (sc21-gpt-76b.par:38)
    norm = job.gradients.norm(over=job.mesh.tp_pp, once=job.mesh.tp)
    if not job.scale.fits(norm, job.gradients, step=step):
        job.gradients.clear()
        return norm
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    mesh = job.mesh

    # checkpoint.path = checkpoints (sc21-gpt-76b.par:43),
    # checkpoint.every = 500 (sc21-gpt-76b.par:43)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder, tp=mesh.tp, scale=job.scale)
    start = saves.resume()
    stop = Stop(mesh.device)

    writes = mesh.pp.last and mesh.dp.first and mesh.tp.first
    log = Log(job.plan, writes=writes, folder=folder, start=start, scale=job.scale)
    health = Health(job.plan, writes=writes, device=mesh.device)
    for step in range(start, job.plan.steps):
        loss = backward(job, health.over(step, job.data.batch(step)))
        norm = update(job, step)
        health.after(step, loss=loss, grad_norm=norm)
        log.step(step=step, loss=loss, grad_norm=norm, lr=learning_rate(job.plan, step))
        stopping = stop.asked()
        saves.after(step, now=stopping)
        if stopping:
            break
    saves.wait()
    health.close()
    log.close()
    dist.destroy_process_group()
    stop.leave()


if __name__ == "__main__":
    main()
