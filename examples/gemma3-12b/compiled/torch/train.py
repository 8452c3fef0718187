"""Trains gemma3-12b.par: tp 2 with sequence parallelism, dp 4 with ZeRO-3.

Computes in bf16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
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
from parlay.runtime.gather import gather_on_use
from parlay.runtime.health import Health, must_be_finite
from parlay.runtime.log import Log
from parlay.runtime.loss import valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW
from parlay.runtime.pipeline import Batch
from parlay.runtime.plan import Plan
from parlay.runtime.pretrained import load_weights
from parlay.runtime.scatter import ScatteredGradients
from parlay.runtime.schedule import cosine
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

    # parallel.tp = 2 (gemma3-12b.par:11)
    with torch.device("meta"):
        model = Model(plan, mesh)

    # train.precision = bf16 (gemma3-12b.par:20), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    weights = UnitWeights(
        model, dtype=compute, device=mesh.device, cut=CUT, axis=mesh.dp, gathers=True
    )
    init.fill(model, plan=plan, cut=CUT, axis=mesh.tp, gathered=weights.drawn)

    # parallel.zero = 3 (gemma3-12b.par:13): each layer is gathered where it is used, and freed
    # after.
    gather_on_use(model, weights)
    gradients = ScatteredGradients(weights, dtype=precision.dtype(plan.dtypes.gradients))

    # train.optimizer = adamw(...) (gemma3-12b.par:23),
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
        # data.format = text (gemma3-12b.par:29)
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

    # parallel.zero = 3 (gemma3-12b.par:13): each microbatch has been reduced into the ranks'
    # shards.
    job.gradients.settle()

    # parallel.sequence_parallel = on (derived): norms have seen a piece of the sequence each.
    job.gradients.sum_whole(axis=mesh.tp)
    return loss


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(warmup = 100, min_lr = 10e-7) (gemma3-12b.par:24)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (gemma3-12b.par:25)
    norm = job.gradients.norm(over=job.mesh.world, once=job.mesh.tp)
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

    # checkpoint.path = checkpoints (gemma3-12b.par:30), checkpoint.every = 200 (gemma3-12b.par:30),
    # checkpoint.keep = 3 (gemma3-12b.par:30)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder, tp=mesh.tp)
    start = saves.resume()

    # train.weights = gemma-3-12b-pt (gemma3-12b.par:22): each rank reads what it holds of a Hugging
    # Face folder.
    if start == 0:
        load_weights(job.plan, job.optimizer, tp=mesh.tp)
    stop = Stop(mesh.device)

    writes = mesh.dp.first and mesh.tp.first
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
