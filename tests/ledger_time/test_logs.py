"""Logs of nccl-tests and nvbandwidth: their variants over the years, and what is no log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from parlay.compiler.commands import calibrate
from parlay.compiler.commands.calibrate_logs import Log, Point, bus, read
from parlay.compiler.commands.calibration import calibration, doubtful

RANKS = "".join(
    f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} on{f'node{rank // 2}':>11} device {rank % 2:2d} "
    "[0000:4e:00] NVIDIA H100 80GB HBM3\n"
    for rank in range(4)
)
ONE_NODE = RANKS.replace("node1", "node0")
COLUMNS = "time   algbw   busbw #wrong"
HEAD = f"#       size         count      type   redop    root     {COLUMNS}     {COLUMNS}\n"
LARGE = {
    # The row as each program prints it: columns come and go with the version and the test.
    "all_reduce": ("1073741824  268435456  float  sum  -1", "5000.0  214.75  322.12  0", 3 / 2),
    "all_gather": ("1073741824  67108864  float  none  -1", "5000.0  214.75  161.06  0", 3 / 4),
    "reduce_scatter": ("1073741824  67108864  float  sum  -1", "5000  214.75  161.06  0", 3 / 4),
    "alltoall": ("1073741824  67108864  float  none  -1", "5000.0  214.75  161.06  N/A", 3 / 4),
    "sendrecv": ("1073741824  268435456  float  sum  -1", "5.0e+03  214.75  214.75  N/A", 1),
}


def log(program: str, row: str, figures: str, ranks: str = ONE_NODE, head: str = HEAD) -> str:
    """A log of one size, both halves alike."""
    return (
        f"# nccl-tests version 2.17.8 nccl-headers=23004 nccl-library=23004\n"
        f"# Collective test starting: {program}_perf\n"
        f"# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n#\n"
        f"# Using devices\n{ranks}#\n{head}  {row}  {figures}  {figures}\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.1\n"
    )


def only(found: Log) -> Point:
    [point] = found.points
    return point


@pytest.mark.parametrize("program", LARGE)
def test_every_program(program: str) -> None:
    row, figures, times = LARGE[program]
    found = read(log(program, row, figures))
    point = only(found)
    canonical = {"alltoall": "all_to_all", "sendrecv": "send"}.get(program, program)
    assert (point.collective, point.ranks, point.nodes) == (canonical, 4, 1)
    assert (point.bytes, point.seconds) == (2**30, pytest.approx(5e-3))
    assert point.bus_bytes_per_s == pytest.approx(times * 2**30 / 5e-3)
    assert found.device == "NVIDIA H100 80GB HBM3"


OLD = "#       size         count      type   redop     time   algbw   busbw  error     time\n"
OLDEST = "#       size         count      type     time   algbw   busbw  error     time   algbw\n"
ROOTED = "#       size         count    type    root     time   algbw   busbw  error     time\n"
CPU = HEAD.replace(" time", " cputime")


@pytest.mark.parametrize(
    ("program", "head", "row", "micro"),
    [
        ("all_reduce", OLD, "268435456  67108864  float  sum  7946.8  33.78  67.29  N/A", 7946.8),
        ("all_reduce", OLD, "536870912  134217728  float  sum  16129  33.29  66.31  2e-07", 16129),
        ("sendrecv", OLDEST, "37748744  37748744  uint8  11732  3.22  3.22  0e+00", 11732),
        ("broadcast", ROOTED, "37748744  37748744  float  3  11732  3.22  3.22  0e+00", 11732),
        ("all_reduce", CPU, "268435456  67108864  float  sum  -1  7946.8  33.7  67.2  0", 7946.8),
        ("all_reduce", HEAD, "268435456  67108864  fp8  all  -1  1.2e+06  0.2  0.4  0", 1.2e6),
    ],
)
def test_columns_are_found_by_their_header(program: str, head: str, row: str, micro: float) -> None:
    found = only(read(log(program, row, "7.0  7.0  7.0  0", head=head)))
    assert found.seconds == pytest.approx(micro * 1e-6)
    assert found.bytes == int(row.split()[0])


TAGS = (
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "0: ",
    "node17: ",
    "node17 | ",
    "[pod/nccl-launcher-x7/test] ",
    "2025-03-01T10:20:30.123456Z stdout F ",
)


@pytest.mark.parametrize("tag", TAGS)
def test_launchers_put_their_tags_before_lines(tag: str) -> None:
    text = log("all_reduce", *LARGE["all_reduce"][:2])
    tagged = "".join(f"{tag}{line}" for line in text.splitlines(keepends=True))
    assert read(tagged).points == read(text).points


def test_several_tests_in_one_log() -> None:
    text = log("all_reduce", *LARGE["all_reduce"][:2]) + log(
        "alltoall", *LARGE["alltoall"][:2], ranks=RANKS
    )
    first, second = read(text).points
    assert (first.collective, first.nodes) == ("all_reduce", 1)
    assert (second.collective, second.nodes) == ("all_to_all", 2)


def test_the_collective_may_stand_in_the_command_or_the_name() -> None:
    body = log("x", *LARGE["all_gather"][:2]).replace("# Collective test starting: x_perf\n", "")
    assert not read(body).points
    assert "does not name" in read(body).faults[0]
    assert only(read(body, name="all_gather.log")).collective == "all_gather"
    command = "mpirun -np 4 ./build/all_gather_perf -b 8 -e 1G -f 2 -g 1\n"
    assert only(read(command + body)).collective == "all_gather"


def test_json_of_nccl_tests() -> None:
    devices = [
        {"rank": rank, "hostname": f"n{rank}", "device_info": "NVIDIA H200"} for rank in range(2)
    ]
    row = {"size": 2**20, "out_of_place": {"time": 100.0, "alg_bw": 10.5, "bus_bw": 10.5}}
    document = {
        "version": 2,
        "args": ["./build/alltoall_perf", "-J", "x.json"],
        "config": {"devices": devices},
        "results": [row, {"size": "x", "out_of_place": None}],
    }
    found = read(json.dumps(document))
    point = only(found)
    assert (point.collective, point.ranks, point.nodes) == ("all_to_all", 2, 2)
    assert (point.bytes, point.seconds) == (2**20, pytest.approx(1e-4))
    assert found.device == "NVIDIA H200"


NVBANDWIDTH = """nvbandwidth Version: v0.8
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.10     53.90

SUM host_to_device_memcpy_ce 109.00

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    276.07
 1    276.19      0.00

SUM device_to_device_memcpy_read_ce 552.26

Waived:
Running host_device_latency_sm.
memory latency SM CPU(row) <-> GPU(column) (ns)
           0         1
 0    772.58    771.89

SUM host_device_latency_sm 1544.47

Running device_local_copy.
memcpy local GPU(column) bandwidth (GB/s)
           0         1
 0   1400.00   1420.00
"""


def test_a_log_of_nvbandwidth() -> None:
    host, peer, local = read(NVBANDWIDTH).copies
    assert (host.test, host.bytes_per_s) == ("host_to_device_memcpy_ce", pytest.approx(54.5e9))
    assert peer.bytes_per_s == pytest.approx(276.13e9)
    assert local.bytes_per_s == pytest.approx(1410e9)


def test_json_of_nvbandwidth() -> None:
    case = {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [["55.1", "53.9"]], "sum": 109}
    waived = {"name": "multinode_bisect_write_ce", "status": "Waived"}
    document = {"nvbandwidth": {"version": "v0.8", "testcases": [case, waived]}}
    [copy] = read(json.dumps(document, indent=2)).copies
    assert copy.bytes_per_s == pytest.approx(54.5e9)


@pytest.mark.parametrize(("ranks", "share"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth(ranks: int, share: float) -> None:
    assert bus("all_reduce", ranks, 100, 1.0) == pytest.approx(100 * share)


# ── What is no log ────────────────────────────────────────────────────────────

HOSTILE = {
    "empty": "",
    "words": "nothing",
    "no figures": log("all_reduce", *LARGE["all_reduce"][:2]).partition("  1073741824")[0],
    "negative": log("all_reduce", "1024  256  float  sum  -1", "-5.0  1  1  0"),
    "nan": log("all_reduce", "1024  256  float  sum  -1", "nan  nan  nan  0"),
    "beyond": log("all_reduce", f"{10**40}  256  float  sum  -1", "1e-300  1e300  1e300  0"),
    "digits": log("all_reduce", f"{'9' * 9000}  256  float  sum  -1", "1  1  1  0"),
    "broken JSON": '{"version": 2, "results": [{"size": 8',
    "deep JSON": "{" + '"a":{' * 100_000,
    "other JSON": '{"args": 3, "config": [], "results": {"size": 1}, "nvbandwidth": 4}',
    "odd JSON": '{"nvbandwidth": {"testcases": [3, {"bandwidth_matrix": [1, ["x", null]]}]}}',
    "binary": "\x00\x01\ufffd" * 1000,
    "a short Running": "Running ",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_log(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.log"
    path.write_text(HOSTILE[name])
    assert calibrate.run([path]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"parlay: {path}") and len(said.splitlines()) == 1


def test_a_name_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.log"
    path.write_text("Running \x1b[31mred\nbandwidth (GB/s)\n 0  5.0\n")
    assert calibrate.run([path]) == 0
    assert "\x1b[31m" not in capsys.readouterr().out


# ── Figures of a calibration ──────────────────────────────────────────────────


def points(collective: str, ranks: int, nodes: int) -> list[Point]:
    """A small and three large messages of an exact machine: 80 us, 100 GB/s on the bus."""
    sizes = {1024: 80e-6, **{2**n: 2**n / 1e9 for n in (28, 29, 30)}}
    return [Point(collective, ranks, s, t, 100e9, nodes) for s, t in sizes.items()]


@pytest.mark.parametrize(
    ("collective", "ranks", "steps"),
    [
        ("all_reduce", 2, 2),
        ("all_reduce", 8, 12),
        ("all_gather", 8, 7),
        ("reduce_scatter", 4, 3),
        ("all_to_all", 8, 3),
        ("send", 8, 1),
    ],
)
def test_latency_is_of_a_step(collective: str, ranks: int, steps: int) -> None:
    made = calibration({}, points(collective, ranks, 1))["link"]
    assert made["ranks"] == ranks
    assert made[collective]["latency"] == pytest.approx(80e-6 / steps)
    assert made[collective]["bandwidth"] == pytest.approx(100e9)


@pytest.mark.parametrize(
    ("collective", "bandwidth"),
    [("all_reduce", 100e9 / 8), ("all_to_all", 100e9 * 8 / 15), ("send", 100e9)],
)
def test_between_nodes_a_figure_is_of_one_gpu(collective: str, bandwidth: float) -> None:
    """Two nodes of eight: a ring enters by eight cards, 8 of 15 peers are on the other node."""
    made = calibration({}, points(collective, 16, 2))["fabric"]
    assert made[collective]["bandwidth"] == pytest.approx(bandwidth)


def test_the_test_of_most_ranks_counts() -> None:
    both = [*points("all_reduce", 8, 1), Point("all_reduce", 2, 2**30, 1.0, 1e9, 1)]
    assert calibration({}, both)["link"]["all_reduce"]["bandwidth"] == pytest.approx(100e9)


def test_logs_become_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.txt"
    first.write_text(log("all_reduce", *LARGE["all_reduce"][:2]))
    second.write_text(NVBANDWIDTH)
    assert calibrate.run([first, second], json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["fields"]["cluster.node.link.bandwidth"] == pytest.approx(1.5 * 2**30 / 5e-3)
    assert document["fields"]["cluster.node.host.bandwidth"] == pytest.approx(54.5e9)
    made = document["calibration"]
    assert made["device"] == "NVIDIA H100 80GB HBM3"
    assert (made["copy"], made["host"]) == (pytest.approx(2820e9), pytest.approx(54.5e9))
    assert calibrate.run([first, second]) == 0
    assert "cluster.node.link.bandwidth = 322.1GB/s" in capsys.readouterr().out


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broadcast.log"
    path.write_text(log("broadcast", *LARGE["all_reduce"][:2]))
    assert calibrate.run([path]) == 0
    assert "left out of the calibration: broadcast" in capsys.readouterr().out


def sizes(*rows: tuple[int, float]) -> list[Point]:
    """Points of an all-reduce of eight ranks in one node: bytes and seconds."""
    return [
        Point("all_reduce", 8, size, seconds, bus("all_reduce", 8, size, seconds), 1)
        for size, seconds in rows
    ]


def test_a_log_that_ends_early_is_told() -> None:
    """Where the largest message takes as long as the smallest, its rate is none of the wire's."""
    [why] = doubtful(sizes((8, 20e-6), (1 << 18, 21e-6)))
    assert "link.all_reduce: 262,144 B" in why
    assert not doubtful(sizes((8, 20e-6), (1 << 30, 4e-3)))
    assert not doubtful(sizes((1 << 30, 4e-3)))


def test_the_latency_of_a_field_is_of_a_message(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.log"
    path.write_text(log("all_reduce", "8  2  float  sum  -1", "24.00  0.00  0.00  0"))
    made = calibrate.from_logs([path])
    assert isinstance(made, dict)
    # 24 us of four ranks, whose ring has 6 steps.
    assert made["fields"]["cluster.node.link.latency"] == pytest.approx(4e-6)


def test_no_fields_no_heading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all_reduce.log"
    path.write_text(log("all_reduce", *LARGE["all_reduce"][:2], ranks=RANKS))
    assert calibrate.run([path]) == 0
    assert "as fields of a file" not in capsys.readouterr().out
