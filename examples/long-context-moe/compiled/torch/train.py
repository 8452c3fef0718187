"""Trains long-context-moe.par.

The layout is tp 2 with sequence parallelism, cp 64 by ring, dp 4 with ZeRO-1, ep 64.

Computes in bf16 over fp32 masters. Sizes stand in plan.json. `bash launch.sh` starts the ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mesh import build as build_mesh
from model import CUT, EXPERTS, Model
from parlay.runtime import context, init, precision
from parlay.runtime.checkpoint import Checkpoints
from parlay.runtime.data import Loader
from parlay.runtime.health import Health, must_be_finite
from parlay.runtime.log import Log
from parlay.runtime.loss import valid_labels
from parlay.runtime.mesh import Mesh
from parlay.runtime.optimizer import AdamW, Steer
from parlay.runtime.parts import GradientParts, WeightParts
from parlay.runtime.pipeline import Batch
from parlay.runtime.plan import Plan
from parlay.runtime.schedule import constant
from parlay.runtime.shard import ShardedGradients
from parlay.runtime.stop import Stop
from parlay.runtime.weights import Dealt, Weights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    mesh: Mesh
    model: Model
    weights: WeightParts
    gradients: GradientParts
    optimizer: AdamW
    data: Loader


def build(plan: Plan) -> Job:
    # parallel.order = [tp, cp, dp, pp] (default)
    mesh = build_mesh(plan)

    # parallel.tp = 2 (long-context-m..:17), parallel.cp = 64 (long-context-m..:19)
    with torch.device("meta"):
        model = Model(plan, mesh)

    # train.precision = bf16 (long-context-m..:30), train.gradients = fp32 (default)
    compute = precision.dtype(plan.dtypes.compute)
    dealt = Dealt(EXPERTS, ep=mesh.ep)
    weights = WeightParts(
        common=Weights(model, dtype=compute, device=mesh.device, cut=CUT, multiple=mesh.dp_cp.size),
        experts=Weights(
            model, dtype=compute, device=mesh.device, dealt=dealt, multiple=mesh.edp.size
        ),
    )
    init.fill(model, plan=plan, cut=CUT, axis=mesh.tp, dealt=dealt)
    gradients = GradientParts(
        common=ShardedGradients(
            weights.common, dtype=precision.dtype(plan.dtypes.gradients), axis=mesh.dp_cp
        ),
        experts=ShardedGradients(
            weights.experts, dtype=precision.dtype(plan.dtypes.gradients), axis=mesh.edp
        ),
    )

    # train.optimizer = adamw(...) (long-context-m..:32),
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

    # model.experts.router_bias = on (glm-4.5-air)
    optimizer.steer = Steer.of(plan)
    return Job(
        plan=plan,
        mesh=mesh,
        model=model,
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        # data.format = megatron (long-context-m..:38)
        data=Loader(
            plan,
            rank=mesh.dp.rank,
            ranks=mesh.dp.size,
            own=context.head_tail(plan.batch.seq, axis=mesh.cp),
        ),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor:
    """Gradients summed over every axis; the mean loss of the global batch."""
    mesh, device = job.mesh, job.mesh.device
    valid = valid_labels(batch, device=device, axis=mesh.dp_cp)
    losses = []
    for tokens, labels in batch:
        tokens, labels = (each.to(device, non_blocking=True) for each in (tokens, labels))
        loss = job.model(tokens, labels) / valid
        loss.backward()
        losses.append(loss.detach())
    loss = torch.stack(losses).sum()
    dist.all_reduce(loss, group=mesh.dp_cp.group)

    # parallel.sequence_parallel = on (long-context-m..:18): norms have seen a piece of the sequence
    # each.
    job.gradients.sum_whole(axis=mesh.tp)

    # parallel.dp = 4 (long-context-m..:22), parallel.cp = 64 (long-context-m..:19),
    # parallel.zero = 1 (long-context-m..:23)
    job.gradients.common.reduce_scatter(axis=mesh.dp_cp)

    # parallel.ep = 64 (long-context-m..:20): each expert has seen the tokens of its ep and etp
    # ranks.
    job.gradients.experts.reduce_scatter(axis=mesh.edp)
    return loss


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = constant(warmup = 0) (long-context-m..:33)"""
    return constant(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1 (long-context-m..:34)
    norm = job.gradients.norm(over=job.mesh.world, once=job.mesh.tp)
    must_be_finite(norm, job.gradients, step=step)
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.weights.common.all_gather(axis=job.mesh.dp_cp)
    job.weights.experts.all_gather(axis=job.mesh.edp)
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    mesh = job.mesh

    # checkpoint.path = checkpoints (long-context-m..:39),
    # checkpoint.every = 200 (long-context-m..:39)
    saves = Checkpoints(job.plan, job.optimizer, folder=folder, tp=mesh.tp)
    start = saves.resume()
    # Each rank has read its shard.
    job.weights.common.all_gather(axis=mesh.dp_cp)
    job.weights.experts.all_gather(axis=mesh.edp)
    stop = Stop(mesh.device)

    writes = mesh.dp.first and mesh.cp.first and mesh.tp.first
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
