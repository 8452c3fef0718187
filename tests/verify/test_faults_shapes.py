"""Planted faults in what only some shapes have: each fails the comparison meant for it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import Edit, par, prove, replaced
from .shapes import model

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

GPT2 = par("tp = 2, pp = 2, sequence_parallel = off", gpus=4, model=model("gpt2"))
QWEN3 = par("tp = 4, sequence_parallel = off", gpus=4, model=model("qwen3"))

DUAL = par("pp = 2, schedule = dualpipe", gpus=2, train="clip = 1.0", model=model("qwen2.5"))
GEMMA = par("pp = 2", gpus=2, model=model("gemma"))
OSS = par(model=model("gpt-oss"))
BLOOM = par("tp = 2", gpus=2, model=model("bloom"))

FAULTS: dict[str, tuple[str, Edit, set[str]]] = {
    "a tied gradient not summed": (
        GPT2,
        replaced("train.py", "    job.gradients.sum(TIED, axis=mesh.embedding)\n", ""),
        {"gradients", "norm", "weights", "collectives"},
    ),
    "a tied weight counted twice": (
        GPT2,
        replaced("train.py", ", copies=[(TIED, mesh.embedding)]", ""),
        {"norm", "weights"},
    ),
    "a copy drawn by itself": (
        GPT2,
        replaced("train.py", "plan=plan, cut=CUT, axis=mesh.tp)", "plan=plan, cut=CUT)"),
        {"initial", "loss"},
    ),
    "a replicated key/value gradient not summed": (
        QWEN3,
        replaced("train.py", "    job.gradients.sum(KV, axis=mesh.kv)\n", ""),
        {"gradients", "norm", "weights", "collectives"},
    ),
    "a norm inside of heads not summed": (
        QWEN3,
        replaced("train.py", "    job.gradients.sum(HEAD_NORMS, axis=mesh.tp)\n", ""),
        {"gradients", "norm", "weights", "collectives"},
    ),
    "a row bias added on every rank": (
        GPT2,
        replaced(
            "model.py",
            '        y = tensor.row(F.gelu(up, approximate="tanh"), '
            "self.down.weight, axis=self.tp)\n"
            "        return y + self.down.bias\n",
            '        up = F.gelu(up, approximate="tanh")\n'
            "        y = F.linear(up, self.down.weight, self.down.bias)\n"
            "        return tensor._Reduce.apply(y, self.tp)\n",
        ),
        {"loss", "gradients", "weights"},
    ),
    "a stage that skips a layer": (
        par("pp = 2", gpus=2, model=model("gpt2")),
        replaced(
            "model.py",
            "for layer in self.layers.values():",
            "for layer in list(self.layers.values())[: None if self.stage.head else -1]:",
        ),
        {"loss", "gradients", "weights"},
    ),
    "a window counted from the stage's first layer": (
        GEMMA,
        replaced("model.py", "number=i)", "number=i - first)"),
        {"loss", "gradients", "weights"},
    ),
    "a window one token too wide": (
        OSS,
        replaced("model.py", "else m.window.size", "else m.window.size + 1"),
        {"loss", "gradients", "weights"},
    ),
    "copies of a stage that are not summed": (
        DUAL,
        replaced(
            "train.py",
            "    job.gradients.all_reduce(axis=mesh.mirror, bucket=plan.buckets.gradients)\n",
            "",
        ),
        {"gradients", "norm", "weights", "collectives"},
    ),
    "copies of a stage counted twice": (
        DUAL,
        replaced("train.py", ", alike=job.mesh.mirror", ""),
        {"norm", "weights"},
    ),
    "the loss of one end": (
        DUAL,
        replaced("train.py", "dist.all_reduce(loss, group=mesh.mirror.group)", "loss.mul_(2)"),
        {"loss", "collectives"},
    ),
    "one base for all layers": (
        par("", model=model("gemma3")),
        replaced("model.py", "self.turns = 0 if sees_all else 1", "self.turns = 0"),
        {"loss", "gradients", "weights"},
    ),
    "a stretched base of windowed layers": (
        par("", model=model("olmo3")),
        replaced("model.py", "rope_amplitude, 1.0]", "rope_amplitude] * 2"),
        {"loss", "gradients", "weights"},
    ),
    "factors of other features": (
        par("", model=model("phi3")),
        replaced(
            "model.py", "angles = torch.outer(at, turns)", "angles = torch.outer(at, turns.flip(0))"
        ),
        {"loss", "gradients", "weights"},
    ),
    "positions that are not stretched": (
        OSS,
        replaced(
            "model.py",
            "yarn(plan.model.rope_theta, r, plan.model.yarn, device=like.device)",
            "plan.model.rope_theta ** (-torch.arange(0, r, 2, dtype=torch.float64) / r)",
        ),
        {"loss", "gradients", "weights"},
    ),
    "rotated features that do not grow": (
        OSS,
        replaced("model.py", "size * angles", "angles"),
        {"loss", "gradients", "weights"},
    ),
    "slopes of other heads": (
        BLOOM,
        replaced("model.py", "slopes.chunk(self.tp.size)[self.tp.rank]", "slopes[:1]"),
        {"loss", "gradients", "weights"},
    ),
    "positions of the wrong piece": (
        par("tp = 2", gpus=2, model=model("gpt2")),
        replaced("model.py", "[self.tp.rank]", "[0]"),
        {"loss", "gradients", "weights"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    layout, edit, expected = FAULTS[name]
    result = prove(layout, tmp_path, edit=edit)
    assert not result["passed"] and not result["detail"], result["detail"]
    parts = ("loss", "gradients", "norm", "initial", "weights")
    failed = {part for part in parts if not result[part]["passed"]}
    failed |= set() if result["collectives"]["match"] else {"collectives"}
    assert expected <= failed, (failed, result["failures"])
    if "collectives" not in expected:
        assert "collectives" not in failed
