"""The proof passes what is right and names what is wrong, each comparison for itself."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from parlay.reference.model import Config, shapes  # noqa: E402
from parlay.reference.train import run as run_reference  # noqa: E402
from parlay.runtime import verify as module  # noqa: E402
from parlay.runtime.verify import verify  # noqa: E402

pytestmark = pytest.mark.distributed

FAKE = Path(__file__).parent / "fake"
Prove = Callable[..., dict[str, Any]]


def prepared(folder: Path) -> Path:
    """A folder to prove, of the fake: dp 2, nothing cut, one all-reduce a weight."""
    shutil.copytree(FAKE, folder / "code")
    plan = json.loads((FAKE / "plan.json").read_text())
    sizes = shapes(Config.of(plan["model"]))
    numbers = sum(torch.Size(shape).numel() for shape in sizes.values())
    row = {"stage": 0, "group": "dp", "collective": "all_reduce"}
    plan["collectives"] = [
        {**row, "dtype": "int64", "calls": 1, "bytes": 8},
        {**row, "dtype": "float64", "calls": 1 + len(sizes), "bytes": 8 + 8 * numbers},
    ]
    (folder / "code" / "plan.json").write_text(json.dumps(plan))
    recipe = ("model", "optimizer", "lr_schedule", "clip", "init", "seed", "steps")
    (folder / "reference.json").write_text(json.dumps({key: plan[key] for key in recipe}))
    rows = [
        {"name": name, "shape": shape, "tp_dim": None, "stage": 0, "padded_rows": 0}
        for name, shape in sizes.items()
    ]
    (folder / "weights.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture
def prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prove:
    """`prove((old, new), ...)`: the result for the fake with these edits of train.py."""

    @contextlib.contextmanager
    def here(folder: Path, *, timeout: float) -> Iterator[Any]:
        """The plain model in this process, which has torch already."""
        run_reference(folder)
        yield lambda: torch.load(folder / "reference.pt", weights_only=True)

    monkeypatch.setattr(module, "reference_of", here)

    def run(*edits: tuple[str, str], timeout: float = 60) -> dict[str, Any]:
        folder = prepared(tmp_path)
        train = folder / "code" / "train.py"
        text = train.read_text()
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        train.write_text(text)
        result = verify(folder, timeout=timeout)
        assert result == json.loads((folder / "result.json").read_text())
        return result

    return run


def outcome(result: dict[str, Any]) -> dict[str, bool]:
    kinds = ("loss", "gradients", "norm", "initial", "weights")
    return {
        **{kind: result[kind]["passed"] for kind in kinds},
        "collectives": result["collectives"]["match"],
    }


def failed(result: dict[str, Any]) -> set[str]:
    assert not result["passed"]
    return {kind for kind, passed in outcome(result).items() if not passed}


# ── What is right ─────────────────────────────────────────────────────────────


def test_right_folder_passes(prove: Prove) -> None:
    result = prove()
    assert result["failures"] == []
    assert result["passed"]
    assert all(outcome(result).values())
    weights = len(shapes(Config.of(json.loads((FAKE / "plan.json").read_text())["model"])))
    compared = {kind: result[kind]["compared"] for kind in ("loss", "gradients", "weights")}
    assert compared == {"loss": 6, "gradients": 6 * weights, "weights": 2 * weights}
    assert result["gradients"]["max_relative_error"] < 1e-13
    assert result["collectives"]["rows"][1] == {
        "stage": 0,
        "group": "dp",
        "collective": "all_reduce",
        "dtype": "int64",
        "calls": 1,
        "bytes": 8,
        "predicted_calls": 1,
        "predicted_bytes": 8,
    }
    assert (result["ranks"], result["axes"], result["steps"]) == (2, {"dp": 2}, 3)


def test_gradients_in_pieces_pass(prove: Prove) -> None:
    assert prove(PIECES)["passed"]


PIECES = (
    "            yield name, weight.grad",
    """            half = weight.numel() // 2
            mine = slice(half) if dist.get_rank() == 0 else slice(half, None)
            yield name, (mine.start or 0), weight.grad.flatten()[mine]""",
)


def test_command(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    command = [sys.executable, "-m", "parlay.runtime.verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((folder / "result.json").read_text())["passed"]
    train = folder / "code" / "train.py"
    train.write_text(train.read_text().replace("    return total", "    return total + 1"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout.startswith("loss of step 0 is off by ")
    assert done.stderr == ""


def test_command_needs_its_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parlay.runtime.verify", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert f"no file {tmp_path}/code/train.py" in done.stderr


# ── What is wrong ─────────────────────────────────────────────────────────────


def test_mean_over_ranks_in_place_of_labels(prove: Prove) -> None:
    result = prove(
        ("    dist.all_reduce(valid)\n", "    dist.all_reduce(valid.clone())\n    valid *= 2\n")
    )
    assert failed(result) == {"loss", "gradients", "norm", "weights"}


def test_mean_over_microbatches_in_place_of_labels(prove: Prove) -> None:
    mean = "loss_sum(scores, labels) / max(int((labels != -100).sum()), 1) / 4 + 0 * valid"
    result = prove(("loss_sum(scores, labels) / valid", mean))
    assert failed(result) == {"loss", "gradients", "norm", "weights"}


def test_loss_alone(prove: Prove) -> None:
    result = prove(("    return total", "    return total * (1 + 3e-10)"))
    assert failed(result) == {"loss"}
    assert result["failures"][0] == "loss of step 0 is off by 3.0e-10 on rank 0 (dp 0)"
    assert len(result["failures"]) == 6


def test_missing_all_reduce(prove: Prove) -> None:
    skip = "if name != 'layers.1.mlp.up.weight': dist.all_reduce(weight.grad)"
    result = prove(("for _, weight", "for name, weight"), ("dist.all_reduce(weight.grad)", skip))
    assert failed(result) == {"loss", "gradients", "norm", "weights", "collectives"}
    told = [sentence for sentence in result["failures"] if "in step 0" in sentence]
    assert told[0].startswith("gradient layers.1.mlp.up.weight is off by ")
    assert told[0].endswith(" on rank 0 (dp 0) in step 0")


def test_superfluous_all_reduce(prove: Prove) -> None:
    more = "    dist.all_reduce(torch.ones(3))\n    return norm"
    result = prove(("    return norm", more))
    assert failed(result) == {"collectives"}
    assert result["failures"] == [
        "all_reduce over dp (float32): 1 calls with 12 bytes, predicted 0 with 0, "
        "on rank 0 (dp 0) in step 0"
    ]


def test_collective_over_another_group(prove: Prove) -> None:
    """Named by its members, whatever the code calls it."""
    alone = "dist.new_group([dist.get_rank()], use_local_synchronization=True)"
    result = prove(("    dist.all_reduce(total)", f"    dist.all_reduce(total, group={alone})"))
    assert failed(result) == {"loss", "collectives"}


def test_wrong_norm(prove: Prove) -> None:
    result = prove(("    return norm", "    return norm * 2"))
    assert failed(result) == {"norm"}


def test_wrong_clip(prove: Prove) -> None:
    result = prove(("job.plan.clip / (norm", "2 * job.plan.clip / (norm"))
    assert failed(result) == {"weights", "gradients", "loss", "norm"}
    assert all("step 0" not in told for told in result["failures"])


def test_wrong_learning_rate(prove: Prove) -> None:
    result = prove(("cosine(step,", "cosine(step + 1,"))
    assert {"weights"} <= failed(result)
    assert result["initial"]["passed"]


def test_last_step_shows_in_the_weights_alone(prove: Prove) -> None:
    result = prove(
        ("    return norm", "    weights['norm.weight'].data += step // 2\n    return norm")
    )
    assert failed(result) == {"weights"}
    assert result["weights"]["worst"] == "norm.weight"


def test_other_initial_weights(prove: Prove) -> None:
    result = prove(("seed=plan.seed", "seed=plan.seed + 1"))
    assert failed(result) == {"loss", "gradients", "norm", "initial", "weights"}


def test_other_data(prove: Prove) -> None:
    result = prove(("rank=dist.get_rank(), ranks=2", "rank=0, ranks=2"))
    assert failed(result) == {"loss", "gradients", "norm", "weights"}


def test_float32_somewhere(prove: Prove) -> None:
    result = prove(("        loss = loss_sum(scores, ", "        loss = loss_sum(scores.float(), "))
    assert {"loss", "gradients"} <= failed(result)
    assert result["loss"]["max_relative_error"] < 1e-5


def test_not_a_number(prove: Prove) -> None:
    result = prove(("/ valid\n", "/ valid * float('nan')\n"))
    assert failed(result) == {"loss", "gradients", "norm", "weights"}
    assert result["loss"]["max_relative_error"] == sys.float_info.max
    assert result["failures"][0] == "loss of step 0 is not finite on rank 0 (dp 0)"


def test_weight_of_another_name(prove: Prove) -> None:
    result = prove(("*path, last = name", "*path, last = name.replace('mlp.up', 'mlp.upper')"))
    assert failed(result) == {"initial", "weights"}
    assert result["failures"][:3] == [
        "initial weight layers.0.mlp.upper.weight does not belong on rank 0 (dp 0)",
        "initial weight layers.1.mlp.upper.weight does not belong on rank 0 (dp 0)",
        "initial weight layers.0.mlp.up.weight is missing on rank 0 (dp 0)",
    ]


def test_weight_of_another_shape(prove: Prove) -> None:
    wide = "for part in path:\n            if name == 'norm.weight': weight.data = weight[None]"
    result = prove(("for part in path:", wide))
    assert {"initial", "gradients", "weights"} <= failed(result)
    told = "initial weight norm.weight is [1, 16], not [16] on rank 1 (dp 1)"
    assert told in result["failures"]


def test_gradient_that_is_not_there(prove: Prove) -> None:
    less = "            if name != 'norm.weight' or dist.get_rank() == 0: yield name, weight.grad"
    result = prove(("            yield name, weight.grad", less))
    assert failed(result) == {"gradients"}
    assert result["failures"] == [
        f"gradient norm.weight is missing on rank 1 (dp 1) in step {step}" for step in range(3)
    ]


def test_piece_that_nobody_owns(prove: Prove) -> None:
    old, new = PIECES
    result = prove((old, new.replace("slice(half, None)", "slice(half, None if half > 8 else 9)")))
    assert failed(result) == {"gradients"}
    assert result["failures"][0] == (
        "gradient layers.0.attention_norm.weight has 9 elements of 16 "
        "on the ranks of stage 0, tp 0 in step 0"
    )


def test_loss_that_is_missing(prove: Prove) -> None:
    result = prove(("    return total", "    return total if dist.get_rank() else None"))
    assert failed(result) == {"loss"}
    assert result["failures"][0] == "loss of step 0 is missing on rank 0 (dp 0)"


# ── What does not finish ──────────────────────────────────────────────────────


def test_rank_that_raises(prove: Prove) -> None:
    stop = "    if dist.get_rank() == 1: raise ValueError('no {such} group')\n    return total"
    result = prove(("    return total", stop))
    assert result["failures"] == ["rank 1 (dp 1) failed: ValueError: no {such} group"]
    assert len(failed(result)) == 6
    assert result["loss"] == {
        "compared": 0,
        "max_relative_error": None,
        "worst": None,
        "passed": False,
    }
    first, second, *_ = result["detail"].splitlines()
    assert first == "Traceback (most recent call last):"
    assert "train.py" in second


def test_file_that_is_no_python(prove: Prove) -> None:
    result = prove(("def build(plan):", "def build(plan:"))
    assert "failed: SyntaxError" in result["failures"][0]


def test_rank_that_hangs(prove: Prove) -> None:
    wait = "    while dist.get_rank() == 0: __import__('time').sleep(0.1)\n    return norm"
    result = prove(("    return norm", wait), timeout=10)
    assert result["failures"] == ["rank 0 (dp 0), rank 1 (dp 1) did not finish in 10 s"]
    assert "in update" in result["detail"]
    assert "in all_reduce" in result["detail"]


def test_data_that_cannot_be_read(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    (folder / "code" / "tokens.bin").write_bytes(b"123")
    facts = {"dtype": "uint16", "vocab": 37, "end": 35, "pad": 36}
    (folder / "code" / "tokens.json").write_text(json.dumps(facts))
    result = verify(folder)
    assert result["failures"][0].startswith("the data cannot be read: tokens.bin has 3 bytes")
    assert not result["passed"]


def test_plain_model_that_fails(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    facts = json.loads((folder / "reference.json").read_text())
    facts["model"]["norm"] = "batchnorm"
    (folder / "reference.json").write_text(json.dumps(facts))
    assert verify(folder)["failures"] == [
        "the plain model failed: ValueError: no norm `batchnorm`: rmsnorm or layernorm"
    ]
