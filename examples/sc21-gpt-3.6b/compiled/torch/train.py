"""Trains sc21-gpt-3.6b.par: tp 2, dp 32.

Computes in fp16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import CUT, Model
from parlay.runtime import init, precision
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
from parlay.runtime.weights import Weights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    mesh: Mesh
    model: Model
    gradients: Gradients
    optimizer: AdamW
    scale: LossScale
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, cp, dp, pp] (default)
    mesh = build_mesh(plan)

    # parallel.tp = 2 (sc21-gpt-3.6b...:23)
    with torch.device("meta"):
        model = Model(plan, mesh)

    # train.precision = fp16 (sc21-gpt-3.6b...:32), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    weights = Weights(model, dtype=compute, device=mesh.device, cut=CUT)
    init.fill(model, plan=plan, cut=CUT, axis=mesh.tp)
    gradients = Gradients(weights, dtype=precision.dtype(plan.dtypes.gradients))

    # train.optimizer = adamw(...) (sc21-gpt-3.6b...:34),
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
        # train.precision = fp16 (sc21-gpt-3.6b...:32)
        scale=LossScale(plan),
        # data.format = megatron (sc21-gpt-3.6b...:40)
        data=Loader(plan, rank=mesh.dp.rank, ranks=mesh.dp.size),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor:
    """Gradients summed over every axis; the mean loss of the global batch."""
    mesh, device = job.mesh, job.mesh.device
    valid = valid_labels(batch, device=device, axis=mesh.dp).double() / job.scale.value
    losses = []
    for tokens, labels in batch:
        tokens, labels = (each.to(device, non_blocking=True) for each in (tokens, labels))
        loss = job.model(tokens, labels) / valid
        loss.backward()
        losses.append(loss.detach())
    loss = torch.stack(losses).sum()
    dist.all_reduce(loss, group=mesh.dp.group)

    # parallel.dp = 32 (sc21-gpt-3.6b...:25), parallel.zero = 0 (default)
    job.gradients.all_reduce(axis=mesh.dp, bucket=job.plan.buckets.gradients)

    # train.precision = fp16 (sc21-gpt-3.6b...:32): the loss was scaled up, by fewer labels.
    job.gradients.scale(1 / job.scale.value)
    return loss / job.scale.value


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(...) (sc21-gpt-3.6b...:35)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (sc21-gpt-3.6b...:36)
    norm = job.gradients.norm(over=job.mesh.tp, once=job.mesh.tp)
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

    # checkpoint.path = checkpoints (sc21-gpt-3.6b...:41),
    # checkpoint.every = 500 (sc21-gpt-3.6b...:41)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder, tp=mesh.tp, scale=job.scale)
    start = saves.resume()
    stop = Stop(mesh.device)

    writes = mesh.dp.first and mesh.tp.first
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
