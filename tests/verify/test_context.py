"""Sequences cut over ranks: what every method computes and sends; planted faults are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
from parlay.compiler import pipeline  # noqa: E402
from parlay.compiler.backends.torch.proof import proofs  # noqa: E402
from parlay.runtime import context, merged  # noqa: E402

from .proving import Edit, emitted, par, prove, replaced  # noqa: E402
from .shapes import model  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

MLA = "mla { q_rank = 24, kv_rank = 16, nope_dim = 8, rope_dim = 4, v_dim = 8 }"
LATENT = f"model {{ layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1001, {MLA} }}"
EXPERTS = "experts { count = 8, top_k = 2, ffn = 96, shared = 1, aux_loss = 0.01 }"
MIXED = f"model {{ layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1000, {EXPERTS} }}"

LAYOUTS = {
    "ring of four, shards inside of a context group, windows and caps": par(
        "cp = 4, zero = 1, shard = 2", gpus=4, model=model("gemma")
    ),
    "ring, pieces over tp, layers computed again": par(
        "cp = 2, tp = 2", gpus=4, train="recompute = full, precision = bf16"
    ),
    "ring, stages and replicas": par("cp = 2, pp = 2, dp = 2", gpus=8, model=model("gpt2")),
    "ring, ZeRO-3 over both, slopes": par("cp = 2, dp = 2, zero = 3", gpus=4, model=model("bloom")),
    "gathered by four, no token of a chunk is alone": par(
        "cp = 4, cp_method = allgather", gpus=4, train="recompute = selective"
    ),
    "gathered, windows and caps": par(
        "cp = 2, cp_method = allgather, zero = 1", gpus=2, model=model("gemma")
    ),
    "gathered, slopes of own heads": par(
        "cp = 2, tp = 2, cp_method = allgather", gpus=4, model=model("bloom")
    ),
    "gathered, shards over both, copies of them": par(
        "cp = 2, dp = 4, zero = 2, shard = 4, cp_method = allgather", gpus=8
    ),
    "heads over four, fewer key/value heads, sinks": par(
        "cp = 4, cp_method = ulysses", gpus=4, model=model("gpt-oss")
    ),
    "heads, slopes, attention written out": par(
        "cp = 2, pp = 2, cp_method = ulysses",
        gpus=4,
        model=model("bloom"),
        train="attention = math, recompute = selective(core_attention)",
    ),
    "heads and a ring, other axes in order": par(
        "cp = 4, dp = 2, cp_method = ulysses_ring(inner = 2, outer = 2), order = [dp, cp]",
        gpus=8,
        model=model("gpt-oss"),
    ),
    "heads and a ring, slopes of own heads": par(
        "cp = 4, cp_method = ulysses_ring(inner = 2, outer = 2)", gpus=4, model=model("bloom")
    ),
    "ring, latents": par("cp = 2, tp = 2", gpus=4, model=LATENT),
    "ring, experts over replicas and context": par("cp = 2, dp = 2, ep = 4", gpus=4, model=MIXED),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    for part in ("loss", "gradients", "norm", "initial", "weights"):
        assert result[part]["compared"] > 0 and result[part]["max_relative_error"] <= 1e-10
    assert any(row["group"].startswith("cp") for row in result["collectives"]["rows"])


def test_large_layouts_are_folded(tmp_path: Path) -> None:
    """Every pair of axes meets, those of the two levels of cp among them."""
    method = "ulysses_ring(inner = 4, outer = 2)"
    text = par(f"tp = 4, cp = 8, dp = 2, pp = 2, cp_method = {method}", gpus=128)
    job, _ = emitted(text.replace("heads = 8, kv_heads = 4", "heads = 16, kv_heads = 16"), tmp_path)
    layout = pipeline.lay_out(job.phases[0])
    assert layout is not None
    meshes = [_mesh(files["code/plan.json"]) for files in proofs(job.phases[0], layout)]
    assert meshes == [
        {"tp": 2, "cp": 4, "dp": 1, "pp": 1, "inner": 2},
        {"tp": 2, "cp": 1, "dp": 2, "pp": 1, "inner": 1},
        {"tp": 2, "cp": 1, "dp": 1, "pp": 2, "inner": 1},
        {"tp": 1, "cp": 4, "dp": 2, "pp": 1, "inner": 2},
        {"tp": 1, "cp": 4, "dp": 1, "pp": 2, "inner": 2},
        {"tp": 1, "cp": 1, "dp": 2, "pp": 2, "inner": 1},
    ]


def _mesh(plan: str) -> dict[str, int]:
    found = json.loads(plan)
    return found["mesh"] | {"inner": found["cp_inner"]}


RING = par("cp = 2", gpus=2)
GATHERED = par("cp = 2, cp_method = allgather", gpus=2)

FAULTS: dict[str, tuple[str, Edit, set[str]]] = {
    "chunks in plain order under a causal ring": (
        RING,
        lambda files: [
            replaced(file, "context.head_tail(", "context.piece(")(files)
            for file in ("model.py", "train.py")
        ],
        {"loss", "gradients", "weights"},
    ),
    "a window of a ring that is a token too wide": (
        par("cp = 2", gpus=2, model=model("gemma")),
        replaced("model.py", "else m.window.size", "else m.window.size + 1"),
        {"loss", "gradients", "weights"},
    ),
    "positions that restart on each rank": (
        GATHERED,
        replaced("model.py", "rotary(self.plan, at, like=x)", "rotary(self.plan, at.argsort(), x)"),
        {"loss", "gradients", "weights"},
    ),
    "gradients that are averaged over cp": (
        RING,
        replaced(
            "train.py",
            "    return loss\n",
            "    job.gradients.own.div_(mesh.cp.size)\n    return loss\n",
        ),
        {"gradients", "norm"},
    ),
    "labels of one rank alone": (
        RING,
        replaced("train.py", ", axis=mesh.cp)\n    losses", ")\n    losses"),
        {"loss", "gradients", "collectives"},
    ),
    "a sum over replicas that leaves cp out": (
        par("cp = 2, dp = 2", gpus=4),
        replaced("train.py", "all_reduce(axis=mesh.dp_cp", "all_reduce(axis=mesh.dp"),
        {"gradients", "norm", "weights", "collectives"},
    ),
    "a ring over neighbours": (
        par("cp = 4, cp_method = ulysses_ring(inner = 2, outer = 2)", gpus=4),
        replaced("model.py", "axis=self.outer)", "axis=self.inner)"),
        {"loss", "gradients", "collectives"},
    ),
}


def caught(result: dict) -> set[str]:
    parts = ("loss", "gradients", "norm", "initial", "weights")
    failed = {part for part in parts if not result[part]["passed"]}
    return failed | (set() if result["collectives"]["match"] else {"collectives"})


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    layout, edit, expected = FAULTS[name]
    result = prove(layout, tmp_path, edit=edit)
    assert not result["passed"] and not result["detail"], result["detail"]
    assert expected <= caught(result), (caught(result), result["failures"])
    if "collectives" not in expected:
        assert "collectives" not in caught(result)


def unweighted(self, rows, out, lse) -> None:
    """A merge that takes every block for as likely as any other."""
    both = torch.logaddexp(self.lse[:, :, rows], lse)
    first = torch.isinf(self.lse[:, :, rows]).unsqueeze(-1)
    self.out[:, :, rows] = torch.where(first, out, (self.out[:, :, rows] + out) / 2)
    self.lse[:, :, rows] = both


def home_too_early(self) -> torch.Tensor:
    """A gradient that never comes from the rank before."""
    for work in self.works:
        work.wait()
    return self.x


KERNELS: dict[str, tuple[type, str, Callable, set[str]]] = {
    "a merge without the log-sum-exp": (merged.Merged, "add", unweighted, {"loss", "gradients"}),
    "a ring that stands still": (context._Passed, "wait", home_too_early, {"loss", "gradients"}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_fault_of_the_runtime(name: str, tmp_path: Path) -> None:
    of, attribute, broken, expected = KERNELS[name]
    with mock.patch.object(of, attribute, broken):  # ranks are forked from this process
        result = prove(RING, tmp_path)
    assert not result["detail"], result["detail"]
    assert expected <= caught(result), (caught(result), result["failures"])
