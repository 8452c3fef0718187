"""Folders as templates would emit them for other layouts: the handwritten one, a little changed."""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent

WHOLE_SEQUENCE = {
    "model.py": [
        ("tensor.gather_column", "tensor.column"),
        ("tensor.row_scatter", "tensor.row"),
        ("tensor.embedding_scatter", "tensor.embedding"),
    ],
    "train.py": [
        ("plan.batch.seq // mesh.tp.size", "plan.batch.seq"),
        ("    job.gradients.sum_whole(axis=mesh.tp)\n", ""),
    ],
}
ZERO_1 = {
    "train.py": [
        ("import Gradients\n", "import ShardedGradients\n"),
        ("gradients: Gradients\n", "gradients: ShardedGradients\n"),
        ("device=mesh.device, cut=CUT)", "device=mesh.device, cut=CUT, multiple=mesh.dp.size)"),
        (
            "Gradients(weights, dtype=precision.dtype(plan.dtypes.gradients))",
            "ShardedGradients(\n"
            "        weights, dtype=precision.dtype(plan.dtypes.gradients), axis=mesh.dp\n"
            "    )",
        ),
        (
            "all_reduce(axis=mesh.dp, bucket=plan.buckets.gradients)",
            "reduce_scatter(axis=mesh.dp)",
        ),
        ("norm(over=job.mesh.tp_pp,", "norm(over=job.mesh.world,"),
        (
            "    job.gradients.clear()\n",
            "    job.optimizer.weights.all_gather(axis=job.mesh.dp)\n    job.gradients.clear()\n",
        ),
    ]
}
INTERLEAVED = {
    "train.py": [
        ("model: Stage\n", "model: Chunks\n"),
        (
            "from parlay.runtime.plan",
            "from parlay.runtime.pipeline import Chunks\nfrom parlay.runtime.plan",
        ),
        (
            "model = Stage(plan, mesh, stage=plan.stages[mesh.pp.rank])",
            "model = Chunks(\n            Stage(plan, mesh, stage=stage)\n"
            "            for stage in plan.stages\n"
            "            if stage.stage == mesh.pp.rank\n        )",
        ),
        ("stages=[job.model]", "stages=job.model.stages"),
        ("timeline.one_f_one_b(mesh.pp.size,", "timeline.interleaved(mesh.pp.size, 2,"),
    ]
}
PP_BEFORE_DP = {"mesh.py": [('ORDER = ("tp", "dp", "pp")', 'ORDER = ("tp", "pp", "dp")')]}
GPIPE = {"train.py": [("timeline.one_f_one_b", "timeline.gpipe")]}

CHANGES = {
    "as written": {},
    "whole sequence": WHOLE_SEQUENCE,
    "zero 1": ZERO_1,
    "interleaved": INTERLEAVED,
    "gpipe, pp before dp": GPIPE | PP_BEFORE_DP,
}


@pytest.fixture
def variant(tmp_path):
    """`variant(name)`: a folder with the changes of that name."""

    def made(name):
        folder = tmp_path / "variant"
        shutil.copytree(HERE / "handwritten", folder)
        for file, replacements in CHANGES[name].items():
            text = (folder / file).read_text()
            for old, new in replacements:
                assert old in text, f"{file} has no {old!r}"
                text = text.replace(old, new)
            (folder / file).write_text(text)
        return folder

    return made
