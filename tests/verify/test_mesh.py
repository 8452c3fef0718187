"""mesh.py at full size: thousands of ranks that only pretend to be there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from parlay.compiler import pipeline
from parlay.compiler.backends.torch.groups import groups_of, sampled
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.commands.mesh_proof import mesh_failures

from .proving import emitted, par

pytestmark = [pytest.mark.slow]

LARGE = """
model { layers = 16, hidden = 256, heads = 32, kv_heads = 4, ffn = 512, vocab = 1024
        tied_embeddings = on, rope(theta = 10000) }
cluster { nodes = NODES, node from "dgx-h100" }
parallel { tp = 8, pp = 16, dp = auto, ORDER }
train { seq = 64, micro_batch = 1, global_batch = 4096, precision = fp32, steps = 10
        lr_schedule = cosine(warmup = 2) }
"""


def large(order: str, *, nodes: int = 1024) -> str:
    return LARGE.replace("NODES", str(nodes)).replace("ORDER", order)


def built(text: str, folder: Path) -> tuple[Structure, dict[str, str]]:
    job, files = emitted(text, folder)
    layout = pipeline.lay_out(job.phases[0])
    assert layout is not None
    return Structure.of(job.phases[0], layout, job.sources), files


def failures(
    structure: Structure, files: dict[str, str], old: str = "", new: str = ""
) -> list[str]:
    assert old in files["mesh.py"]
    edited = {**files, "mesh.py": files["mesh.py"].replace(old, new) if old else files["mesh.py"]}
    return mesh_failures(structure, edited, files["plan.json"])


@pytest.mark.timeout(600)
def test_8192_ranks(tmp_path: Path) -> None:
    structure, files = built(large("order = [tp, dp, pp]"), tmp_path)
    ranks = sampled(structure.layout, structure.axes)
    assert {0, 7, 8191, 4096} <= set(ranks) and len(ranks) < 20
    # tp 8 over 4 key/value heads in pairs; the embedding on the first stage and the last.
    assert groups_of(structure, 8191) == {
        "tp": list(range(8184, 8192)),
        "dp": list(range(7687, 8192, 8)),
        "pp": list(range(511, 8192, 512)),
        "tp_pp": [rank + stage for stage in range(504, 8192, 512) for rank in range(8)],
        "kv": [8190, 8191],
        "embedding": [511, 8191],
    }
    assert failures(structure, files) == []
    wrong = failures(structure, files, 'ORDER = ("tp", "dp", "pp")', 'ORDER = ("tp", "pp", "dp")')
    assert wrong[0] == (
        "rank 0: its dp group is [0, 128, 256, … 8064] (64 ranks), "
        "that of the layout [0, 8, 16, … 504] (64 ranks)"
    )
    wrong = failures(structure, files, 'PLANES = (("tp", "pp"),)', 'PLANES = (("tp", "dp"),)')
    assert wrong[0].startswith("rank 0 has no tp_pp group; it shares one with [0, 1, 2, … 7687]")
    wrong = failures(structure, files, "plan.model.kv_heads", "2")
    assert wrong[0] == "rank 0: its kv group is [0, 1, 2, 3], that of the layout [0, 1]"
    wrong = failures(structure, files, "def build", "def built")
    assert wrong[0].startswith("rank 0: mesh.py fails: AttributeError")


def test_16384_ranks_of_another_order(tmp_path: Path) -> None:
    structure, files = built(large("zero = 1, order = [tp, pp, dp]", nodes=2048), tmp_path)
    assert "tp_pp" not in groups_of(structure, 0)
    assert failures(structure, files) == []


@pytest.mark.distributed
def test_an_edited_folder_is_verified_as_it_stands(tmp_path: Path) -> None:
    _, files = emitted(par("tp = 2, dp = 2", gpus=4), tmp_path)
    code = tmp_path / "code"
    code.mkdir()
    for name, body in files.items():
        (code / name).write_text(body.replace('("tp", "dp")', '("dp", "tp")'))
    command = [sys.executable, "-m", "parlay.compiler.cli", "verify", str(tmp_path / "job.par")]
    done = subprocess.run(
        [*command, "--code", str(code), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert not document["passed"] and not document["mesh_match"]
    assert document["mesh_failures"][0] == (
        "rank 0: its tp group is [0, 2], that of the layout [0, 1]"
    )
