"""The plain model's own training: initial weights, rate, optimizer, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from parlay.reference.model import Config, shapes  # noqa: E402
from parlay.reference.train import (  # noqa: E402
    AdamW,
    gradients_of,
    initial,
    learning_rate,
    train,
)

CONFIG = Config(layers=2, hidden=16, heads=4, kv_heads=2, head_dim=4, ffn=24, vocab=300)
FACTS = {
    "model": {
        **{name: getattr(CONFIG, name) for name in ("layers", "hidden", "heads", "kv_heads")},
        "head_dim": 4,
        "ffn": 24,
        "vocab": 300,
        "padded_vocab": 304,
    },
    "optimizer": {"lr": 1e-2, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
    "lr_schedule": {"warmup": 1, "min_lr": 1e-3},
    "clip": 1.0,
    "init": {"std": 0.5},
    "seed": 7,
    "steps": 3,
}


def batches(steps: int) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    out = []
    for _ in range(steps):
        both = torch.randint(300, (3, 2, 9), generator=generator)
        labels = both[:, :, 1:].clone()
        labels[0, 0] = -100
        out.append(list(zip(both[:, :, :-1], labels, strict=True)))
    return out


# ── Initial weights ───────────────────────────────────────────────────────────


def test_initial_weights_are_those_of_docs_emitted() -> None:
    weights = initial(CONFIG, std=0.02, seed=1234)
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == shapes(CONFIG)
    assert torch.equal(weights["norm.weight"], torch.ones(16).double())
    # SHA-256 of "1234/embedding.weight/0" begins with these 8 bytes; block 1 has 44 rows.
    for block, rows, key in (
        (0, 256, KEYS["1234/embedding.weight/0"]),
        (1, 44, KEYS["1234/embedding.weight/1"]),
    ):
        drawn = torch.randn(rows, 16, generator=torch.Generator().manual_seed(key >> 1)) * 0.02
        assert torch.equal(weights["embedding.weight"][block * 256 :][:256], drawn.double())


KEYS = {
    "1234/embedding.weight/0": 0xC30031CE15B991ED,
    "1234/embedding.weight/1": 0xE88F479ECA5718C4,
}


def test_what_writes_into_the_residual_stream_starts_smaller() -> None:
    one, other = (initial(CONFIG, std=std, seed=3) for std in (0.02, 0.04))
    for name in one:
        if one[name].dim() == 2:
            torch.testing.assert_close(2 * one[name], other[name])
    deep = initial(
        Config(layers=8, hidden=16, heads=4, kv_heads=2, head_dim=4, ffn=24, vocab=300),
        std=0.02,
        seed=3,
    )
    for name, ratio in (("attention.o", 2.0), ("mlp.down", 2.0), ("mlp.up", 1.0)):
        name = f"layers.1.{name}.weight"
        torch.testing.assert_close(one[name], deep[name] * ratio)


# ── Rate and optimizer ────────────────────────────────────────────────────────


def test_learning_rate() -> None:
    rates = [learning_rate(step, lr=1.0, min_lr=0.1, warmup=4, steps=10) for step in range(11)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[7] == pytest.approx(0.55)  # half-way down
    assert rates[10] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(rates[3:]))
    assert learning_rate(0, lr=1.0, min_lr=0.1, warmup=0, steps=1) == 1.0


def test_adamw_is_torchs() -> None:
    torch.manual_seed(0)
    weights = {"w": torch.randn(4, 3).double(), "b": torch.randn(4).double()}
    theirs = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [theirs["w"]], "weight_decay": 0.1},
            {"params": [theirs["b"]], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    ours = AdamW(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for step in range(4):
        gradients = {name: torch.randn_like(weight) for name, weight in weights.items()}
        for name, gradient in gradients.items():
            theirs[name].grad = gradient.clone()
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (step + 1)
        optimizer.step()
        weights = ours.step(weights, gradients, lr=0.1 / (step + 1))
    for name, weight in weights.items():
        torch.testing.assert_close(weight, theirs[name].detach(), rtol=1e-12, atol=0)


# ── Loss ──────────────────────────────────────────────────────────────────────


def test_loss_is_a_mean_over_labels_not_over_microbatches() -> None:
    weights = initial(CONFIG, std=0.5, seed=7)
    (batch,) = batches(1)
    loss, gradients = gradients_of(CONFIG, weights, batch)
    parts = [gradients_of(CONFIG, weights, [one]) for one in batch]
    counts = [int((labels != -100).sum()) for _, labels in batch]
    assert len(set(counts)) > 1
    total = sum(counts)
    shares = [count / total for count in counts]
    assert loss == pytest.approx(sum(p[0] * n for p, n in zip(parts, shares, strict=True)))
    for name, gradient in gradients.items():
        summed = sum(p[1][name] * n for p, n in zip(parts, shares, strict=True))
        torch.testing.assert_close(gradient, summed)


def test_batch_without_a_label_has_no_loss_and_no_gradient() -> None:
    weights = initial(CONFIG, std=0.5, seed=7)
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    loss, gradients = gradients_of(CONFIG, weights, [(tokens, torch.full_like(tokens, -100))])
    assert loss == 0.0
    assert all(not gradient.any() for gradient in gradients.values())


def test_clipping_shows_in_the_weights_and_not_in_the_gradients() -> None:
    free = train({**FACTS, "clip": 0}, batches(2))
    clipped = train({**FACTS, "clip": 1e-3}, batches(2))
    for name, gradient in free["gradients"][0].items():
        assert torch.equal(gradient, clipped["gradients"][0][name])
    assert free["norms"][0] == clipped["norms"][0]
    assert not torch.equal(free["weights"]["norm.weight"], clipped["weights"]["norm.weight"])


# ── The command ───────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text(json.dumps(FACTS))
    torch.save(batches(3), tmp_path / "batches.pt")
    subprocess.run(
        [sys.executable, "-m", "parlay.reference", str(tmp_path)], check=True, timeout=100
    )
    found = torch.load(tmp_path / "reference.pt", weights_only=True)
    expected = train(FACTS, batches(3))
    assert found["losses"] == expected["losses"]
    assert len(found["gradients"]) == len(found["norms"]) == 3
    for name, weight in expected["weights"].items():
        assert torch.equal(found["weights"][name], weight)
        assert torch.equal(found["initial"][name], expected["initial"][name])
