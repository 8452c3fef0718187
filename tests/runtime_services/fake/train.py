"""An emitted folder in the small: dp 2, every rank whole, written for the tests of the proof."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from parlay.reference.model import Config, logits, loss_sum
from parlay.reference.train import AdamW, initial
from parlay.runtime.data import Loader
from parlay.runtime.schedule import cosine


@dataclass
class Job:
    plan: object
    config: Config
    model: torch.nn.Module
    gradients: "Gradients"
    optimizer: AdamW
    data: Loader


class Gradients:
    def __init__(self, weights):
        self.weights = weights

    def named(self):
        for name, weight in self.weights.items():
            yield name, weight.grad


def build(plan):
    dist.init_process_group("gloo")
    config = Config.of(plan.model.to_dict())
    weights = {
        name: torch.nn.Parameter(weight)
        for name, weight in initial(config, std=plan.init.std, seed=plan.seed).items()
    }
    model = torch.nn.Module()
    for name, weight in weights.items():
        *path, last = name.split(".")
        at = model
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, torch.nn.Module())
            at = getattr(at, part)
        at.register_parameter(last, weight)
    optimizer = AdamW(
        betas=plan.optimizer.betas,
        eps=plan.optimizer.eps,
        weight_decay=plan.optimizer.weight_decay,
    )
    data = Loader(plan, rank=dist.get_rank(), ranks=2)
    return Job(plan, config, model, Gradients(weights), optimizer, data)


def backward(job, batch):
    valid = torch.tensor(sum(int((labels != -100).sum()) for _, labels in batch))
    dist.all_reduce(valid)
    total = torch.zeros((), dtype=torch.float64)
    for tokens, labels in batch:
        scores = logits(job.config, job.gradients.weights, tokens)
        loss = loss_sum(scores, labels) / valid
        loss.backward()
        total += loss.detach()
    dist.all_reduce(total)
    for _, weight in job.gradients.weights.items():
        dist.all_reduce(weight.grad)
    return total


def update(job, step):
    weights = job.gradients.weights
    gradients = {name: weight.grad for name, weight in weights.items()}
    norm = torch.sqrt(sum(gradient.square().sum() for gradient in gradients.values()))
    scale = (job.plan.clip / (norm + 1e-6)).clamp(max=1.0)
    gradients = {name: gradient * scale for name, gradient in gradients.items()}
    lr = cosine(step, lr=job.plan.optimizer.lr, **job.plan.lr_schedule, steps=job.plan.steps)
    with torch.no_grad():
        for name, weight in job.optimizer.step(weights, gradients, lr=lr).items():
            weights[name].copy_(weight)
            weights[name].grad = None
    return norm
