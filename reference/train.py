"""Training steps of the plain model, written out: initial weights, loss, clip, AdamW or SGD.

`DIR/reference.json`: {"model": {...}, "optimizer": {"name": "adamw", the default, "lr", "betas",
"eps", "weight_decay"} or {"name": "sgd", "lr", "momentum", "weight_decay"},
"lr_schedule": {"name", "warmup", "min_lr", "decay"}, "clip": 1.0, 0 for none, "init": {"std"},
"seed", "steps"}; the fields of `model` are those of `Config`, `steps` is the length of the whole
run. `DIR/batches.pt` holds, for each step to take, a list of (tokens, labels), each [b, s] int64.

`DIR/reference.pt` gets {"initial": weights, "losses": [float], "gradients": [weights] before
clipping, "norms": [float] before clipping, "weights": weights after the steps}.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch
from parlay.reference.model import Beside, Config, Weights, logits, loss_sum, shapes
from torch import Tensor

ROWS_PER_DRAW = 256
CORRECTION = ".router.correction"


def initial(
    config: Config, *, std: float, seed: int, dtype: torch.dtype = torch.float64
) -> Weights:
    """Matrices and sinks are normal, norm weights ones, biases zeros.

    Rows are drawn 256 at a time, each draw from a generator of its own, in float32. What writes
    into the residual stream (`o`, `down`) is drawn smaller by sqrt(2 * layers).
    """
    weights = {}
    for name, shape in shapes(config).items():
        if name.endswith((".bias", ".correction", ".lora_b")):
            weights[name] = torch.zeros(shape, dtype=dtype)
        elif len(shape) == 1 and not name.endswith(".sinks"):
            weights[name] = torch.ones(shape, dtype=dtype)
        else:
            narrow = name.endswith((".o.weight", ".down.weight"))
            scale = std / math.sqrt(2 * config.layers) if narrow else std
            if len(shape) == 3:  # one matrix for each expert, each drawn as one of its own
                drawn = torch.stack(
                    [_matrix(f"{seed}/{name}/{n}", shape[1:]) for n in range(shape[0])]
                )
            else:
                drawn = _matrix(f"{seed}/{name}", shape)
            weights[name] = (drawn * scale).to(dtype)
    return weights


def _matrix(name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.cat(
        [
            _drawn(f"{name}/{start // ROWS_PER_DRAW}", min(ROWS_PER_DRAW, left), shape)
            for start in range(0, shape[0], ROWS_PER_DRAW)
            if (left := shape[0] - start)
        ]
    )


def _drawn(text: str, rows: int, shape: tuple[int, ...]) -> Tensor:
    digest = hashlib.sha256(text.encode()).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest[:8], "big") // 2)
    return torch.randn(rows, *shape[1:], dtype=torch.float32, generator=generator)


def learning_rate(
    step: int,
    *,
    lr: float,
    warmup: int,
    steps: int,
    min_lr: float = 0.0,
    name: str = "cosine",
    decay: int = 0,
) -> float:
    """The rate of step `step`, counted from 0: up in a line, then as `name` says.

    Step warmup - 1 has `lr`; step `steps`, the first that is not taken, would have `min_lr`, where
    the rate goes down at all. `wsd` goes down over the last `decay` steps alone.
    """
    if step < warmup:
        return (step + 1) * lr / warmup
    start = max(warmup, steps - decay) if name == "wsd" else warmup
    way = max(0.0, min((step - start) / max(steps - start, 1), 1.0))
    if name == "constant":
        return lr
    if name == "cosine":
        return min_lr + (lr - min_lr) * 0.5 * (1 + math.cos(math.pi * way))
    if name in ("linear", "wsd"):
        return (1 - way) * lr + way * min_lr
    raise ValueError(f"no schedule `{name}`: constant, cosine, linear or wsd")


class AdamW:
    """Decoupled weight decay, on matrices only; both moments corrected for their start at zero."""

    def __init__(
        self,
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.taken = 0
        self.first: Weights = {}
        self.second: Weights = {}

    def step(self, weights: Weights, gradients: Weights, *, lr: float) -> Weights:
        self.taken += 1
        one, two = self.betas
        updated = dict(weights)
        for name, gradient in gradients.items():
            weight = weights[name]
            zero = torch.zeros_like(weight)
            self.first[name] = one * self.first.get(name, zero) + (1 - one) * gradient
            self.second[name] = two * self.second.get(name, zero) + (1 - two) * gradient.square()
            mean = self.first[name] / (1 - one**self.taken)
            spread = (self.second[name] / (1 - two**self.taken)).sqrt()
            decay = lr * self.weight_decay if decays(name, weight) else 0.0
            updated[name] = (1 - decay) * weight - lr * mean / (spread + self.eps)
        return updated


class SGD:
    """Weight decay, on matrices only, is a part of the gradient; momentum starts at zero."""

    def __init__(self, *, momentum: float, weight_decay: float) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity: Weights = {}

    def step(self, weights: Weights, gradients: Weights, *, lr: float) -> Weights:
        updated = dict(weights)
        for name, gradient in gradients.items():
            weight = weights[name]
            pull = gradient + (self.weight_decay * weight if decays(name, weight) else 0.0)
            self.velocity[name] = pull + self.momentum * self.velocity.get(name, 0.0)
            updated[name] = weight - lr * self.velocity[name]
        return updated


def decays(name: str, weight: Tensor) -> bool:
    """Whether a weight is a matrix; biases of experts are stacked vectors."""
    return weight.dim() > 1 and not name.endswith(".bias")


def optimizer_of(facts: dict[str, Any]) -> AdamW | SGD:
    """The optimizer by its name and numbers."""
    if facts.get("name", "adamw") == "sgd":
        return SGD(momentum=facts["momentum"], weight_decay=facts["weight_decay"])
    return AdamW(betas=tuple(facts["betas"]), eps=facts["eps"], weight_decay=facts["weight_decay"])


def gradients_of(
    config: Config, weights: Weights, batch: list[tuple[Tensor, Tensor]]
) -> tuple[float, Weights]:
    """The loss, a mean over all labels of the global batch that count, and its gradients: of all
    weights, or of adapters alone."""
    trained = [name for name in weights if name.endswith((".lora_a", ".lora_b"))] or list(weights)
    leaves = {name: weights[name].detach().requires_grad_() for name in trained}
    tokens = torch.cat([tokens for tokens, _ in batch])
    labels = torch.cat([labels for _, labels in batch])
    counted = max(int((labels != -100).sum()), 1)
    if config.experts is None:
        loss = loss_sum(logits(config, {**weights, **leaves}, tokens), labels) / counted
        found = torch.autograd.grad(loss, list(leaves.values()))
        return loss.item(), dict(zip(leaves, found, strict=True))
    # Auxiliary losses are means over microbatches, and no part of the loss that is told.
    loss, auxiliary = torch.zeros(()), torch.zeros(())
    visits = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for some, their_labels in batch:
        beside = Beside()
        points = logits(config, {**weights, **leaves}, some, beside)
        loss = loss + loss_sum(points, their_labels) / counted
        auxiliary = auxiliary + sum(beside.losses) / len(batch)
        for name, one in beside.visits.items():
            visits[name] = visits[name] + one if name in visits else one
    learned = [name for name in leaves if not name.endswith(CORRECTION)]
    gradients = torch.autograd.grad(loss + auxiliary, [leaves[name] for name in learned])
    found = dict(zip(learned, gradients, strict=True))
    return loss.item(), {name: found[name] if name in found else visits[name] for name in leaves}


def train(facts: dict[str, Any], batches: list[list[tuple[Tensor, Tensor]]]) -> dict[str, Any]:
    """One step for each of `batches`."""
    config = Config.of(facts["model"])
    optimizer, schedule = facts["optimizer"], facts["lr_schedule"]
    weights = initial(config, std=facts["init"]["std"], seed=facts["seed"])
    out: dict[str, Any] = {"initial": weights, "losses": [], "gradients": [], "norms": []}
    updating = optimizer_of(optimizer)
    for step, batch in enumerate(batches):
        loss, gradients = gradients_of(config, weights, batch)
        norm = math.sqrt(
            sum(
                float(one.square().sum())
                for name, one in gradients.items()
                if not name.endswith(CORRECTION)
            )
        )
        out["losses"].append(loss)
        out["gradients"].append(gradients)
        out["norms"].append(norm)
        if facts["clip"]:
            scale = min(1.0, facts["clip"] / (norm + 1e-6))
            gradients = {
                name: gradient if name.endswith(CORRECTION) else gradient * scale
                for name, gradient in gradients.items()
            }
        lr = learning_rate(
            step,
            lr=optimizer["lr"],
            steps=facts["steps"],
            **schedule,
        )
        learned = {one: weights[one] for one in weights if not one.endswith(CORRECTION)}
        moved = [one for one in gradients if one not in learned]
        updated = updating.step(
            learned, {one: gradients[one] for one in gradients if one in learned}, lr=lr
        )
        weights = {one: updated.get(one, weights[one]) for one in weights}
        for name in moved:
            # What it has for a gradient counts visits: up where there were less than the mean.
            assert config.experts is not None
            behind = gradients[name].sum() - len(gradients[name]) * gradients[name]
            weights[name] = weights[name] + config.experts.correction_rate * torch.sign(behind)
    out["weights"] = weights
    return out


def run(folder: Path) -> None:
    """Before: `folder` has reference.json and batches.pt. After: it has reference.pt."""
    facts = json.loads((folder / "reference.json").read_text(encoding="utf-8"))
    batches = torch.load(folder / "batches.pt", weights_only=True)
    torch.save(train(facts, batches), folder / "reference.pt")
