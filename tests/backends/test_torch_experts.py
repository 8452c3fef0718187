"""Experts in the torch target: what it refuses, at which field, and what layouts are proved at."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.torch.shrink import AXES, folded, shrink
from parlay.compiler.layout import lay_out

MODEL = """
model {{
  layers = 8, hidden = 256, heads = 8, kv_heads = 4, ffn = 512, vocab = 1024 {more}
  experts {{ count = 16, top_k = 2, ffn = 128 {experts} }}
}}
cluster {{ nodes = {nodes}, node from "dgx-h100" }}
parallel {{ {parallel} }}
train {{
  seq = 1024, micro_batch = 1, global_batch = 512, precision = {precision}, steps = 100
  optimizer = adamw(lr = 1e-3), lr_schedule = cosine(warmup = 2, min_lr = 1e-4) {train}
}}
"""


def checked(
    folder: Path,
    *,
    experts: str = "",
    more: str = "",
    parallel: str = "ep = 8, zero = 1",
    train: str = "",
    nodes: int = 1,
    precision: str = "bf16",
) -> pipeline.Job:
    path = folder / "job.par"
    path.write_text(
        MODEL.format(
            experts=experts and f", {experts}",
            more=more and f", {more}",
            parallel=parallel,
            train=train and f", {train}",
            nodes=nodes,
            precision=precision,
        )
    )
    return pipeline.check(path, ["torch"])


REFUSED = {
    "capacity": ({"experts": "capacity = 1.25"}, "capacity"),
    "a limit of nodes": (
        {
            "experts": "groups = 4, top_groups = 3, node_limit = 2",
            "parallel": "ep = 16, zero = 1",
            "nodes": 2,
        },
        "node_limit",
    ),
    "a gate of nothing": ({"experts": "shared_gate = on"}, "shared_gate"),
    "a correction in 16 bits": (
        {"experts": "router_bias = on", "train": "gradients = bf16"},
        "gradients",
    ),
    "a correction without masters": (
        {"experts": "router_bias = on", "train": "master = none"},
        "master",
    ),
    "a loss that is scaled up": (
        {"experts": "aux_loss = 0.01", "precision": "fp16"},
        "precision",
    ),
    "compiled layers": ({"train": "compile = on"}, "compile"),
    "shared experts computed again alone": (
        {"experts": "shared = 1", "train": "recompute = selective(mlp)"},
        "recompute",
    ),
    "experts dealt out over copies": ({"parallel": "ep = 8, zero = 1, shard = 4"}, "shard"),
    "experts over a part of a copy": (
        {"parallel": "tp = 2, ep = 8, zero = 3, shard = 2"},
        "shard",
    ),
    "ZeRO-2 of experts alone": ({"parallel": "tp = 8, ep = 2, zero = 2"}, "zero"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_at_its_field(name: str, tmp_path: Path) -> None:
    given, field = REFUSED[name]
    job = checked(tmp_path, **given)  # type: ignore[arg-type]
    told = [error for error in job.errors if error.code == "B301"]
    assert len(told) == 1, [error.message for error in job.errors]
    text = (tmp_path / "job.par").read_text()
    line = text[text.rfind("\n", 0, told[0].span.start) + 1 :].splitlines()[0]
    assert field in line
    assert not pipeline.emit(job, "torch").files if job.phases and not job.errors else True


def test_biases_that_shares_do_not_divide(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    text = MODEL.format(
        experts="", more=", head_dim = 32, bias = all", parallel="etp = 3, ep = 8, zero = 1",
        train="", nodes=3, precision="bf16",
    )  # fmt: skip
    text = text.replace("hidden = 256", "hidden = 257").replace("ffn = 128", "ffn = 129")
    path.write_text(text.replace("global_batch = 512", "global_batch = 480"))
    told = [(error.code, error.message) for error in pipeline.check(path, ["torch"]).errors]
    said = "target torch cannot express biases of experts of hidden = 257 over etp = 3"
    assert told == [("B301", said)]


def test_groups_that_are_nodes_keep_within_a_limit(tmp_path: Path) -> None:
    limited = "groups = 4, top_groups = 2, node_limit = 2"
    job = checked(tmp_path, experts=limited, parallel="ep = 16, zero = 1", nodes=2)
    assert not job.errors, [error.message for error in job.errors]


def test_mixtral_of_the_catalog_compiles(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model from "mixtral-8x7b"\n'
        'cluster { nodes = 4, node from "dgx-h100" }\n'
        "parallel { tp = 2, ep = 8, zero = 1 }\n"
        "train { seq = 4096, micro_batch = 1, global_batch = 256, precision = bf16, steps = 10 }\n"
    )
    job = pipeline.check(path, ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    files = pipeline.emit(job, "torch").files_of("torch")
    compile(files["model.py"], "model.py", "exec")
    assert "class Mixture" in files["model.py"]
    assert "class Mlp" not in files["model.py"]


def test_without_experts_stages_may_stand_anywhere(tmp_path: Path) -> None:
    checked(tmp_path, parallel="tp = 4, pp = 4, order = [tp, pp, dp]", nodes=8)
    path = tmp_path / "job.par"
    path.write_text(path.read_text().replace("experts {", "# experts {"))
    job = pipeline.check(path, ["torch"])
    assert not job.errors, [error.message for error in job.errors]
    assert list(folded(job.phases[0].spec)) == [
        {"tp": 2, "cp": 1, "dp": 2, "pp": 2, "ep": 1, "etp": 1}
    ]


LARGE = {
    "ep and edp": ("tp = 2, pp = 4, ep = 8, zero = 1", 8),
    "all ranks of a stage hold other experts": ("pp = 4, ep = 16", 8),
    "experts cut, stages before replicas": (
        "tp = 4, etp = 4, pp = 4, ep = 2, order = [tp, pp, ep, dp]",
        8,
    ),
    "whole experts on every rank": ("tp = 2, pp = 4", 4),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_layout_is_proved_with_every_axis_of_its_experts(name: str, tmp_path: Path) -> None:
    parallel, nodes = LARGE[name]
    job = checked(tmp_path, parallel=parallel, nodes=nodes)
    assert not job.errors, [error.message for error in job.errors]
    phase = job.phases[0]
    full = pipeline.lay_out(phase)
    assert full is not None and full.expert is not None
    above = {axis for axis in ("etp", "ep", "edp") if full.expert.size(axis) > 1}
    met: set[str] = set()
    for degrees in folded(phase.spec):
        small = lay_out(shrink(phase.spec, full.stages, degrees))
        assert prod(degrees[axis] for axis in AXES) == small.world <= 8
        assert small.expert is not None
        found = {axis for axis in ("etp", "ep", "edp") if small.expert.size(axis) > 1}
        assert found <= above
        met |= found
    assert met == above
