"""Trains llama3.2-3b-v.par: dp 4 with ZeRO-1, pp 2 by zbv.

Computes in bf16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import Stage
from parlay.runtime import init, pipeline, precision, timeline_split
from parlay.runtime.checkpoint import Checkpoints
from parlay.runtime.data import Loader
from parlay.runtime.health import Health, must_be_finite
from parlay.runtime.log import Log
from parlay.runtime.loss import valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.pipeline import Batch, Chunks
from parlay.runtime.plan import Plan
from parlay.runtime.pretrained import load_weights
from parlay.runtime.schedule import cosine
from parlay.runtime.shard import ShardedGradients
from parlay.runtime.stop import Stop
from parlay.runtime.timeline import Timeline
from parlay.runtime.weights import Weights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    mesh: Mesh
    model: Chunks
    weights: Weights
    gradients: ShardedGradients
    optimizer: AdamW
    timeline: Timeline
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, cp, dp, pp] (default)
    mesh = build_mesh(plan)

    # parallel.pp = 2 (llama3.2-3b-v...:10)
    with torch.device("meta"):
        own = [stage for stage in plan.stages if stage.stage == mesh.pp.rank]
        model = Chunks(Stage(plan, stage=stage) for stage in own)

    # train.precision = bf16 (llama3.2-3b-v...:21), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    weights = Weights(model, dtype=compute, device=mesh.device, multiple=mesh.dp.size)
    init.fill(model, plan=plan)

    # parallel.zero = 1 (llama3.2-3b-v...:14): masters and optimizer state are cut over dp.
    gradients = ShardedGradients(
        weights, dtype=precision.dtype(plan.dtypes.gradients), axis=mesh.dp
    )

    # train.optimizer = adamw(...) (llama3.2-3b-v...:24),
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
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        # parallel.schedule = zbv (llama3.2-3b-v...:11)
        timeline=timeline_split.zbv(mesh.pp.size, plan.batch.microbatches),
        # data.format = megatron (llama3.2-3b-v...:30)
        data=Loader(plan, rank=mesh.dp.rank, ranks=mesh.dp.size),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor | None:
    """Gradients summed over every axis; the mean loss on ranks of the last stage."""
    plan, mesh = job.plan, job.mesh
    valid = None
    if mesh.pp.first:
        valid = valid_labels(batch, device=mesh.device, axis=mesh.dp)
    loss = pipeline.run(
        job.timeline,
        stages=job.model.stages,
        batch=batch,
        valid=valid,
        axis=mesh.pp,
        shape=(plan.batch.micro_batch, plan.batch.seq, plan.model.hidden),
    )
    if loss is not None:
        dist.all_reduce(loss, group=mesh.dp.group)

    # parallel.dp = 4 (llama3.2-3b-v...:13), parallel.zero = 1 (llama3.2-3b-v...:14)
    job.gradients.reduce_scatter(axis=mesh.dp)
    return loss


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(...) (llama3.2-3b-v...:25)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (llama3.2-3b-v...:26)
    norm = job.gradients.norm(over=job.mesh.world)
    must_be_finite(norm, job.gradients, step=step)
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.weights.all_gather(axis=job.mesh.dp)
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    mesh = job.mesh

    # checkpoint.path = checkpoints (llama3.2-3b-v...:31),
    # checkpoint.every = 500 (llama3.2-3b-v...:31), checkpoint.keep = 3 (llama3.2-3b-v...:31)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder)
    start = saves.resume()

    # train.weights = Llama-3.2-3B (llama3.2-3b-v...:22): each rank reads what it holds of a Hugging
    # Face folder.
    if start == 0:
        load_weights(job.plan, job.optimizer)
    # Each rank has read its shard.
    job.weights.all_gather(axis=mesh.dp)
    stop = Stop(mesh.device)

    writes = mesh.pp.first and mesh.dp.first
    log = Log(job.plan, writes=writes, folder=folder, start=start)
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
