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


def exported(code: Path, out: Path, to: Path, *, save: int = 2) -> Any:
    """The model that `transformers` loads of a save."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLAY_OUT", str(out))
        path = out / f"checkpoints/step-{save:08}"
        assert export([str(code), "--to", str(to), "--save", str(path)]) == 0
    return transformers.AutoModelForCausalLM.from_pretrained(to).eval()


LAYOUTS = {
    "biases, units gathered": ("qwen2", "dp = 2, zero = 3", 2),
    "latents and experts": ("deepseek_v3", "tp = 2, dp = 2, ep = 2, zero = 1", 4),
    "stacked experts": ("gpt_oss", "tp = 2, dp = 2, ep = 2, zero = 2", 4),
    "more ranks than heads": ("qwen3_moe", "tp = 4, ep = 2", 4),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    family, parallel, ranks = LAYOUTS[name]
    halves = "units" in name  # weights beside their masters
    model = model_of(family, dtype=torch.bfloat16 if halves else torch.float32)
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
        precision="bf16" if halves else "fp32",
    )
    assert started(code, out, ranks=ranks) == ""
    expected = loss_of(model.float(), code, step=0)
    assert curve(out)[0][1] == pytest.approx(expected, rel=5e-3 if halves else 1e-5)

    again = exported(code, out, tmp_path / "ours")
    ours, before = tensors_of(tmp_path / "ours"), tensors_of(theirs)
    assert set(ours) == set(before)
    # Corrections of routers are moved by a rate of their own.
    changed = [n for n in ours if not torch.equal(ours[n], before[n])]
    assert [n for n in changed if not n.endswith("correction_bias")] == []
    assert all((ours[n] - before[n]).abs().max() <= 2.1e-3 for n in changed)
    assert type(again) is type(model)
    kept = json.loads((tmp_path / "ours/config.json").read_text())
    assert kept["eos_token_id"] == 1


TRAINED = {
    "tied, padded, over stages": ("llama-tied", "tp = 2, pp = 2, vocab_multiple = 4", "weights"),
    "adapters on what is fused": ("gpt2", "tp = 2", "base"),
}


@pytest.mark.parametrize("name", TRAINED)
def test_trained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], process: Any
) -> None:
    """The loss after a step is that of what is exported; an export that fails leaves nothing."""
    family, parallel, field = TRAINED[name]
    model, theirs, out = model_of(family), tmp_path / "theirs", tmp_path / "out"
    model.save_pretrained(theirs)
    (theirs / "tokenizer.json").write_text("{}")
    (theirs / "vocab.json").symlink_to("/etc/hostname")  # another's file, which is not copied
    said = {"weights": f'weights = "{theirs}"', "base": f'lora = lora(rank = 3, base = "{theirs}")'}
    ranks = 4 if "pp" in parallel else 2
    code = emitted(
        tmp_path / "code",
        theirs / "config.json",
        parallel,
        gpus=ranks,
        train=said[field],
        lr="2e-2",
    )
    assert started(code, out, ranks=ranks) == ""
    first, second = (loss for _, loss, _ in curve(out))
    assert first == pytest.approx(loss_of(model, code, step=0), rel=1e-5)
    assert loss_of(model, code, step=1) != pytest.approx(second, rel=1e-3)
    again = exported(code, out, tmp_path / "ours", save=1)
    assert loss_of(again, code, step=1) == pytest.approx(second, rel=1e-5)
    assert (tmp_path / "ours/tokenizer.json").is_file()
    assert not (tmp_path / "ours/vocab.json").exists()

    save = out / "checkpoints/step-00000001"
    ended = process("export", code, "--save", save, "-o", tmp_path / "by command")
    assert (ended.returncode, ended.stderr) == (0, "")
    for path in (tmp_path / "ours").iterdir():
        assert (tmp_path / "by command" / path.name).read_bytes() == path.read_bytes()

    save = out / "checkpoints/step-00000002"
    asked = [str(code), "--save", str(save), "--to"]
    assert export([*asked, str(tmp_path / "ours")]) == 1
    assert "ours is there already" in capsys.readouterr().err
    part = next(save.glob("*.distcp"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    assert export([*asked, str(tmp_path / "none")]) == 1
    assert "is damaged" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if "none" in path.name] == []
