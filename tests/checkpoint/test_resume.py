"""A run that goes on from a save is the run that was never broken, to the last bit."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from .running import curve, emitted, saves, started

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LAYOUTS = {
    "tp, dp": ("tp = 2, dp = 2", 4, "every = 2"),
    "tp, pp by chunks, dp with ZeRO-1": (
        "tp = 2, pp = 2, dp = 2, zero = 1, schedule = interleaved(chunks = 2)",
        8,
        "every = 2",
    ),
    "dp in copies of two with ZeRO-3": ("dp = 4, zero = 3, shard = 2", 4, "every = 2"),
    "both ends on one rank, gradients put off, with ZeRO-3": (
        "pp = 2, dp = 2, zero = 3, schedule = zbv",
        4,
        "every = 2",
    ),
    "pp, saved beside training": ("pp = 2", 2, "every = 2, async = on"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_killed_in_the_middle_of_a_save(name: str, tmp_path: Path) -> None:
    parallel, ranks, checkpoint = LAYOUTS[name]
    code = emitted(tmp_path / "code", parallel, gpus=ranks, checkpoint=checkpoint)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert started(code, whole, ranks=ranks) == ""
    assert saves(whole) == ["step-00000002", "step-00000004", "step-00000005"]

    assert "rank 0 was ended by SIGKILL" in started(code, broken, ranks=ranks, killed_at=4)
    assert saves(broken) == ["step-00000002", "step-00000004…"]

    assert started(code, broken, ranks=ranks, resume=True) == ""
    assert saves(broken) == saves(whole)
    assert curve(broken) == curve(whole)
    assert len(curve(whole)) == 5


OTHERS = {
    "two copies of each stage": (
        "tp = 2, pp = 2, dp = 2, zero = 1, schedule = dualpipe",
        "tied_embeddings = on",
        ("tp = 2", 2),
    ),
    "vocabulary padded for tp, slices across rows, chunks": (
        "tp = 2, pp = 2, dp = 2, zero = 1, schedule = interleaved(chunks = 2)",
        "",
        ("dp = 2", 2),
    ),
    "heads and embeddings that several ranks hold alike": (
        "tp = 4, pp = 2",
        "tied_embeddings = on, bias = [qkv, out, mlp, head]",
        ("tp = 2, dp = 2, zero = 3", 4),
    ),
    "experts on other ranks, with their corrections": (
        "tp = 2, dp = 2, pp = 2, ep = 2, etp = 2, zero = 1",
        "experts { count = 4, top_k = 2, ffn = 24, router = sigmoid, router_bias = on }",
        ("dp = 4, ep = 2, zero = 3", 4),
    ),
    "sequences over other ranks": (
        "cp = 4, dp = 2, zero = 3, shard = 4",
        "",
        ("cp = 2, tp = 2, cp_method = ulysses", 4),
    ),
    "a tied embedding that one rank reads at both ends": (
        "tp = 2, pp = 2, dp = 2, schedule = dualpipe_v",
        "tied_embeddings = on",
        ("pp = 2", 2),
    ),
    "units of ZeRO-3 that hold heads alike": (
        "tp = 4, dp = 2, zero = 3",
        "tied_embeddings = on",
        ("pp = 2, dp = 2, zero = 1", 4),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_resumed_under_another_layout(name: str, tmp_path: Path) -> None:
    parallel, model, (other, ranks) = OTHERS[name]
    first = emitted(tmp_path / "first", parallel, gpus=8, precision="fp32", model=model)
    second = emitted(tmp_path / "second", other, gpus=ranks, precision="fp32", model=model)
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert started(first, whole, ranks=8) == ""
    (out / "checkpoints").mkdir(parents=True)
    shutil.copytree(whole / "checkpoints/step-00000002", out / "checkpoints/step-00000002")
    assert started(second, out, ranks=ranks, resume=True) == ""
    assert [step for step, *_ in curve(out)] == [2, 3, 4]
    for (_, loss, norm), (_, expected, length) in zip(curve(out), curve(whole)[2:], strict=True):
        assert loss == pytest.approx(expected, rel=1e-5)
        assert norm == pytest.approx(length, rel=1e-4)


def test_old_saves_go_after_a_new_one(tmp_path: Path) -> None:
    code = emitted(tmp_path / "code", checkpoint='every = 1, keep = 2, path = "saved here"')
    assert started(code, tmp_path / "out", ranks=1) == ""
    found = sorted(path.name for path in (tmp_path / "out/saved here").iterdir())
    assert found == ["step-00000004", "step-00000005"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The code of one process and the output of its run."""
    folder = tmp_path_factory.mktemp("saved")
    code = emitted(folder / "code", checkpoint="every = 5")
    assert started(code, folder / "out", ranks=1) == ""
    return code, folder / "out"


def test_a_new_run_leaves_earlier_saves_alone(saved: tuple[Path, Path]) -> None:
    code, out = saved
    done = started(code, out, ranks=1)
    assert "has the saves of an earlier run, the last step-00000005" in done
    assert saves(out) == ["step-00000005"]


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


def test_a_foreign_index_runs_no_code(saved: tuple[Path, Path], tmp_path: Path) -> None:
    code, out = saved
    shutil.copytree(out, tmp_path / "out")
    folder = tmp_path / "out/checkpoints/step-00000005"
    trace = tmp_path / "it ran"
    (folder / ".metadata").write_bytes(pickle.dumps(Evil(trace)))
    done = started(code, tmp_path / "out", ranks=1, resume=True)
    assert "posix.mkdir, which no index needs" in done
    assert not trace.exists()


def test_a_damaged_file_is_named(saved: tuple[Path, Path], tmp_path: Path) -> None:
    code, out = saved
    shutil.copytree(out, tmp_path / "out")
    file = tmp_path / "out/checkpoints/step-00000005/__0_0.distcp"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    done = started(code, tmp_path / "out", ranks=1, resume=True)
    assert "__0_0.distcp is damaged" in done


def test_another_model_is_refused(saved: tuple[Path, Path], tmp_path: Path) -> None:
    code, out = saved
    shutil.copytree(code, tmp_path / "code")
    plan = json.loads((code / "plan.json").read_text())
    plan["model"]["ffn"] = 64
    (tmp_path / "code/plan.json").write_text(json.dumps(plan))
    done = started(tmp_path / "code", out, ranks=1, resume=True)
    assert "layers.0.mlp.down.weight is [32, 48], here [32, 64]" in done


def test_other_data_is_refused(saved: tuple[Path, Path], tmp_path: Path) -> None:
    code, out = saved
    shutil.copytree(code, tmp_path / "code")
    plan = json.loads((code / "plan.json").read_text())
    plan["seed"] = 7
    (tmp_path / "code/plan.json").write_text(json.dumps(plan))
    done = started(tmp_path / "code", out, ranks=1, resume=True)
    assert "40 samples of seed 1234 in 5 steps; this run takes 8 a step of seed 7" in done
