"""Names and places of weights, a family each: a folder that `transformers` writes, read whole into
the plain model, gives the logits that `transformers` gives."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from parlay.compiler import pipeline  # noqa: E402
from parlay.compiler.backends.torch.plan import plan_of  # noqa: E402
from parlay.compiler.backends.torch.proof import _reference  # noqa: E402
from parlay.reference.model import Config, logits, shapes  # noqa: E402
from parlay.runtime.export import write  # noqa: E402
from parlay.runtime.merge import boxed  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.pretrained import read_weights  # noqa: E402
from parlay.runtime.saved import Saved  # noqa: E402

from .hf_models import FAMILIES, JOB, model_of  # noqa: E402

pytestmark = pytest.mark.slow


def job_of(folder: Path) -> tuple[Plan, Config]:
    """The plan of a job on the folder's config, and its plain model."""
    (folder.parent / "job.par").write_text(
        JOB.format(
            config=f"{folder.name}/config.json",
            gpus=1,
            parallel="",
            model="",
            train='weights = "theirs"',
            lr="1e-3",
            data="data.bin",
            precision="fp32",
            checkpoint="",
        )
    )
    job = pipeline.check(folder.parent / "job.par", ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    (phase,) = job.phases
    layout = pipeline.lay_out(phase)
    assert layout is not None
    plan = plan_of(phase, layout)
    return Plan.of(plan), Config.of(_reference(phase.spec, plan)["model"])


def weights_of(plan: Plan, config: Config, folder: Path) -> dict[str, Any]:
    """What the reader finds in the folder, whole."""
    found = {name: torch.full(shape, torch.nan) for name, shape in shapes(config).items()}
    state = {name: boxed(tensor) for name, tensor in found.items()}
    with contextlib.suppress(Warning):
        read_weights(plan, Saved(plan), folder, state)
    return found


class Held:
    """Weights as a save has them."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.weights = weights
        self.shapes = {name: tuple(weight.shape) for name, weight in weights.items()}

    def read(self, name: str) -> Any:
        return self.weights[name]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits(family: str, tmp_path: Path) -> None:
    """What is read and written again is the same model to `transformers`, config and weights."""
    model = model_of(family)
    model.save_pretrained(tmp_path / "theirs")
    plan, config = job_of(tmp_path / "theirs")
    weights = weights_of(plan, config, tmp_path / "theirs")
    tokens = torch.randint(61, (3, 16))
    with torch.no_grad():
        ours, theirs = logits(config, weights, tokens), model(tokens).logits
    assert (ours - theirs).abs().max() <= 2e-5 * theirs.abs().max()
    (tmp_path / "ours").mkdir()
    write(plan, Held(weights), None, tmp_path / "ours", "float32")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        written = again(tokens).logits
    assert (written - theirs).abs().max() <= 2e-6 * theirs.abs().max()


def test_corrections_keep_their_width(tmp_path: Path) -> None:
    model_of("deepseek_v3").save_pretrained(tmp_path / "theirs")
    plan, config = job_of(tmp_path / "theirs")
    weights = weights_of(plan, config, tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    write(plan, Held(weights), None, tmp_path / "ours", "bfloat16")
    found = safetensors.load_file(tmp_path / "ours/model.safetensors")
    wide = {name for name, tensor in found.items() if tensor.dtype == torch.float32}
    assert wide == {f"model.layers.{n}.mlp.gate.e_score_correction_bias" for n in (1, 2, 3)}
    assert {tensor.dtype for tensor in found.values()} == {torch.float32, torch.bfloat16}
