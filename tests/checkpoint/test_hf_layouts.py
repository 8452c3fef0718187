"""Training under several layouts from a folder that `transformers` wrote: the first loss is that of
`transformers` on the same batch, and what is exported is the folder again, bit by bit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from parlay.runtime.data import Loader  # noqa: E402
from parlay.runtime.export import main as export  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402

from .hf_models import emitted, model_of  # noqa: E402
from .running import curve, started  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def loss_of(model: Any, code: Path, *, step: int) -> float:
    """The loss of a global batch, as `transformers` has it."""
    batch = Loader(Plan.load(code / "plan.json"), rank=0, ranks=1).batch(step)
    tokens, labels = (torch.cat(parts) for parts in zip(*batch, strict=True))
    with torch.no_grad():
        points = model(tokens).logits
    return float(torch.nn.functional.cross_entropy(points.flatten(0, 1).double(), labels.flatten()))


def tensors_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= safetensors.load_file(path)
    return found


LAYOUTS = {
    "tied, padded, over stages": ("llama-tied", "tp = 2, pp = 2, vocab_multiple = 4", 4),
    "biases, units gathered": ("qwen2", "dp = 2, zero = 3", 2),
    "latents and experts": ("deepseek_v3", "tp = 2, dp = 2, ep = 2, zero = 1", 4),
    "fused and transposed": ("gpt2", "tp = 2, dp = 2, zero = 2", 4),
    "more ranks than heads": ("qwen3_moe", "tp = 4, ep = 2", 4),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    family, parallel, ranks = LAYOUTS[name]
    model = model_of(family)
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    model.save_pretrained(theirs, max_shard_size="40KB")
    assert (theirs / "model.safetensors.index.json").is_file()
    code = emitted(
        tmp_path / "code",
        theirs / "config.json",
        parallel,
        gpus=ranks,
        train=f'weights = "{theirs}"',
        lr="0",
    )
    assert started(code, out, ranks=ranks) == ""
    expected = loss_of(model, code, step=0)
    assert curve(out)[0][1] == pytest.approx(expected, rel=1e-5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLAY_OUT", str(out))
        assert export([str(code), "--to", str(tmp_path / "ours")]) == 0
    ours, before = tensors_of(tmp_path / "ours"), tensors_of(theirs)
    assert set(ours) == set(before)
    # Corrections of routers are moved by a rate of their own.
    changed = [n for n in ours if not torch.equal(ours[n], before[n])]
    assert [n for n in changed if not n.endswith("correction_bias")] == []
    assert all((ours[n] - before[n]).abs().max() <= 2.1e-3 for n in changed)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert type(again) is type(model)
    assert loss_of(again.eval(), code, step=0) == pytest.approx(expected, rel=1e-6)
    kept = json.loads((tmp_path / "ours/config.json").read_text())
    assert kept["eos_token_id"] == 1
