"""`parlay explain`: every code has a page whose examples hold; every field has an origin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.commands import explain
from parlay.compiler.spec import codes as of_names
from parlay.compiler.spec.resolve import schemas

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    **of_names.CODES,
    **{code: page for _, of in explain.target_codes() for code, page in of.items()},
}
RUN = [
    *((code, ()) for code in of_names.CODES if code not in of_names.NOT_RUN),
    *((code, (target,)) for target, of in explain.target_codes() for code in of),
]


NO_DATA = "B302"
"""A note on most jobs as short as a page's."""


def parts(code: str) -> dict[str, list[str]]:
    return dict(explain.sections(PAGES[code][1]))


def told(lines: list[str], tmp_path: Path, targets: tuple[str, ...]) -> dict[str, str]:
    path = tmp_path / "job.par"
    path.write_text("\n".join(lines) + "\n")
    return {said.code: said.severity.value for said in pipeline.check(path, targets).diagnostics}


@pytest.mark.parametrize(("code", "targets"), RUN)
def test_the_example_of_a_page_gives_its_code(
    code: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    found = told(parts(code)["Example"], tmp_path, targets)
    assert {*found} - {NO_DATA} == {code} - {NO_DATA} and code in found


@pytest.mark.parametrize(("code", "targets"), RUN)
def test_what_a_page_says_instead_is_clean(
    code: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    found = told(parts(code)["Instead"], tmp_path, targets)
    assert code not in found
    assert "error" not in found.values()


def test_a_chain_of_101_definitions(tmp_path: Path) -> None:
    chain = [f"let a{n} = a{n + 1} + 1" for n in range(300)] + ["let a300 = 1"]
    assert told(chain, tmp_path, ()) == {"T014": "error"}


def test_open_degrees_and_compile(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("\n".join(parts("T116")["Example"]))
    ended = parlay("compile", path, "-t", "torch", "-o", tmp_path / "out")
    assert ended.status == 1
    assert "error[T116]" in ended.err


def test_every_code_that_is_told_has_a_page() -> None:
    rooms = [*(ROOT / "dsl").rglob("*.py"), *(ROOT / "compiler").rglob("*.py")]
    named = {
        code
        for path in rooms
        if not re.match(r"(codes|pages)_?\w*\.py", path.name)
        for code in re.findall(r'"([PTLNMSBW]\d{3})"', path.read_text())
    }
    assert len(named) > 100
    assert sorted(named - set(explain.all_codes())) == []


@pytest.mark.parametrize("code", explain.all_codes())
def test_every_page_has_its_parts(code: str) -> None:
    page = explain.page_of(code)
    assert page is not None
    title, blank, *rest = page.splitlines()
    assert title.startswith(f"{code}: ")
    assert blank == ""
    heads = [line.partition(":")[0] for line in rest if re.match(r"[A-Z][a-z]+:( |$)", line)]
    assert heads[:4] == ["What", "Why", "Example", "Instead"]
    assert page.endswith("\n")
    assert not page.endswith("\n\n")
    assert "\x1b" not in page


def test_a_page(parlay: Any) -> None:
    ended = parlay("explain", "T005")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("T005: given twice\n\nWhat: One file gives")
    assert parlay("explain", "t005") == ended


@pytest.mark.parametrize(
    ("code", "near"), [("L20", "L201"), ("T999", "T"), ("203", "L203"), ("zzz", "families")]
)
def test_an_unknown_code(parlay: Any, code: str, near: str) -> None:
    ended = parlay("explain", code)
    assert (ended.status, ended.out) == (1, "")
    assert near in ended.err


# ── Fields ────────────────────────────────────────────────────────────────────


def lines(parlay: Any, field: str, file: Path) -> list[str]:
    ended = parlay("explain", "--field", field, file)
    assert (ended.status, ended.err) == (0, "")
    return [line.strip() for line in ended.out.splitlines()]


def test_a_derived_value(parlay: Any, tiny: Path) -> None:
    value, whence, place, line, doc, takes = lines(parlay, "parallel.dp", tiny)
    assert value == "parallel.dp = 2"
    assert whence.startswith("derived: cluster.gpus / (tp · cp · pp), with cluster.gpus = 8")
    assert re.fullmatch(rf"--> {re.escape(str(tiny))}:\d+:8", place)
    assert line.startswith("dp = auto")
    assert doc == schemas()["parallel.dp"].doc
    assert takes == "takes a whole number, or `auto`"


def test_a_value_of_a_preset(parlay: Any, tiny: Path) -> None:
    value, whence, _, line, doc, takes = lines(parlay, "gpu.memory", tiny)
    assert value.startswith("cluster.node.gpu.memory = ")
    assert whence == 'from the preset "laptop"'
    assert line == 'node from "laptop"'
    assert doc == "Memory that the driver shows."
    assert takes.endswith("dimension data")


def test_a_value_that_is_written(parlay: Any, tiny: Path) -> None:
    assert lines(parlay, "model.kv_heads", tiny)[:2] == [
        "model.kv_heads = 4",
        "written in the file",
    ]


def test_a_default(parlay: Any, tiny: Path) -> None:
    assert lines(parlay, "train.seed", tiny)[:2] == [
        "train.seed = 1234",
        "the default; the file does not set it",
    ]


def test_an_option_of_a_variant(parlay: Any, tiny: Path) -> None:
    value, whence, *_, doc, _ = lines(parlay, "train.optimizer.lr", tiny)
    assert (value, whence) == ("train.optimizer.lr = 0.003", "written in the file")
    assert doc == "Peak learning rate."


def test_an_open_field(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("parallel { tp = auto }")
    assert "open: `parlay plan` chooses it" in lines(parlay, "parallel.tp", path)


def test_the_world(parlay: Any, tiny: Path) -> None:
    assert lines(parlay, "cluster.gpus", tiny)[0] == "cluster.gpus = 8"


def test_an_absent_value(parlay: Any, tiny: Path) -> None:
    assert lines(parlay, "model.experts.count", tiny)[0] == "model.experts.count is absent"


def test_each_phase_has_its_value(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text('parallel { pp = 2 }\nphase "two" { parallel { pp = 4 } }\n')
    told = lines(parlay, "parallel.pp", path)
    assert "parallel.pp = 2" in told
    assert told[told.index('phase "two"') + 1] == "parallel.pp = 4"


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("parallel.pd", "parallel.dp"),
        ("dp", "parallel.dp"),
        ("parallel", "tp, sequence_parallel, pp"),
        ("nothing.at.all", "no field is called nothing.at.all"),
        ("\x1b[31m", "no field"),
    ],
)
def test_an_unknown_field(parlay: Any, tiny: Path, field: str, near: str) -> None:
    ended = parlay("explain", "--field", field, tiny)
    assert (ended.status, ended.out) == (1, "")
    assert near in ended.err
    assert "\x1b" not in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(schemas()))
def test_every_field_is_explained(parlay: Any, tiny: Path, path: str) -> None:
    assert parlay("explain", "--field", path, tiny).status == 0
