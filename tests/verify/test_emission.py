"""Emitted text: formatted, without unknown or unused names, only what the layout needs."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from parlay.compiler.ledger.time.trace import actions
from parlay.runtime import timeline, timeline_split

from .proving import MODEL, emitted, par

pytestmark = pytest.mark.slow

SEEDS = ("0", "1")
DEGREES = list(itertools.product((1, 2), repeat=3))


def cases() -> list[tuple[str, str]]:
    found = []
    for tp, pp, dp in DEGREES:
        for sequence in ("on", "off") if tp > 1 else ("off",):
            for precision in ("fp32", "bf16"):
                fields = f"tp = {tp}, pp = {pp}, dp = {dp}, sequence_parallel = {sequence}"
                text = par(fields, gpus=tp * pp * dp, train=f"precision = {precision}")
                found.append((f"tp{tp} sp-{sequence} pp{pp} dp{dp} {precision}", text))
    return found


CASES = dict(cases())

TIED = MODEL.replace("vocab", "tied_embeddings = on, vocab")

FEATURES = {
    "gpipe": par("pp = 2, schedule = gpipe", gpus=2),
    "chunks": par("pp = 2, dp = 2, schedule = interleaved(chunks = 2)", gpus=4),
    "chunks, tp": par("tp = 2, pp = 2, schedule = interleaved(chunks = 2)", gpus=4),
    "zero": par("dp = 2, zero = 1", gpus=2),
    "zero, tp": par("tp = 2, dp = 2, zero = 1", gpus=4, train="precision = bf16"),
    "zero, gpipe": par("pp = 2, dp = 2, zero = 1, schedule = gpipe", gpus=4),
    "zero, tp, chunks": par(
        "tp = 2, pp = 2, dp = 2, zero = 1, schedule = interleaved(chunks = 2)", gpus=8
    ),
    "zero without dp": par("tp = 2, zero = 1", gpus=2),
    "unclipped": par("tp = 2, pp = 2, dp = 2", gpus=8, train="clip = 0"),
    "again": par("tp = 2", gpus=2, train="recompute = full, lr_schedule = constant"),
    "again, first": par(train="recompute = full(first = 1), lr_schedule = linear"),
    "again, every": par("pp = 2", gpus=2, train="recompute = full(every = 2)"),
    "again, mlp": par("tp = 2", gpus=2, train="recompute = selective(mlp)"),
    "again, activation": par("tp = 2", gpus=2, train="recompute = selective(activation)"),
    "again, activation alone": par(train="recompute = selective(activation)"),
    "again, activation within": par(train="recompute = selective(activation, mlp)"),
    "again, math": par(train="attention = math, recompute = selective(core_attention, mlp)"),
    "math": par("tp = 2", gpus=2, train="attention = math, lr_schedule = wsd(decay = 2)"),
    "nothing to keep less": par(train="recompute = selective"),
    "held out": par(data="data { validation = 5% }"),
    "held out, tp": par("tp = 2", gpus=2, data="data { validation = 5% }"),
    "held out, pp": par("pp = 2, tp = 2, dp = 2", gpus=8, data="data { validation = 5% }"),
    "held out, chunks, saves": par(
        "pp = 2, schedule = interleaved(chunks = 2)",
        gpus=2,
        data="data { validation = 5% } checkpoint { every = 5 }",
    ),
    "ring": par("cp = 2", gpus=2),
    "ring, pp, saves": par(
        "cp = 2, pp = 2, tp = 2, dp = 2", gpus=16, data="checkpoint { every = 5 }"
    ),
    "gathered, zero": par("cp = 2, dp = 2, zero = 1, cp_method = allgather", gpus=4),
    "heads, math": par("cp = 2, cp_method = ulysses", gpus=2, train="attention = math"),
    "heads, rings": par("cp = 4, cp_method = ulysses_ring(inner = 2, outer = 2)", gpus=4),
    "halves": par("pp = 2, schedule = zero_bubble", gpus=2, model=TIED),
    "halves, tp": par("pp = 2, tp = 2, schedule = zero_bubble", gpus=4),
    "halves, V, held out, saves": par(
        "pp = 2, schedule = zbv",
        gpus=2,
        model=TIED,
        data="data { validation = 5% } checkpoint { every = 5 }",
    ),
    "halves, V, zero": par("pp = 2, dp = 2, zero = 1, schedule = dualpipe_v", gpus=4),
    "saves": par(data="checkpoint { every = 5 }"),
    "saves, tp": par("tp = 2", gpus=2, data='checkpoint { path = "saved", keep = 2 }'),
    "zero, saves": par("dp = 2, zero = 1", gpus=2, data="checkpoint { every = 5, async = on }"),
}
"""Layouts by what they have, for the words below."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, text in (CASES | FEATURES).items():
        folder = tmp_path_factory.mktemp("emitted")
        _, files = emitted(text, folder)
        if name in FEATURES:  # comments name the file, however long its name is
            _, files = emitted(text, folder, name="a-job-that-has-a-rather-long-name.par")
        for file, body in files.items():
            (folder / file).write_text(body)
        found[name] = folder
    return found


def ruff(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ruff", *arguments, "--isolated", "--line-length", "100"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_folder_is_formatted(folders: dict[str, Path]) -> None:
    done = ruff("format", "--check", *map(str, folders.values()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_name_is_unknown_or_unused(folders: dict[str, Path]) -> None:
    select = "F,E,W,B,UP"
    done = ruff("check", "--select", select, *map(str, folders.values()))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", CASES)
def test_only_what_the_layout_needs(name: str, folders: dict[str, Path]) -> None:
    folder = folders[name]
    train, model = (folder / "train.py").read_text(), (folder / "model.py").read_text()
    code = ast.unparse(ast.parse(train)) + ast.unparse(ast.parse(model))
    axes = {
        axis for axis, size in zip(("tp", "pp", "dp"), name_degrees(name), strict=True) if size > 1
    }
    for axis in ("tp", "pp", "dp"):
        assert (f"mesh.{axis}" in code) == (axis in axes), axis
    assert ("pipeline.run" in code) == ("pp" in axes)
    assert ("sum_whole" in code) == ("sp-on" in name)
    assert ("mesh.py" in {path.name for path in folder.iterdir()}) == bool(axes)
    assert ("dist." in code) == bool(axes)


WORDS = {
    "Chunks": "chunks V",
    "interleaved": "chunks",
    "gpipe": "gpipe",
    "ShardedGradients": "zero",
    "reduce_scatter": "zero",
    "all_gather": "zero",
    "mesh.world": "zero",
    "Checkpoints": "saves",
    "start": "saves",
    "recompute": "again",
    "head_tail": "ring rings gathered",
    "context.ring": "ring rings",
    "to_heads": "heads",
    "mesh.cp": "ring heads gathered",
    "MATH": "math",
    "timeline_split": "halves",
    "enumerate": "first every",
}
"""What stands in train.py and model.py for the sake of one of these."""


@pytest.mark.parametrize("word", WORDS)
def test_a_word_stands_where_it_is_needed(word: str, folders: dict[str, Path]) -> None:
    for name in FEATURES:
        files = [(folders[name] / file).read_text() for file in ("train.py", "model.py")]
        code = "".join(map(without_docstrings, files))
        found = set(name.split(", ")) & set(WORDS[word].split())
        assert (word in code) == bool(found), name


def name_degrees(name: str) -> tuple[int, int, int]:
    tp, _, pp, dp, _ = name.split()
    return int(tp[2:]), int(pp[2:]), int(dp[2:])


def test_the_same_text_every_time(tmp_path: Path) -> None:
    text = CASES["tp2 sp-on pp2 dp2 bf16"]
    path = tmp_path / "job.par"
    path.write_text(text)
    outputs = []
    for seed in SEEDS:
        out = tmp_path / seed
        command = [sys.executable, "-m", "parlay.compiler.cli", "compile", str(path)]
        subprocess.run(
            [*command, "--target", "torch", "-o", str(out)],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        )
        outputs.append({f.name: f.read_bytes() for f in (out / "torch").iterdir()})
    assert outputs[0] == outputs[1]


def test_sizes_stand_in_the_plan_alone(tmp_path: Path) -> None:
    """Another size of the same structure changes comments and plan.json, no code."""
    small = par("tp = 2, pp = 2, dp = 2", gpus=8)
    large = small.replace("hidden = 64", "hidden = 128").replace("ffn = 160", "ffn = 320")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, one = emitted(small, tmp_path / "a")
    _, two = emitted(large, tmp_path / "b")
    for file in ("train.py", "model.py", "mesh.py"):
        assert without_docstrings(one[file]) == without_docstrings(two[file])
    assert one["plan.json"] != two["plan.json"]


@pytest.mark.parametrize(
    "schedule",
    ["gpipe", "one_f_one_b", "interleaved(chunks = 2)", "zero_bubble", "zbv", "dualpipe_v"],
)
def test_the_list_that_is_priced_is_the_one_that_runs(schedule: str, tmp_path: Path) -> None:
    deep = MODEL.replace("layers = 4", "layers = 8")
    text = par(f"pp = 4, schedule = {schedule}", gpus=4, model=deep, global_batch=24)
    job, files = emitted(text, tmp_path)
    call = re.search(r"timeline=(timeline\w*\..+),$", files["train.py"], re.MULTILINE)
    assert call is not None
    names = {
        "timeline": timeline,
        "timeline_split": timeline_split,
        "mesh": SimpleNamespace(pp=SimpleNamespace(size=4)),
        "model": SimpleNamespace(stages=(None, None)),
        "plan": SimpleNamespace(batch=SimpleNamespace(microbatches=12)),
    }
    assert eval(call[1], names) == actions(job.phases[0].spec.parallel, 12)


def without_docstrings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[0] = ast.Expr(ast.Constant("…"))
    return ast.unparse(tree)
