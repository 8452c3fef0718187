"""Trains qwen3-30b-dualpipe.par: dp 8 with ZeRO-1, ep 8, pp 4 by dualpipe.

Computes in bf16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import EXPERTS, Stage
from parlay.runtime import init, pipeline, precision, timeline_split
from parlay.runtime.checkpoint import Checkpoints
from parlay.runtime.data import Loader
from parlay.runtime.health import Health, must_be_finite
from parlay.runtime.log import Log
from parlay.runtime.loss import valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.parts import GradientParts, WeightParts
from parlay.runtime.pipeline import Batch, Chunks
from parlay.runtime.plan import Plan
from parlay.runtime.schedule import cosine
from parlay.runtime.shard import Gradients, ShardedGradients
from parlay.runtime.stop import Stop
from parlay.runtime.timeline import Timeline
from parlay.runtime.weights import Dealt, Weights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    mesh: Mesh
    model: Chunks
    weights: WeightParts
    gradients: GradientParts
    optimizer: AdamW
    timeline: Timeline
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, cp, dp, pp] (default)
    mesh = build_mesh(plan)

    # parallel.pp = 4 (qwen3-30b-dual..:13)
    with torch.device("meta"):
        own = [stage for stage in plan.stages if stage.stage == mesh.pp.rank]
        model = Chunks(Stage(plan, mesh, stage=stage) for stage in own)

    # train.precision = bf16 (qwen3-30b-dual..:24), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    dealt = Dealt(EXPERTS, ep=mesh.ep)
    weights = WeightParts(
        common=Weights(model, dtype=compute, device=mesh.device, multiple=mesh.dp.size),
        experts=Weights(model, dtype=compute, device=mesh.device, dealt=dealt),
    )
    init.fill(model, plan=plan, dealt=dealt)
    gradients = GradientParts(
        common=ShardedGradients(
            weights.common, dtype=precision.dtype(plan.dtypes.gradients), axis=mesh.dp
        ),
        experts=Gradients(weights.experts, dtype=precision.dtype(plan.dtypes.gradients)),
    )

    # train.optimizer = adamw(...) (qwen3-30b-dual..:26),
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
        # parallel.schedule = dualpipe (qwen3-30b-dual..:14)
        timeline=timeline_split.dualpipe(mesh.pp.size, plan.batch.microbatches),
        # data.format = megatron (qwen3-30b-dual..:32)
        data=Loader(plan, rank=mesh.dp.rank, ranks=mesh.dp.size),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor | None:
    """Gradients summed over every axis; the mean loss on ranks of the last stage."""
    plan, mesh = job.plan, job.mesh
    valid = None
    if mesh.pp.first or mesh.pp.last:
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
        # parallel.schedule = dualpipe (qwen3-30b-dual..:14): either end has half of the
        # microbatches.
        dist.all_reduce(loss, group=mesh.mirror.group)

    # parallel.dp = 8 (qwen3-30b-dual..:16), parallel.zero = 1 (qwen3-30b-dual..:17)
    job.gradients.common.reduce_scatter(axis=mesh.dp)

    # parallel.schedule = dualpipe (qwen3-30b-dual..:14): the two copies of each stage are summed.
    job.gradients.common.all_reduce(axis=mesh.mirror, bucket=plan.buckets.gradients)
    job.gradients.experts.all_reduce(axis=mesh.mirror, bucket=plan.buckets.gradients)
    return loss


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(...) (qwen3-30b-dual..:27)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (qwen3-30b-dual..:28)
    norm = job.gradients.norm(over=job.mesh.world, alike=job.mesh.mirror)
    must_be_finite(norm, job.gradients, step=step)
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.weights.common.all_gather(axis=job.mesh.dp)
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    mesh = job.mesh

    # checkpoint.path = checkpoints (qwen3-30b-dual..:33),
    # checkpoint.every = 500 (qwen3-30b-dual..:33)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder)
    start = saves.resume()
    # Each rank has read its shard.
    job.weights.common.all_gather(axis=mesh.dp)
    stop = Stop(mesh.device)

    writes = mesh.pp.last and mesh.dp.first
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
