"""Every number of a page is one of the documents of `--json`, at the path that it carries."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .commands import ROOT, documents, page_of, run
from .jobs import job
from .reading import numbers, read, rounds_to, wrong

EXAMPLES = {
    "llama-70b-64gpu/llama-70b": "2,4,8,16",
    "deepseek-v3/deepseek-v3": "64,128,256,512",
    "tiny/tiny": "1,2",
}
CARDS = (
    *("time.step_seconds", "time.band", "time.tokens_per_second_per_gpu", "time.mfu", "time.hfu"),
    *("memory.peak_bytes", "memory.budget_bytes", "run.days", "run.gpu_hours", "time.bubble"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if "llama" in n else [pytest.mark.slow]) for n in EXAMPLES]
)
def test_the_numbers_of_an_example(name: str) -> None:
    path, nodes = ROOT / "examples" / f"{name}.par", EXAMPLES[name]
    page, known = page_of(path, "--nodes", nodes), documents(path, nodes)
    assert wrong(page, known) == []
    told = {path for number in numbers(page) for path in number.paths}
    for each in CARDS if known["ledger"][0]["time"]["step_seconds"] else ("memory.peak_bytes",):
        assert f"0.{each}" in told
    for rank in range(len(known["ledger"][0]["memory"]["rank_classes"])):
        assert f"0.memory.rank_classes.{rank}.peak_bytes" in told
    shares = known["ledger"][0]["time"].get("shares") or {}
    assert {f"0.time.shares.{share}" for share in shares} <= told
    assert len(told) > 60


@pytest.mark.slow
def test_every_phase_has_its_own_numbers() -> None:
    path = ROOT / "examples" / "llama-405b-phases" / "llama-405b-phases.par"
    page, known = page_of(path, "--nodes", "1024,2048"), documents(path, "1024,2048")
    assert wrong(page, known) == []
    steps = [p for number in numbers(page) for p in number.paths if p.endswith("step_seconds")]
    assert {path.partition(".")[0] for path in steps} == {"0", "1", "2"}
    heads = [each.text for each in page.all("h2")][:3]
    assert heads == ["Phase main", "Phase wide", "Phase long"]


@pytest.mark.slow
def test_what_a_job_costs_and_how_much_of_it_is_useful(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model from "llama3-8b"\n'
        'cluster { nodes = 2, node from "dgx-h100" { gpu { price = 2$/h } }\n'
        "  reliability { gpu_mtbf = 40000h, restart = 10min }, storage { bandwidth = 10GB/s } }\n"
        "parallel { tp = 8, dp = auto, zero = 1 }\n"
        "train { seq = 8Ki, micro_batch = 1, global_batch = 64, recompute = full, tokens = 1T }\n"
        "assert memory.peak <= 90% * gpu.memory\nassert throughput.mfu > 10%\n"
    )
    page, known = page_of(path, "--nodes", "1,2,4"), documents(path, "1,2,4")
    assert wrong(page, known) == []
    told = {path for number in numbers(page) for path in number.paths}
    assert {"0.run.cost", "0.goodput.useful_share", "0.asserts.0.value"} <= told
    assert "0.scaling.1.cost" in told
    assert "The layout holds" in page.text


@pytest.mark.slow
@settings(max_examples=max(3, settings.default.max_examples // 5))
@given(st.integers(0, 2**32))
def test_random_jobs(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.mktemp("report") / "job.par"
    path.write_text(job(Random(seed)))
    result = run("report", path, "-o", "-", "--nodes", "1,2")
    page = read(result.stdout_bytes.decode())
    if result.exit_code == 1:
        assert "error" in result.stderr and "does not hold" in page.text
        if not numbers(page):
            return
    else:
        assert result.exit_code == 0, result.output
    assert wrong(page, documents(path, "1,2")) == []


@pytest.mark.slow
def test_jobs_from_the_hat_have_pages() -> None:
    """Else the property above would say nothing."""
    from parlay.compiler import check

    texts = [job(Random(seed)) for seed in range(40)]
    clean = [t for t in texts if not check("job.par", text=t)["summary"]["errors"]]
    assert len(clean) > 15
    assert any("pp = 4" in t for t in clean) and any("experts" in t for t in clean)


FULL = """model from "llama3-70b"
cluster { nodes = 2, node from "dgx-h100" }
parallel { tp = 4, pp = 4, dp = auto, zero = 1 }
train { seq = 7Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = selective(mlp) }
"""


def test_a_job_that_does_not_fit_has_a_page_of_what_is_over(tmp_path: Path) -> None:
    path = tmp_path / "full.par"
    path.write_text(FULL)
    page, known = page_of(path, "--nodes", "2", status=1), documents(path, "2")
    assert wrong(page, known) == []
    memory = known["ledger"][0]["memory"]
    over = [c["peak_bytes"] > memory["budget_bytes"] for c in memory["rank_classes"]]
    assert any(over) and not all(over)
    for number, each in enumerate(memory["rank_classes"]):
        assert each["over_bytes"] == max(0, each["peak_bytes"] - memory["budget_bytes"])
        told = [n for n in numbers(page) if n.paths[0].endswith(f"classes.{number}.over_bytes")]
        assert bool(told) == over[number]
    assert f"{sum(over)} of {len(over)} stages hold more than" in page.text
    assert "does not hold: 1 error" in page.one("p", class_="verdict").text
    (said,) = page.having("article", class_="error")
    for words in ("M204", "full.par:3:1", "= note: activations:", "the budget is"):
        assert words in said.text
    # What is wrong comes before the figures.
    order = [each.attributes["id"] for each in page.all("section")]
    assert order[:2] == ["checks", "s0"]


OPEN = """# left to the planner
model from "llama3-8b" { layers = 8 }
cluster { nodes = 2, node from "dgx-h100" }
parallel { tp = auto in [1, 2, 16], pp = auto <= 2, zero = 1 }  # within a node
train { seq = 4Ki, micro_batch = auto <= 2, global_batch = 64, steps = 10 }
"""


def test_what_a_file_leaves_open_is_planned_on_the_page(tmp_path: Path) -> None:
    path, written = tmp_path / "open.par", tmp_path / "written.par"
    path.write_text(OPEN)
    written.write_text(OPEN)
    page = page_of(path, "--nodes", "1,2")
    plan = json.loads(run("plan", path, "--json").stdout)["phases"]
    assert run("plan", written, "--write").exit_code == 0
    assert wrong(page, {**documents(written, "1,2"), "plan": plan}) == []
    assert path.read_text() == OPEN
    told = {path for n in numbers(page) if n.document == "plan" for path in n.paths}
    front = {f"0.pareto.{place}.peak_bytes" for place in range(len(plan[0]["pareto"]))}
    assert len(front) > 3 and front <= told
    assert {"0.best.step_seconds", "0.searched", "0.rejected.N201", "0.fewest_gpus"} <= told
    assert any(each.startswith("0.runners_up.0.more.") for each in told)
    section = page.having("section", id="plan0")[0]
    assert "tensor parallelism leaves the fast domain" in section.text
    (never,) = [row for row in section.all("tr") if row.attributes.get("data-at") == "never.0"]
    assert [cell.text for cell in never.inside_cells()] == ["tp", "16", "–", "–", "N201"]
    for table in section.all("table"):
        assert table.one("caption").text
        assert len({len(row.inside_cells()) for row in table.all("tr")}) == 1
    # The text is the one that the choice was written into, and the choice is what it says.
    best = plan[0]["best"]
    assert f"tp = {best['tp']}, pp = {best['pp']}, zero = 1" in page.text
    assert "holds: no errors" in page.text
    again = run("report", path, "-o", "-", "--nodes", "1,2").stdout_bytes
    assert again == run("report", path, "-o", "-", "--nodes", "1,2").stdout_bytes


def test_a_plan_without_a_legal_layout_has_a_page_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "open.par"
    path.write_text(OPEN + "assert memory.peak <= 1GiB\n")
    page = page_of(path, status=1)
    plan = json.loads(run("plan", path, "--json").stdout)["phases"]
    assert wrong(page, {"plan": plan}) == []
    assert "No layout is legal" in page.text and "an assert of the file" in page.text
    assert "does not hold" in page.one("p", class_="verdict").text


# ── The right number in the right place ───────────────────────────────────────

COLUMNS = {
    "ranks": "size",
    "groups": "count",
    "nodes of one": "nodes",
    "groups a NIC": "groups_per_nic",
    "calls": "calls_per_step",
    "each": "bytes_per_call",
    "sent": "wire_bytes_per_call calls_per_step",
    "alone": "seconds",
    "waited for": "exposed_seconds",
    "hidden": "seconds exposed_seconds",
    "nodes": "nodes",
    "GPUs": "gpus",
    "dp": "dp",
    "batch": "global_batch",
    "step": "step_seconds",
    "efficiency": "efficiency",
    "MFU": "mfu",
    "peak": "peak_bytes",
    "days": "days",
    "GPU-hours": "gpu_hours",
}
MADE = {"sent": "product", "hidden": "difference", "of the step": "share"}
TITLES = {
    "Step": "time.step_seconds",
    "Tokens/s/GPU": "time.tokens_per_second_per_gpu",
    "MFU": "time.mfu",
    "Peak memory": "memory.peak_bytes",
    "Days": "run.days",
    "Bubble": "time.bubble",
}


@pytest.mark.slow
def test_columns_hold_what_their_heads_say() -> None:
    path = ROOT / "examples" / "deepseek-v3" / "deepseek-v3.par"
    page = page_of(path, "--nodes", "128,256")
    seen: set[str] = set()
    for table in page.all("table"):
        heads = [cell.text for row in list(table.all("tr"))[:1] for cell in row.inside_cells()]
        for row in table.all("tr"):
            cells = row.inside_cells()
            if len(cells) != len(heads):
                continue
            for head, cell in zip(heads, cells, strict=True):
                for figure in cell.all("data"):
                    told = figure.attributes["data-path"].split(" ")
                    ends = [each.rpartition(".")[2] for each in told]
                    known = COLUMNS.get(head, head)
                    if head in ("seconds", "of the step"):
                        name = cells[0].text.rpartition("(")[2].rstrip(")")
                        known = name if head == "seconds" else f"{name} step_seconds"
                    elif head == "bytes":
                        known = "value_bytes"
                    assert " ".join(ends) == known, (head, told)
                    assert figure.attributes.get("data-op", "") == MADE.get(head, "")
                    seen.add(head)
    assert seen >= {*COLUMNS, "weights", "optimizer", "bytes", "seconds", "of the step"}
    for card in page.having("div", class_="card"):
        title = card.one("h3").text
        if title in TITLES:
            (figure,) = card.one("p", class_="big").all("data")
            assert figure.attributes["data-path"] == TITLES[title]


# ── A test that cannot fail is none ───────────────────────────────────────────


@pytest.mark.parametrize(
    ("shown", "value", "right"),
    [
        ("27.7 GiB", 29782712320, True),
        ("27.8 GiB", 29782712320, False),
        ("27.7 MiB", 29782712320, False),
        ("1,234 s", 1234.4, True),
        ("1,234 s", 1235.4, False),
        ("28.6%", 0.2861, True),
        ("28.6%", 28.61, False),
        ("70.6B", 70.55e9, True),
        ("$5", 5.4, True),
        ("0 s", 0, True),
        ("0 s", 0.7, False),
        ("none", 0, False),
    ],
)
def test_rounding(shown: str, value: float, right: bool) -> None:
    assert rounds_to(shown, value) is right


@pytest.mark.slow
def test_a_changed_number_is_found() -> None:
    path = ROOT / "examples" / "tiny" / "tiny.par"
    known = documents(path, "1,2")
    text = run("report", path, "-o", "-", "--nodes", "1,2").stdout_bytes.decode()
    peak = known["ledger"][0]["memory"]["peak_bytes"]
    assert wrong(read(text), known) == []
    assert wrong(read(text.replace(f'value="{peak}"', f'value="{peak + 1}"')), known)
    known["ledger"][0]["memory"]["peak_bytes"] = json.loads(json.dumps(peak * 2))
    assert any("memory.peak_bytes" in each for each in wrong(read(text), known))
