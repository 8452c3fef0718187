"""Files of runs that are not as they should be: figures or a counted reason, never a fault."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

import accuracy
import memory
import rows
from parlay.compiler.ledger.time import efficiency
from stacks import stack_of

Row = dict[str, str]
FIGURES = {"count", "median", "p90", "worst"}
CLASSES = {"dense_bf16", "dense_fp8", "dense_fp4", "moe", "finetune"}


@pytest.fixture(scope="module")
def some(runs_csv: Path) -> list[Row]:
    with runs_csv.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def figures(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The whole report of a file of `rows`."""

    def made(found: list[Row], columns: list[str] | None = None, **how: Any) -> dict[str, Any]:
        path = tmp_path / "some.csv"
        encoding = how.pop("encoding", "utf-8")
        with path.open("w", newline="", encoding=encoding) as file:
            names = columns or list(found[0])
            writer = csv.DictWriter(file, names, extrasaction="ignore", **how)
            writer.writeheader()
            writer.writerows(found)
        return whole(path)

    return made


def whole(path: Path) -> dict[str, Any]:
    """The report of a file, which has its shape whatever stands in it."""
    found, scored = accuracy.document(path)
    assert accuracy.show(found)
    json.dumps(found, allow_nan=False)
    for part in (found, found["baseline"]):
        assert set(part["step_time"]) == set(part["memory"]) == FIGURES
        assert set(part["unstated"]) == {"count", "median", "p90"}
        assert set(part["by_class"]) == CLASSES
        assert {"stated", "told_right"} <= set(part["out_of_memory"])
        names = {"groups", "median_regret", "mean_regret", "pairs_right", "kendall_tau"}
        assert set(part["ranking"]) == names
        assert isinstance(part["skipped"], dict)
        assert {"by_class_accelerator", "by_source"} <= set(part)
    counted = len(scored) + sum(found["skipped"].values())
    assert counted == len(rows.read(path))
    return found


def test_how_a_file_is_written_is_no_matter(some: list[Row], figures: Callable[..., Any]) -> None:
    plain = figures(some)
    assert figures(some, sorted(some[0])) == plain
    assert figures(some, lineterminator="\n") == plain
    assert figures(some, quoting=csv.QUOTE_ALL) == plain
    assert figures(some, encoding="utf-8-sig") == plain
    assert figures([row | {"more": "a, b"} for row in some]) == plain


@pytest.mark.parametrize(
    "text", ["", "id,model\n", "id,id,layers\n1,2,3,4,5\n", '"open\n', "\0\xff"]
)
def test_files_without_a_row_that_counts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    assert whole(path)["step_time"]["count"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("column", [name for name in rows.COLUMNS if name != "gpu"])
def test_a_column_left_out_or_blank(
    some: list[Row], figures: Callable[..., Any], column: str
) -> None:
    left = figures(some, [name for name in some[0] if name != column])
    assert figures([row | {column: ""} for row in some]) == left


@pytest.mark.parametrize("cell", ["n/a", "-1", "0", "nan", "inf", "1,024", "1e400", "99999999999"])
def test_cells_that_are_no_numbers(some: list[Row], figures: Callable[..., Any], cell: str) -> None:
    for column in ("tp", "vpp", "topk", "gpus", "step_time_s", "peak_mem_gib", "hfu_pct"):
        found = figures([row | {column: cell} for row in some[::3]])
        if column == "tp":
            assert found["step_time"]["count"] + found["unstated"]["count"] == 0


@pytest.mark.parametrize("gpu", ["L40S", "MI300X", "A100-PCIe-40GB", "H20", "A10", "B300"])
def test_accelerators_without_a_row(some: list[Row], figures: Callable[..., Any], gpu: str) -> None:
    found = figures([row | {"gpu": gpu} for row in some])
    assert found["all"]["count"] > 20


def test_one_row(some: list[Row], figures: Callable[..., Any]) -> None:
    scored = next(
        row
        for row in some
        if isinstance(rows.case_of(dict.fromkeys(rows.COLUMNS, "") | row), rows.Case)
    )
    found = figures([scored])
    assert (found["all"]["count"], found["ranking"]["groups"]) == (1, 0)


def test_names_are_no_matter_where_the_stack_is_stated(
    some: list[Row], figures: Callable[..., Any]
) -> None:
    columns = [*some[0], "stack"]
    stated = [row | {"stack": stack_of(row)} for row in some]
    turned = stated[1:] + stated[:1]
    names = ("id", "source_url", "source_group", "model")
    renamed = [
        row | {name: other[name] for name in names}
        for row, other in zip(stated, turned, strict=True)
    ]
    known, found = figures(stated, columns), figures(renamed, columns)
    for part in (known, known["baseline"], found, found["baseline"]):
        part.pop("by_source"), part["bias"].pop("by_source")
    known.pop("memory_by_source"), found.pop("memory_by_source")
    assert found == known


def test_a_group_that_no_fit_has_seen_is_priced_by_the_package(some: list[Row]) -> None:
    row = dict.fromkeys(rows.COLUMNS, "") | some[0]
    seen = rows.case_of(row)
    other = rows.case_of(row | {"ffn": "16256", "params_b": "", "stack": "somebody's"})
    assert isinstance(seen, rows.Case) and isinstance(other, rows.Case)
    assert seen.group in accuracy.fitted() and other.group not in accuracy.fitted()
    own = accuracy.time_of(other.spec, other.layout)
    assert accuracy.predict(other).predicted == own.tokens_per_second_per_gpu
    own = accuracy.time_of(seen.spec, seen.layout)
    assert accuracy.predict(seen).predicted != own.tokens_per_second_per_gpu


@pytest.mark.parametrize("column", ["hidden", "tp", "peak_mem_gib", "seq", "notes", "gpu"])
@pytest.mark.parametrize("cell", ["0", "n/a", "nan", "7", '"}', "99999999999"])
def test_memory_s_own_command(column: str, cell: str) -> None:
    path = Path(__file__).parents[1] / "ledger/peaks.csv"
    for row in rows.read(path)[::40]:
        made = memory.predict(row | {column: cell})
        assert isinstance(made, str) or made.predicted > 0


# ── Stacks ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stack", "framework", "chain"),
    [
        ("bridge-26.05", "megatron", ("bridge", "bridge-26.04")),
        ("bridge-27.01-deterministic", "megatron", ("bridge", "bridge-26.08")),
        ("bridge-25.01", "megatron", ("bridge",)),
        ("megatron-2026", "megatron", ("megatron-2025",)),
        ("megatron-2020", "megatron", ()),
        ("megatron", "megatron", ()),
        ("nemo", "megatron", ("nemo-24",)),
        ("nemo-25.04", "megatron", ("nemo-24",)),
        ("torchtitan-fused_loss", "pytorch", ("torchtitan",)),
        ("torchtitan-compile-fused_loss", "pytorch", ("torchtitan", "torchtitan-compile")),
        ("somebody's", "pytorch", ("parlay",)),
        ("-", "pytorch", ("parlay",)),
    ],
)
def test_the_rows_of_a_stack(stack: str, framework: str, chain: tuple[str, ...]) -> None:
    assert efficiency.named(stack, efficiency.load()) == (chain, framework)


@pytest.mark.parametrize("family", ["v100-8", "dgx-a100", "dgx-h100", "dgx-b200", "dgx-b300"])
def test_no_product_beats_the_peak(family: str, job: Callable[..., Any]) -> None:
    """Rows of a family and of a stack that no run had together do not add up to more than a GPU."""
    fastest = 0.0
    for stack in efficiency.load()["stack"]:
        spec, _ = job(node=family, train=f'stack = "{stack}"')
        factors = efficiency.of(spec).factors
        shares = [1 / factors[name] for name in efficiency.GROUPED["products"]]
        fastest = max(fastest, *shares)
        assert min(shares) > 0.3, stack
    assert 0.7 < fastest <= 0.95 + 1e-9


@pytest.mark.parametrize("command", [accuracy, memory])
def test_no_file_is_wrong_usage(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["command", "nowhere.csv"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "nowhere.csv is no file" in capsys.readouterr().err
