"""`ledger --nodes` and `--at`: the same file on other clusters, and at a measured speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import JOB, phases, run


def test_strong_and_weak(tmp_path: Path) -> None:
    result = run(tmp_path, JOB, "ledger", "--json", "--nodes", "4,2,8")
    assert result.exit_code == 0
    [phase] = phases(result)
    points = phase["scaling"]
    assert [(p["kind"], p["nodes"]) for p in points] == [
        *(("strong", n) for n in (2, 4, 8)),
        *(("weak", n) for n in (2, 4, 8)),
    ]
    strong, weak = points[:3], points[3:]
    for first in (strong[0], weak[0]):
        assert first["efficiency"] == 1
        assert first["step_seconds"] == phase["time"]["step_seconds"]
        assert first["days"] == phase["run"]["days"]
        assert first["cost"] == pytest.approx(2 * first["gpu_hours"])
    assert [p["dp"] for p in strong] == [p["dp"] for p in weak] == [2, 4, 8]
    assert [p["global_batch"] for p in strong] == [64, 64, 64]
    assert [p["global_batch"] for p in weak] == [64, 128, 256]
    assert [p["microbatches"] for p in strong] == [32, 16, 8]
    assert [p["microbatches"] for p in weak] == [32, 32, 32]
    for row in (strong, weak):
        for point in row:
            tokens = point["global_batch"] * 8192
            assert point["tokens_per_second"] == pytest.approx(tokens / point["step_seconds"])
            each = point["tokens_per_second"] / point["gpus"]
            first = row[0]["tokens_per_second"] / row[0]["gpus"]
            assert point["efficiency"] == pytest.approx(each / first)
            hours = point["days"] * 24 * point["gpus"]
            assert point["gpu_hours"] == pytest.approx(hours)
    assert 1 > strong[1]["efficiency"] > strong[2]["efficiency"]
    assert all(w["efficiency"] >= s["efficiency"] for s, w in zip(strong, weak, strict=True))
    # More replicas share the optimizer's state.
    assert strong[2]["peak_bytes"] < strong[0]["peak_bytes"]


def test_steps_follow_the_batch_under_weak_scaling(tmp_path: Path) -> None:
    text = JOB.replace("tokens = 1T", "steps = 100")
    points = phases(run(tmp_path, text, "ledger", "--json", "--nodes", "2,4"))[0]["scaling"]
    weak = [p["days"] * 86400 / p["step_seconds"] for p in points if p["kind"] == "weak"]
    assert weak == pytest.approx([100, 50])


def test_what_does_not_divide_is_refused_with_the_reason(tmp_path: Path) -> None:
    points = phases(run(tmp_path, JOB, "ledger", "--json", "--nodes", "2,3"))[0]["scaling"]
    refused = [p for p in points if p["refused"]]
    assert [(p["kind"], p["nodes"]) for p in refused] == [("strong", 3)]
    assert "global_batch = 64" in refused[0]["refused"]
    fixed = JOB.replace("dp = auto", "dp = 2")
    points = phases(run(tmp_path, fixed, "ledger", "--json", "--nodes", "2,4"))[0]["scaling"]
    assert [bool(p["refused"]) for p in points] == [False, True, False, True]


def test_the_table(tmp_path: Path) -> None:
    result = run(tmp_path, JOB, "ledger", "--nodes", "2,3")
    assert "Strong scaling" in result.stdout and "Weak scaling" in result.stdout
    assert "3 nodes: " in result.stdout


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--nodes", "8,x"),
        ("--nodes", "0"),
        ("--nodes", ","),
        ("--nodes", "8,,16"),
        ("--nodes", "-3"),
        ("--nodes", "1.5"),
        ("--nodes", "1000001"),
        ("--nodes", "9" * 5000),
        ("--at", "fast"),
        ("--at", "3GB"),
        ("--at", "0s"),
        ("--at", "-1s"),
    ],
)
def test_wrong_usage(option: str, value: str, tmp_path: Path) -> None:
    assert run(tmp_path, JOB, "ledger", f"{option}={value}").exit_code == 2


def test_no_number_is_cut(tmp_path: Path) -> None:
    """An eighty-column terminal breaks a line, but no figure."""
    result = run(tmp_path, JOB, "ledger", "--nodes", "1000000")
    assert "1,000,000  8,000,000" in result.stdout and "…" not in result.stdout.partition("Weak")[2]


def test_a_stated_speed(tmp_path: Path) -> None:
    [phase] = phases(run(tmp_path, JOB, "ledger", "--json", "--formulas", "--at", "40%"))
    time = phase["time"]
    assert time["mfu"] == pytest.approx(0.4)
    assert time["band"] == 0
    assert time["compute_seconds"] + time["exposed_communication_seconds"] == pytest.approx(
        time["step_seconds"]
    )
    assert sum(time["shares"].values()) == pytest.approx(time["step_seconds"])
    result = run(tmp_path, JOB, "ledger", "--at", "120%")
    assert result.exit_code == 1 and "an MFU of 120.0%" in result.output


def test_asserts_are_judged_at_a_stated_speed(tmp_path: Path) -> None:
    """What only a measurement says has no value in `check`, and is no error where it is given."""
    job = """
model { params = 7B }
cluster { nodes = 2  node from "dgx-h100" }
parallel { tp = 8 }
train { seq = 8Ki  micro_batch = 1  global_batch = 64 }
assert throughput.mfu > 45%
"""
    for at, status in (("46%", 0), ("44%", 1)):
        result = run(tmp_path, job, "ledger", "--json", "--at", at)
        assert result.exit_code == status
        [judged] = phases(result)[0]["asserts"]
        assert judged["holds"] is (status == 0)
        assert ("A201" in result.stderr) is (status == 1) and "T012" not in result.stderr
