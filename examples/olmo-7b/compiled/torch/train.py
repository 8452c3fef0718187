"""Trains olmo-7b.par: dp 256 with ZeRO-3.

Computes in bf16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import Model
from parlay.runtime import init, precision
from parlay.runtime.checkpoint import Checkpoints
from parlay.runtime.data import Loader
from parlay.runtime.gather import gather_on_use
from parlay.runtime.health import Health, must_be_finite
from parlay.runtime.log import Log
from parlay.runtime.loss import valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.pipeline import Batch
from parlay.runtime.plan import Plan
from parlay.runtime.scatter import ScatteredGradients
from parlay.runtime.schedule import linear
from parlay.runtime.stop import Stop
from parlay.runtime.units import UnitWeights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    mesh: Mesh
    model: Model
    weights: UnitWeights
    gradients: ScatteredGradients
    optimizer: AdamW
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, cp, dp, pp] (default)
    mesh = build_mesh(plan)

    # model.layers = 32 (olmo-7b.par:6)
    with torch.device("meta"):
        model = Model(plan)

    # train.precision = bf16 (olmo-7b.par:35), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    weights = UnitWeights(model, dtype=compute, device=mesh.device, axis=mesh.dp, gathers=True)
    init.fill(model, plan=plan, gathered=weights.drawn)

    # parallel.zero = 3 (olmo-7b.par:27): each layer is gathered where it is used, and freed after.
    gather_on_use(model, weights)
    gradients = ScatteredGradients(weights, dtype=precision.dtype(plan.dtypes.gradients))

    # train.optimizer = adamw(...) (olmo-7b.par:36),
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
        # data.format = megatron (olmo-7b.par:42)
        data=Loader(plan, rank=mesh.dp.rank, ranks=mesh.dp.size),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor:
    """Gradients summed over every axis; the mean loss of the global batch."""
    mesh, device = job.mesh, job.mesh.device
    valid = valid_labels(batch, device=device, axis=mesh.dp)
    losses = []
    for tokens, labels in batch:
        tokens, labels = (each.to(device, non_blocking=True) for each in (tokens, labels))
        loss = job.model(tokens, labels) / valid
        loss.backward()
        losses.append(loss.detach())
    loss = torch.stack(losses).sum()
    dist.all_reduce(loss, group=mesh.dp.group)

    # parallel.zero = 3 (olmo-7b.par:27): each microbatch has been reduced into the ranks' shards.
    job.gradients.settle()
    return loss


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = linear(...) (olmo-7b.par:37)"""
    return linear(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (olmo-7b.par:38)
    norm = job.gradients.norm(over=job.mesh.world)
    must_be_finite(norm, job.gradients, step=step)
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    mesh = job.mesh

    # checkpoint.path = checkpoints (olmo-7b.par:43), checkpoint.every = 1000 (olmo-7b.par:43)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder)
    start = saves.resume()
    stop = Stop(mesh.device)

    writes = mesh.dp.first
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
