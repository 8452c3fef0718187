"""Schedules that split the backward compute and send what is predicted; faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import Edit, par, plan_changed, prove, replaced
from .shapes import model

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SIZES = "hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000"
DEEP = f"model {{ layers = 8, {SIZES} }}"
EXPERTS = f"""model {{
  layers = 4, {SIZES}, experts {{ count = 8, top_k = 2, ffn = 96, shared = 1, dense_layers = 1 }}
}}"""
LATENT = """model {
  layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1001
  mla { q_rank = 24, kv_rank = 16, nope_dim = 8, rope_dim = 4, v_dim = 8 }
}"""

LAYOUTS = {
    "ZB-H1 over four, tied over stages, ZeRO-1, again": par(
        "pp = 4, dp = 2, zero = 1, schedule = zero_bubble",
        gpus=8,
        global_batch=24,
        model=model("gpt2"),
        train="recompute = full",
    ),
    "ZB-H1 over pieces, latents": par(
        "pp = 2, tp = 2, schedule = zero_bubble", gpus=4, model=LATENT, train="precision = bf16"
    ),
    "ZB-V over four, fewer microbatches than stages": par(
        "pp = 4, schedule = zbv", gpus=4, global_batch=6, model=DEEP
    ),
    "ZB-V, both ends of a tied embedding on one rank, ZeRO-3, again": par(
        "pp = 2, tp = 2, dp = 2, zero = 3, schedule = zbv",
        gpus=8,
        global_batch=24,
        model=model("odd"),
        train="recompute = full",
    ),
    "DualPipeV over four, an odd microbatch": par(
        "pp = 4, schedule = dualpipe_v", gpus=4, global_batch=18, model=DEEP
    ),
    "DualPipeV, experts, ZeRO-2": par(
        "pp = 2, dp = 2, ep = 2, zero = 2, schedule = dualpipe_v", gpus=4, model=EXPERTS
    ),
    "DualPipe over four, tied, ZeRO-1, again": par(
        "pp = 4, dp = 2, zero = 1, schedule = dualpipe",
        gpus=8,
        global_batch=48,
        model=model("odd"),
        train="recompute = full",
    ),
    "DualPipe, over pieces": par(
        "pp = 2, tp = 2, schedule = dualpipe", gpus=4, model=model("gpt2"), global_batch=16
    ),
    "DualPipe, experts": par(
        "pp = 2, dp = 2, ep = 2, zero = 1, schedule = dualpipe", gpus=4, model=EXPERTS
    ),
    "ZB-H1 over whole sequences, the MLP again": par(
        "pp = 2, tp = 2, sequence_parallel = off, schedule = zero_bubble",
        gpus=4,
        model=model("opt"),
        train="recompute = selective(mlp)",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], (result["failures"], result["detail"])
    assert result["loss"]["compared"] > 0
    for kind in ("gradients", "weights"):
        assert result[kind]["compared"] > 0
        assert result[kind]["max_relative_error"] <= 1e-10
    borders = [row for row in result["collectives"]["rows"] if row["collective"] == "send"]
    assert {row["stage"] for row in borders} == set(range(result["axes"]["pp"]))


# ── Faults ────────────────────────────────────────────────────────────────────

FAULTY = par("pp = 2, schedule = zbv", gpus=2)
JOB = "# ── Job ─"
LIST = "timeline=timeline_split.zbv(mesh.pp.size, plan.batch.microbatches)"


def before_the_job(code: str) -> Edit:
    """Breaks the runtime before train.py runs."""
    return replaced("train.py", JOB, f"{code}\n\n{JOB}")


def changed_list(change: str) -> Edit:
    """Another list of actions than the one that is priced: `change` of a rank's `actions`."""

    def edit(files: dict[str, str]) -> None:
        replaced("train.py", LIST, f"timeline=changed({LIST.removeprefix('timeline=')})")(files)
        before_the_job(
            "import dataclasses\n\n\n"
            "def changed(line):\n"
            f"    lists = tuple(tuple({change}) for actions in line.actions)\n"
            "    return dataclasses.replace(line, actions=lists)\n"
        )(files)

    return edit


RUN = "from parlay.runtime import deferred\n\nrun = deferred.Late.run\n\n\n"
FAULTS: dict[str, tuple[Edit, set[str]]] = {
    "a W dropped from the list": (
        changed_list('action for action in actions if action[::2] != ("W", 1)'),
        {"the timeline has no weight gradients of stage"},
    ),
    "a W twice in the list": (
        changed_list('one for a in actions for one in [a] * (1 + (a[::2] == ("W", 1)))'),
        {"KeyError"},
    ),
    "weights' gradients that are dropped": (
        before_the_job(RUN + "deferred.Late.run = lambda late: late.tasks.clear()"),
        {"gradients", "weights"},
    ),
    "weights' gradients made twice": (
        before_the_job(
            RUN + "def twice(late):\n    late.tasks += late.tasks\n    run(late)\n\n\n"
            "deferred.Late.run = twice"
        ),
        {"gradients", "weights"},
    ),
    "weights' gradients of another microbatch's inputs": (
        before_the_job(
            "from parlay.runtime import deferred\n\n"
            "last, forward = {}, deferred._Linear.forward\n\n\n"
            "def other(ctx, x, weight, bias):\n"
            "    out = forward(ctx, x, weight, bias)\n"
            "    ctx.save_for_backward(last.get(id(weight), x), weight)\n"
            "    last[id(weight)] = x\n"
            "    return out\n\n\n"
            "deferred._Linear.forward = staticmethod(other)"
        ),
        {"gradients", "weights"},
    ),
    "the second chunks placed straight": (
        plan_changed(
            lambda plan: [
                stage.update(stage=1 - stage["stage"]) for stage in plan["stages"] if stage["chunk"]
            ]
        ),
        {"stage 2 of the pipeline has the head, and is not its last"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    edit, expected = FAULTS[name]
    result = prove(FAULTY, tmp_path, edit=edit)
    assert not result["passed"]
    parts = [part for part in ("initial", "gradients", "weights") if result[part]["compared"]]
    found = {part for part in parts if not result[part]["passed"]}
    told = " ".join(result["failures"])
    assert all(one in found or one in told for one in expected), (found, told)
