"""The log of a run: metrics.jsonl line by line, and one plain line a step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime import log as module  # noqa: E402
from parlay.runtime.log import Log  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402


def plan(*, every: int = 1, peak: float | None = None) -> Plan:
    return Plan.of(
        {
            "version": 1,
            "mesh": {"tp": 2, "pp": 2},
            "batch": {"seq": 100, "global_batch": 8},
            "steps": 5,
            "log": {"every": every},
            "flops_per_token": 6e3,
            "peak_flops": peak,
        }
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is two seconds after the last."""
    ticks = iter(range(0, 1000, 2))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.delenv("PARLAY_OUT", raising=False)


def run(log: Log, *, steps: int = 5, **fields: Any) -> None:
    for step in range(steps):
        values: dict[str, Any] = {"loss": torch.tensor(2.5), "grad_norm": 1.25, "lr": 1e-3}
        log.step(step=step, **values | fields)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_line_a_step(clock: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(Log(plan(), writes=True, folder=tmp_path))
    found = lines(tmp_path)
    assert [line["step"] for line in found] == [0, 1, 2, 3, 4]
    assert found[1] == {
        "step": 1,
        "loss": 2.5,
        "grad_norm": 1.25,
        "lr": 1e-3,
        "tokens": 1600,
        "tokens_per_second": 400.0,
        "seconds": 2.0,
        "mfu": None,
    }
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "step 2/5  loss 2.5000  grad norm 1.250  lr 1.00e-03  400 tokens/s"


def test_share_of_the_peak_of_all_ranks(clock: None, tmp_path: Path) -> None:
    log = Log(plan(peak=1e6), writes=True, folder=tmp_path)
    run(log)
    assert lines(tmp_path)[0]["mfu"] == pytest.approx(6e3 * 400 / (4 * 1e6))


def test_every_other_step_and_the_last(clock: None, tmp_path: Path) -> None:
    run(Log(plan(every=2), writes=True, folder=tmp_path))
    assert [line["step"] for line in lines(tmp_path)] == [1, 3, 4]
    assert [line["seconds"] for line in lines(tmp_path)] == [1.0, 1.0, 2.0]


def test_a_validation_is_written_with_its_step(
    clock: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(plan(every=3), writes=True, folder=tmp_path)
    for step in range(2):
        with log.apart():  # takes two seconds of the clock
            held = torch.tensor(1.5) if step == 1 else None
        log.step(step=step, loss=2.0, grad_norm=1.0, lr=0.1, validation=held)
    [line] = lines(tmp_path)
    assert (line["step"], line["validation_loss"], line["seconds"]) == (1, 1.5, 3.0)
    assert "validation loss 1.5000" in capsys.readouterr().out


def test_written_at_once(clock: None, tmp_path: Path) -> None:
    log = Log(plan(), writes=True, folder=tmp_path)
    run(log, steps=2)
    assert len(lines(tmp_path)) == 2
    log.close()


def test_other_ranks_are_silent(
    clock: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Log(plan(), writes=False, folder=tmp_path), loss=None)
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_folder_of_the_environment(
    clock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLAY_OUT", str(tmp_path / "new" / "out"))
    run(Log(plan(), writes=True, folder=tmp_path))
    assert len(lines(tmp_path / "new" / "out")) == 5


def test_what_is_not_a_number_stays_json(clock: None, tmp_path: Path) -> None:
    run(Log(plan(), writes=True, folder=tmp_path), loss=float("nan"), grad_norm=float("inf"))
    assert (lines(tmp_path)[0]["loss"], lines(tmp_path)[0]["grad_norm"]) == (None, None)


def test_tensorboard_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    asked = Plan.of({**plan().to_dict(), "log": {"every": 1, "tensorboard": True}})
    with pytest.raises(SystemExit, match="pip install tensorboard"):
        Log(asked, writes=True, folder=tmp_path)
    Log(asked, writes=False, folder=tmp_path)  # other ranks write nothing


def test_writer_without_a_loss_is_a_mistake(clock: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not of the last stage"):
        run(Log(plan(), writes=True, folder=tmp_path), loss=None)
