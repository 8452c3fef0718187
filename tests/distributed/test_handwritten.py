"""The handwritten folder on eight ranks against its single-process twin.

Everything in float64, where a layout changes nothing but the order of sums: losses, gradients,
norms and the weights after three steps agree to 1e-10. Other layouts are the same folder with a few
lines replaced, those that a template would choose.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from parlay.runtime.axes import Grid
from parlay.runtime.local import run_file, run_ranks
from parlay.runtime.plan import Plan

pytestmark = pytest.mark.distributed

HERE = Path(__file__).parent
STEPS, SEQ, GLOBAL_BATCH = 3, 32, 16

# ── What is trained ───────────────────────────────────────────────────────────


def small(folder, *, mesh, clip):
    """The folder's plan in float64, with a few fields that make three steps tell more."""
    fields = json.loads((folder / "plan.json").read_text())
    fields["dtypes"] = dict.fromkeys(fields["dtypes"], "float64")
    fields["batch"]["seq"] = SEQ
    fields["batch"]["microbatches"] = GLOBAL_BATCH // 2 // mesh.get("dp", 1)
    fields["model"]["padded_vocab"] = 257 + 257 % mesh.get("tp", 1)
    fields["lr_schedule"]["warmup"] = 2
    fields["optimizer"]["lr"] = 1e-2
    fields["buckets"]["gradients"] = 30_000
    fields.update(mesh=mesh, clip=clip)
    return fields


def microbatches(step, *, ranks, rank):
    """Sample i has its first 7 * i % 31 labels masked, so ranks and microbatches differ."""
    g = torch.Generator().manual_seed(step)
    drawn = torch.randint(0, 257, (GLOBAL_BATCH, SEQ + 1), generator=g)
    tokens, labels = drawn[:, :-1].contiguous(), drawn[:, 1:].clone()
    for i in range(GLOBAL_BATCH):
        labels[i, : 7 * i % 31] = -100
    return list(zip(tokens.split(2), labels.split(2), strict=True))[rank::ranks]


def train(folder, fields):
    """Runs `folder` on all ranks of its mesh; what each found, step by step."""
    grid = Grid.of(fields["mesh"], order=tuple(fields["mesh"]))

    def target(rank):
        sys.path.insert(0, str(folder))
        import train

        job = train.build(Plan.of(fields))
        dp = job.mesh.dp if fields["mesh"] else None
        found = []
        for step in range(STEPS):
            batch = microbatches(step, ranks=dp.size if dp else 1, rank=dp.rank if dp else 0)
            loss = train.backward(job, batch)
            gradients = [
                (item[0], item[1] if len(item) == 3 else None, item[-1].clone().numpy())
                for item in job.gradients.named()
            ]
            norm = float(train.update(job, step))
            found.append((None if loss is None else float(loss), gradients, norm))
        weights = {name: p.detach().numpy() for name, p in job.model.named_parameters()}
        return found, weights, {axis: getattr(job.mesh, axis).rank for axis in fields["mesh"]}

    return run_ranks(target, grid.world, timeout=120)


# ── What it is held against ───────────────────────────────────────────────────

CLIPS = {"clipped": 0.5, "unclipped": 100.0}


@pytest.fixture(scope="module")
def single():
    folder = HERE / "handwritten_single"
    return {clip: train(folder, small(folder, mesh={}, clip=clip))[0] for clip in CLIPS.values()}


def piece(weight, name, *, at, size):
    """What tp rank `at` holds of a weight of the single process."""
    cut = {"o.weight": 1, "down.weight": 1}.get(".".join(name.split(".")[-2:]), 0)
    if name.endswith("norm.weight"):
        return weight
    if name in ("embedding.weight", "head.weight"):
        padding = weight.new_zeros(-len(weight) % size, weight.shape[1])
        weight = torch.cat([weight, padding])
    return weight.chunk(size, cut)[at]


def check(found, fields, *, single):
    steps, weights, _ = single
    tp, pp = fields["mesh"]["tp"], fields["mesh"]["pp"]
    seen = set()
    for mine, my_weights, at in found:
        for (loss, gradients, norm), (true_loss, true_gradients, true_norm) in zip(
            mine, steps, strict=True
        ):
            assert (loss is None) == (at["pp"] < pp - 1)
            assert loss is None or loss == pytest.approx(true_loss, rel=1e-10)
            assert norm == pytest.approx(true_norm, rel=1e-10)
            truth = {name: torch.from_numpy(gradient) for name, _, gradient in true_gradients}
            for name, offset, gradient in gradients:
                expected = piece(truth[name], name, at=at["tp"], size=tp)
                if offset is not None:
                    expected = expected.flatten()[offset : offset + len(gradient)]
                close(gradient, expected, name)
        for name, weight in my_weights.items():
            expected = piece(torch.from_numpy(weights[name]), name, at=at["tp"], size=tp)
            close(weight, expected, name)
            seen.add(name)
    assert seen == weights.keys()


def close(found, expected, name):
    scale = expected.abs().max().clamp(min=1e-30)
    worst = (torch.from_numpy(found) - expected).abs().max()
    assert worst <= 1e-10 * scale, f"{name}: off by {float(worst / scale):.1e}"


# ── Layouts ───────────────────────────────────────────────────────────────────

MESH = {"tp": 2, "dp": 2, "pp": 2}


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
def test_as_it_is_written(single, clip):
    folder = HERE / "handwritten"
    fields = small(folder, mesh=MESH, clip=clip)
    found = train(folder, fields)
    assert single[clip][0][0][2] > 0.5  # the smaller limit clips
    check(found, fields, single=single[clip])


INTERLEAVED_STAGES = [
    {"stage": 0, "chunk": 0, "layers": [0, 0], "embedding": True, "head": False},
    {"stage": 1, "chunk": 0, "layers": [1, 1], "embedding": False, "head": False},
    {"stage": 0, "chunk": 1, "layers": [2, 2], "embedding": False, "head": False},
    {"stage": 1, "chunk": 1, "layers": [3, 3], "embedding": False, "head": True},
]
ONE_STAGE = [{"stage": 0, "chunk": 0, "layers": [0, 3], "embedding": True, "head": True}]


@pytest.mark.parametrize(
    ("name", "mesh", "stages"),
    [
        ("whole sequence", MESH, None),
        ("zero 1", MESH, None),
        ("interleaved", MESH, INTERLEAVED_STAGES),
        ("gpipe, pp before dp", {"tp": 2, "pp": 2, "dp": 2}, None),
        ("as written", {"tp": 2, "dp": 1, "pp": 2}, None),
        ("as written", {"tp": 1, "dp": 2, "pp": 2}, None),
        ("zero 1", {"tp": 2, "dp": 2, "pp": 1}, ONE_STAGE),
    ],
    ids=["sequence-whole", "zero-1", "interleaved", "order", "dp-of-1", "tp-of-1", "pp-of-1"],
)
def test_other_layouts(single, variant, name, mesh, stages):
    folder = variant(name)
    fields = small(folder, mesh=mesh, clip=0.5)
    if stages:
        fields["stages"] = stages
    check(train(folder, fields), fields, single=single[0.5])


# ── The files as they are started ─────────────────────────────────────────────


@pytest.mark.slow
def test_both_train_on_text_in_bf16(tmp_path):
    """`main` on the same global batches: the losses agree as far as bf16 goes."""
    losses = {}
    for name, world in [("handwritten", 8), ("handwritten_single", 1)]:
        folder = tmp_path / name
        shutil.copytree(HERE / name, folder)
        fields = json.loads((folder / "plan.json").read_text())
        fields["steps"], fields["lr_schedule"]["warmup"], fields["batch"]["seq"] = 6, 2, 64
        fields["optimizer"]["lr"] = 3e-3
        (folder / "plan.json").write_text(json.dumps(fields))
        run_ranks(lambda rank, at=folder: run_file(at / "train.py"), world, timeout=120)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses[name] = [json.loads(line)["loss"] for line in lines]
    many, one = losses.values()
    assert len(many) == 6
    assert many == pytest.approx(one, rel=1e-3)
    assert one[-1] < one[0] - 0.5
