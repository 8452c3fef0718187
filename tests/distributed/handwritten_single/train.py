"""Trains tiny.par in one process; bf16 over fp32 masters.

Sizes stand in plan.json. `bash launch.sh` starts it.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from model import Model
from parlay.runtime import init, precision
from parlay.runtime.data import Loader
from parlay.runtime.log import Log
from parlay.runtime.loss import Batch, valid_labels
from parlay.runtime.mesh import own_device
from parlay.runtime.optimizer import AdamW
from parlay.runtime.plan import Plan
from parlay.runtime.schedule import cosine
from parlay.runtime.shard import Gradients
from parlay.runtime.weights import Weights
from torch import Tensor

# ── Job ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Job:
    plan: Plan
    device: torch.device
    model: Model
    gradients: Gradients
    optimizer: AdamW
    data: Loader


def build(plan: Plan) -> Job:
    device = own_device()
    with torch.device("meta"):
        model = Model(plan)

    # train.precision = bf16, train.gradients = fp32 (tiny.par:23)
    weights = Weights(model, dtype=precision.dtype(plan.dtypes.compute), device=device)
    init.fill(model, plan=plan)
    gradients = Gradients(weights, dtype=precision.dtype(plan.dtypes.gradients))

    # train.optimizer = adamw(...), train.master = fp32 (tiny.par:26)
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
        device=device,
        model=model,
        gradients=gradients,
        optimizer=optimizer,
        # data.format = text (tiny.par:33)
        data=Loader(plan, rank=0, ranks=1),
    )


# ── Forward and backward ──────────────────────────────────────────────────────


def backward(job: Job, batch: Batch) -> Tensor:
    """Gradients of the mean loss over all valid labels of the global batch; that loss."""
    valid = valid_labels(batch, device=job.device)
    losses = []
    for tokens, labels in batch:
        loss = job.model(tokens.to(job.device), labels.to(job.device)) / valid
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses).sum()


# ── Update ────────────────────────────────────────────────────────────────────


def learning_rate(plan: Plan, step: int) -> float:
    """train.lr_schedule = cosine(warmup = 20, min_lr = 3e-5) (tiny.par:27)"""
    return cosine(step, lr=plan.optimizer.lr, **plan.lr_schedule, steps=plan.steps)


def update(job: Job, step: int) -> Tensor:
    """The optimizer step; returns the norm of the gradients before they were clipped."""
    # train.clip = 1.0 (tiny.par:28)
    norm = job.gradients.norm()
    job.gradients.clip(norm, limit=job.plan.clip)

    job.optimizer.step(lr=learning_rate(job.plan, step))
    job.gradients.clear()
    return norm


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    folder = Path(__file__).parent
    job = build(Plan.load(folder / "plan.json"))
    log = Log(job.plan, writes=True, folder=folder)
    for step in range(job.plan.steps):
        loss = backward(job, job.data.batch(step))
        norm = update(job, step)
        log.step(step=step, loss=loss, grad_norm=norm, lr=learning_rate(job.plan, step))
    log.close()


if __name__ == "__main__":
    main()
