"""The proof of a folder as the templates emit it: tp 2 with sequence parallelism, dp 2, pp 2.

What it should send is written down here a second time, from the table of docs/emitted.md.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from parlay.reference.model import Config, shapes  # noqa: E402
from parlay.runtime.verify import verify  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

HANDWRITTEN = Path(__file__).parents[1] / "distributed" / "handwritten"
CUT = {"embedding": 0, "head": 0, "q": 0, "k": 0, "v": 0, "o": 1, "gate": 0, "up": 0, "down": 1}
E = 8  # bytes of a float64
TP = 2


def small_plan() -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((HANDWRITTEN / "plan.json").read_text())
    plan["model"] |= {"hidden": 32, "head_dim": 8, "ffn": 44, "vocab": 41, "padded_vocab": 42}
    plan["batch"] |= {"seq": 16}
    plan["dtypes"] = dict.fromkeys(plan["dtypes"], "float64")
    plan["optimizer"]["lr"], plan["clip"], plan["init"] = 1e-2, 0.05, {"std": 0.2}
    plan["lr_schedule"] = {"warmup": 2, "min_lr": 1e-3}
    plan["buckets"] = {"gradients": 3000}
    plan["data"] = {"format": "tokens", "path": "../tokens.bin"}
    plan["collectives"] = [row for stage in (0, 1) for row in sent(plan, stage)]
    return plan


def weights(plan: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, shape in shapes(Config.of(plan["model"])).items():
        path = name.split(".")
        stage = int(int(path[1]) > 1) if path[0] == "layers" else int(path[0] != "embedding")
        rows.append(
            {
                "name": name,
                "shape": shape,
                "tp_dim": CUT.get(path[-2]),
                "stage": stage,
                "padded_rows": 1 if path[0] in ("embedding", "head") else 0,
            }
        )
    return rows


def sent(plan: dict[str, Any], stage: int) -> Iterator[dict[str, Any]]:
    """The rows of one rank of a stage: two layers, and the embedding or the head."""
    batch, hidden, layers = plan["batch"], plan["model"]["hidden"], 2
    m, b, s = batch["microbatches"], batch["micro_batch"], batch["seq"]
    activation = b * s * hidden * E
    held = [row for row in weights(plan) if row["stage"] == stage]
    numel = sum(
        (prod(row["shape"]) + row["padded_rows"] * hidden) // (1 if row["tp_dim"] is None else TP)
        for row in held
    )
    norms = sum(hidden for row in held if row["tp_dim"] is None)

    def row(group: str, collective: str, calls: int, size: int, dtype: str = "float64") -> Any:
        return {
            "stage": stage,
            "group": group,
            "collective": collective,
            "dtype": dtype,
            "calls": calls,
            "bytes": size,
        }

    # Column linears gather x forward and again backward and scatter its gradient; row linears
    # scatter forward and gather backward. A layer has two of each.
    gathers, scatters = layers * (2 * 2 + 2), layers * (2 + 2)
    gathers += 1 if stage == 0 else 2  # the embedding backward; the head both ways
    scatters += 1  # the embedding forward, or the head backward
    yield row("tp", "all_gather", m * gathers, m * gathers * activation)
    yield row("tp", "reduce_scatter", m * scatters, m * scatters * activation)
    entropy = m * 3 * b * s * E if stage == 1 else 0
    yield row("tp", "all_reduce", 1 + (2 * m if stage == 1 else 0), norms * E + entropy)
    for collective in ("send", "recv"):
        yield row("pp", collective, m, m * activation // TP)
    buckets = ceil(numel / plan["buckets"]["gradients"])
    yield row("dp", "all_reduce", buckets + stage, numel * E + stage * E)
    if stage == 1:
        yield row("dp", "all_reduce", 1, 8, "int64")
    yield row("tp_pp", "all_reduce", 1, E)


def proved(folder: Path, *edits: tuple[str, str, str]) -> dict[str, Any]:
    plan = small_plan()
    shutil.copytree(HANDWRITTEN, folder / "code")
    for file, old, new in edits:
        path = folder / "code" / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    (folder / "code" / "plan.json").write_text(json.dumps(plan))
    (folder / "weights.json").write_text(json.dumps(weights(plan)))
    (folder / "reference.json").write_text(json.dumps(plan))
    return verify(folder, timeout=200)


def test_as_it_stands(tmp_path: Path) -> None:
    result = proved(tmp_path)
    assert result["failures"] == []
    assert result["passed"]
    assert result["gradients"]["compared"] == 3 * 4 * len(weights(small_plan()))
    assert result["gradients"]["max_relative_error"] < 1e-12
    assert result["weights"]["max_relative_error"] < 1e-11
    assert len(result["collectives"]["rows"]) == 15


def test_norms_that_saw_a_piece_of_the_sequence_and_were_not_summed(tmp_path: Path) -> None:
    result = proved(tmp_path, ("train.py", "job.gradients.sum_whole(axis=mesh.tp)", "pass"))
    assert not result["collectives"]["match"]
    assert not result["gradients"]["passed"]
    wrong = [told for told in result["failures"] if "in step 0" in told and "gradient " in told]
    assert wrong
    assert all("norm" in told for told in wrong)
    assert (
        f"all_reduce over tp (float64): 0 calls with 0 bytes, predicted 1 with {4 * 32 * E}, "
        "on rank 0 (tp 0 · dp 0 · pp 0) in step 0"
    ) in result["failures"]
