"""Trains llama3-8b-ethernet.par by DeepSpeed: dp 8 with ZeRO-1, pp 4 by one_f_one_b.

Computes in bf16 over fp32 masters. Layout and numbers stand in ds_config.json, sizes in
plan.json. `bash launch.sh` starts the ranks.
"""

import os
import shutil
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.topology import ProcessTopology
from model import Stage, loss
from parlay.runtime import init
from parlay.runtime.data import IGNORED, Loader
from parlay.runtime.log import Log
from parlay.runtime.plan import Plan
from parlay.runtime.schedule import cosine
from parlay.runtime.stop import Stop
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

Batch = list[tuple[Tensor, Tensor]]
FOLDER = Path(__file__).parent
CONFIG = str(FOLDER / "ds_config.json")

# ── Engine ────────────────────────────────────────────────────────────────────


def build(plan: Plan) -> deepspeed.DeepSpeedEngine:
    # parallel.pp = 4 (llama3-8b-ethe..:12): a layer of DeepSpeed's is a stage here.
    deepspeed.init_distributed()
    layers = [LayerSpec(Stage, plan, stage) for stage in plan.stages]

    # parallel.order = [tp, cp, dp, pp] (default): the last of these axes varies fastest.
    grid = ProcessTopology(axes=["pipe", "data"], dims=[plan.mesh["pp"], plan.mesh["dp"]])
    model = PipelineModule(
        layers, topology=grid, loss_fn=MeanLoss(plan), partition_method="type:Stage"
    )
    for part in model.modules():
        if isinstance(part, Stage):
            init.fill(part, plan=plan)

    # train.optimizer = adamw(...) (llama3-8b-ethe..:24)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=groups(model, plan),
        config=CONFIG,
        lr_scheduler=lambda optimizer: LambdaLR(optimizer, lambda step: share(plan, step)),
    )
    return engine


def groups(model: nn.Module, plan: Plan) -> list[dict[str, object]]:
    """Weights that decay, which are matrices alone, and those that do not."""
    matrices, rest = [], []
    for parameter in model.parameters():
        shape = parameter.shape
        (matrices if len(shape) > 1 else rest).append(parameter)
    decay = plan.optimizer.weight_decay
    return [
        {"params": matrices, "weight_decay": decay},
        {"params": rest, "weight_decay": 0.0},
    ]


def share(plan: Plan, step: int) -> float:
    """The learning rate of a step over its peak."""
    # train.lr_schedule = cosine(...) (llama3-8b-ethe..:25)
    peak = plan.optimizer.lr
    return cosine(step, lr=peak, **plan.lr_schedule, steps=plan.steps) / peak


# ── Step ──────────────────────────────────────────────────────────────────────


def weight(engine: deepspeed.DeepSpeedEngine, plan: Plan, batch: Batch) -> Tensor:
    """What a sum of losses counts for in DeepSpeed's mean over microbatches and replicas, so that
    the mean is over all labels of the global batch that count."""
    valid = torch.tensor(sum(int((labels != IGNORED).sum()) for _, labels in batch))
    valid = valid.to(engine.device)
    dist.all_reduce(valid, group=engine.data_parallel_group)
    return plan.batch.microbatches * engine.dp_world_size / valid.clamp(min=1)


class MeanLoss:
    """The sum of the losses of a microbatch, weighed."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.weight = plan, torch.ones(())

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return loss(self.plan, logits, labels) * self.weight


def train_step(engine: deepspeed.DeepSpeedEngine, plan: Plan, batch: Batch) -> Tensor:
    """Forwards, backwards and update of one step; the mean loss of the global batch."""
    engine.module.loss_fn.weight = weight(engine, plan, batch)
    return engine.train_batch(iter(batch))


# ── Saves ─────────────────────────────────────────────────────────────────────


def resume(engine: deepspeed.DeepSpeedEngine, saves: Path) -> int:
    """The step to go on from: after the newest save with `--resume`, else 0."""
    found = (saves / "latest").exists()
    if "--resume" not in sys.argv:
        if found:
            raise SystemExit(f"{saves} holds saves: `bash launch.sh --resume` goes on from them")
        return 0
    if not found:
        return 0
    _, state = engine.load_checkpoint(str(saves))
    return state["step"]


def save(
    engine: deepspeed.DeepSpeedEngine, plan: Plan, saves: Path, done: int, *, now: bool
) -> None:
    """Saves where the step is due, or `now`; older saves go."""
    # checkpoint.path = checkpoints (llama3-8b-ethe..:31),
    # checkpoint.every = 500 (llama3-8b-ethe..:31), checkpoint.keep = 3 (llama3-8b-ethe..:31)
    asked = plan.checkpoint
    if not now and done != plan.steps and (asked.every is None or done % asked.every):
        return
    engine.save_checkpoint(str(saves), tag=f"step-{done:08d}", client_state={"step": done})
    dist.barrier()
    if asked.keep is not None and dist.get_rank() == 0:
        for old in sorted(saves.glob("step-*"))[: -asked.keep]:
            shutil.rmtree(old)


# ── Loop ──────────────────────────────────────────────────────────────────────


def main() -> None:
    plan = Plan.load(FOLDER / "plan.json")
    engine = build(plan)
    replica = engine.grid.get_data_parallel_rank()
    # data.format = megatron (llama3-8b-ethe..:30)
    data = Loader(plan, rank=replica, ranks=engine.dp_world_size)
    out = Path(os.environ.get("PARLAY_OUT") or FOLDER)
    saves = out / plan.checkpoint.path
    start = resume(engine, saves)
    stop = Stop(engine.device)
    log = Log(plan, writes=dist.get_rank() == 0, folder=FOLDER, start=start)
    for step in range(start, plan.steps):
        (lr, *_) = engine.get_lr()
        loss = train_step(engine, plan, data.batch(step))
        norm = engine.get_global_grad_norm()
        log.step(step=step, loss=loss, grad_norm=norm, lr=lr)
        stopping = stop.asked()
        save(engine, plan, saves, step + 1, now=stopping)
        if stopping:
            break
    log.close()
    dist.destroy_process_group()
    stop.leave()


if __name__ == "__main__":
    main()
