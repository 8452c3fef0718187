"""timeline, compare and calibrate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from parlay.compiler.commands import calibrate, compare, timeline
from parlay.compiler.commands.calibrate_logs import bus, nccl, nvbandwidth, wire

JOB = """
model from "llama2-7b"
cluster { nodes = 2  node from "dgx-h100" }
parallel { pp = 4  zero = 1 }
train { seq = 4096  micro_batch = 1  global_batch = 64  steps = 1 }
"""
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592
#  Rank  0 Group  0 Pid 1 on node1 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 2 on node1 device  1 [0x43] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
           8             2     float     sum      -1    14.37    0.00    0.00      0    14.01
  8589934592    2147483648     float     sum      -1  23950.1  358.66  358.66      0  23944.0
# Out of bounds values : 0 OK
"""
NVBANDWIDTH = """Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.10     53.90
SUM host_to_device_memcpy_ce 109.00
"""


@pytest.fixture
def par(tmp_path: Path) -> Path:
    path = tmp_path / "run.par"
    path.write_text(JOB)
    return path


def test_a_trace_opens(par: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.json"
    assert timeline.run(par, out) == 0
    events = json.loads(out.read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"F0", "B15"} <= names
    assert {event["tid"] for event in events} == {0, 1, 2, 3}
    assert "ui.perfetto.dev" in capsys.readouterr().out


def test_a_phase_that_is_not_there(par: Path, tmp_path: Path) -> None:
    assert timeline.run(par, tmp_path / "t.json", phase="other") == 1


def test_predicted_beside_measured(
    par: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    lines = [{"step": i, "seconds": 99.0 if i < 3 else 2.0, "mfu": None} for i in range(9)]
    metrics.write_text("\n".join(map(json.dumps, lines)))
    assert compare.run(par, metrics, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    (figure,) = document["figures"]
    assert (figure["figure"], figure["measured"], document["steps"]) == ("step", 2.0, 6)
    assert figure["error"] == pytest.approx(figure["predicted"] / 2.0 - 1)


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"seconds": "x"}', '{"seconds": true}'])
def test_metrics_that_are_none(par: Path, tmp_path: Path, text: str) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(text)
    assert compare.run(par, metrics) == 1
    assert compare.run(par, tmp_path / "absent.jsonl") == 1


def test_a_log_of_nccl_tests() -> None:
    small, large = nccl(NCCL, name="all_gather_perf.log")
    assert (large.collective, large.ranks, large.bytes) == ("all_gather", 2, 8589934592)
    assert large.seconds == pytest.approx(0.0239501)
    line = wire([small, large])
    assert line is not None
    assert line.bandwidth_bytes_per_s == pytest.approx(358.66e9)
    assert line.latency_s == pytest.approx(14.37e-6)


def test_a_log_of_nvbandwidth() -> None:
    (copy,) = nvbandwidth(NVBANDWIDTH)
    assert copy.test == "host_to_device_memcpy_ce"
    assert copy.bytes_per_s == pytest.approx(54.5e9)


@pytest.mark.parametrize(("ranks", "share"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth(ranks: int, share: float) -> None:
    assert bus("all_reduce", ranks, 100, 1.0) == pytest.approx(100 * share)


def test_logs_become_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "all_reduce.log"
    log.write_text(NCCL + NVBANDWIDTH)
    assert calibrate.run([log], json=True) == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert fields["cluster.node.link.bandwidth"] == pytest.approx(358.66e9)
    assert fields["cluster.node.host.bandwidth"] == pytest.approx(54.5e9)
    assert calibrate.run([log]) == 0
    assert "cluster.node.link.latency = 14.4us" in capsys.readouterr().out
    other = tmp_path / "other.log"
    other.write_text("nothing")
    assert calibrate.run([other]) == 1


@pytest.mark.distributed
@pytest.mark.slow
def test_this_machine_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert calibrate.run(ranks=2, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ranks"] == 2
    assert {row["collective"] for row in document["collectives"]} == {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    }
    assert document["fields"]["cluster.node.link.bandwidth"] > 0
