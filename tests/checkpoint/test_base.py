"""Adapters on the weights of a save, whatever the layouts, and merged into them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime.local import run_ranks  # noqa: E402
from parlay.runtime.merge import main as merged  # noqa: E402
from parlay.runtime.merge import masters  # noqa: E402

from .running import curve, emitted, saves, started  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LORA = 'lora = lora(rank = 4, alpha = 8, base = "%s")'
MODEL = "bias = [qkv], tied_embeddings = on"


def loss_of(code: Path, out: Path, *, step: int) -> float:
    """The loss of a step's batch before any update, on one rank that reads its base."""
    found = out / "loss.pt"

    def rank(_: int) -> None:
        import sys

        os.environ["PARLAY_OUT"] = str(out)
        sys.path.insert(0, str(code))
        import train
        from parlay.runtime.base import load_base

        job = train.build(train.Plan.load(code / "plan.json"))
        load_base(job.plan, job.frozen, folder=code)
        torch.save(train.backward(job, job.data.batch(step)), found)

    run_ranks(rank, 1, timeout=200)
    return float(torch.load(found))


def test_trained_on_a_save_and_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"precision": "fp32", "model": MODEL}
    whole = emitted(tmp_path / "whole", **given)
    assert started(whole, tmp_path / "base", ranks=1) == ""

    base = tmp_path / "base/checkpoints/step-00000004"
    train = LORA % base
    code = emitted(tmp_path / "code", "tp = 2, dp = 2, zero = 3", gpus=4, train=train, **given)
    out = tmp_path / "out"
    assert started(code, out, ranks=4) == ""
    assert saves(out) == ["step-00000002", "step-00000004", "step-00000005"]
    held = masters(out / "checkpoints/step-00000004")
    assert len(held) == 4 * 7 * 2 and all(".lora_" in name for name in held)

    # What is resumed is the unbroken run.
    further = tmp_path / "further"
    shutil.copytree(out / "checkpoints/step-00000004", further / "checkpoints/step-00000004")
    assert started(code, further, ranks=4, resume=True) == ""
    assert curve(further) == curve(out)[4:]

    adapters = out / "checkpoints/step-00000004"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["merge", str(code), "--adapters", str(adapters)])
        patch.setenv("PARLAY_OUT", str(out))
        assert merged() == 0
    merged_save = out / "merged/step-00000004"
    assert capsys.readouterr().out.strip() == str(merged_save)
    assert set(masters(merged_save)) == set(masters(base))

    # Adapters that start at nothing on the merged weights: the loss of the step after the save.
    again = emitted(tmp_path / "again", train=LORA % "merged", **given)
    assert loss_of(again, out, step=4) == pytest.approx(curve(out)[4][1], rel=1e-5)


def test_a_base_that_does_not_fit(tmp_path: Path) -> None:
    given = {"precision": "fp32"}
    whole = emitted(tmp_path / "whole", **given)
    assert started(whole, tmp_path / "base", ranks=1) == ""
    train = LORA % (tmp_path / "base/checkpoints")
    code = emitted(tmp_path / "code", model=MODEL, train=train, **given)
    failure = started(code, tmp_path / "out", ranks=1)
    assert "has no weights for these adapters" in failure
    assert "master.layers.0.attention.k.bias is missing" in failure
    none = emitted(tmp_path / "none", train=LORA % "nowhere", **given)
    assert "nowhere is no save and has none" in started(none, tmp_path / "out", ranks=1)


def test_a_base_with_experts(tmp_path: Path) -> None:
    """The first loss under adapters, whole on one rank and cut over four."""
    mixture = "experts { count = 4, ffn = 24, top_k = 2, shared = 1 }"
    given = {"precision": "fp32", "model": mixture}
    whole = emitted(tmp_path / "whole", **given)
    assert started(whole, tmp_path / "base", ranks=1) == ""
    train = LORA % (tmp_path / "base/checkpoints/step-00000005")
    alone = emitted(tmp_path / "alone", train=train, **given)
    expected = loss_of(alone, tmp_path / "base", step=0)
    code = emitted(tmp_path / "code", "dp = 4, ep = 2, zero = 3", gpus=4, train=train, **given)
    out = tmp_path / "out"
    assert started(code, out, ranks=4) == ""
    assert curve(out)[0][1] == pytest.approx(expected, rel=1e-6)
