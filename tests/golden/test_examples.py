"""The examples check clean, and what they compile to is kept beside them.

`PARLAY_UPDATE=1 pytest tests/golden` writes the folders anew; the change is then read in a diff.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends import STARTS_OTHERS, TARGETS, refusals
from parlay.compiler.backends.slurm.options import ENTRIES
from parlay.compiler.output import MANIFEST

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.par"))
PROVED = (
    *("tiny", "gpt2-xl-8gpu", "llama-70b-64gpu", "llama-405b", "llama3-1b-long"),
    *("tiny-moe", "mixtral-8x22b", "qwen3-235b-a22b"),
    *("deepseek-v2-lite", "gpt-oss-20b", "llama3-70b-lora", "llama3-8b-lora", "gemma3-12b"),
    "qwen3-30b-dualpipe",
)
"""The examples that the torch target must express."""


def name_of(path: Path) -> str:
    return path.parent.name


def expressible(job: pipeline.Job, target: str) -> bool:
    told = [said for phase in job.phases for said in refusals(target, phase)]
    return not any(said.severity == "error" for said in told)


def compiled(path: Path) -> dict[str, str]:
    """Every file of every target that can express the example."""
    job = pipeline.check(path)
    assert not job.errors
    files: dict[str, str] = {}
    asked = [target for target in TARGETS if expressible(job, target)]
    assert "torch" in asked or name_of(path) not in PROVED
    # A batch script and a TrainJob are made for the code beside them.
    asked += [each for each in STARTS_OTHERS if each not in asked and {*asked} & {*ENTRIES}]
    for target in asked:
        emission = pipeline.emit(job, target, asked)
        assert emission.files, [said.message for said in emission.diagnostics]
        files |= emission.files
    return files


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_checks_clean(path: Path) -> None:
    job = pipeline.check(path)
    told = [f"{said.code} {said.message}" for said in job.diagnostics if said.severity != "note"]
    assert told == []


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_compiles_to_what_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    files = compiled(Path(path.name))
    kept = path.parent / "compiled"
    if os.environ.get("PARLAY_UPDATE"):
        shutil.rmtree(kept, ignore_errors=True)
        for name, text in files.items():
            target = kept / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(0o755 if target.suffix == ".sh" else 0o644)
    there = {
        str(file.relative_to(kept)): file.read_text()
        for file in kept.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.name != MANIFEST
    }
    assert sorted(there) == sorted(files)
    for name, text in files.items():
        assert there[name] == text, name


def targets_of(name: str) -> str:
    kept = (ROOT / "examples" / name / "compiled").rglob("*")
    found = sorted({file.parent.name for file in kept if file.is_file() and file.name != MANIFEST})
    return ", ".join(found) or "no target yet"


def test_the_list_names_every_example_and_its_targets() -> None:
    page = ROOT / "examples" / "README.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| [")]
    cells = {row.split("[")[1].split("]")[0]: row.rsplit("|", 2)[1].strip() for row in rows}
    folders = sorted(name_of(path) for path in EXAMPLES)
    assert sorted(cells) == folders
    wanted = {name: targets_of(name) for name in folders}
    if os.environ.get("PARLAY_UPDATE"):
        text = page.read_text()
        for row, name in zip(rows, cells, strict=True):
            text = text.replace(row, f"{row.rsplit('|', 2)[0]}| {wanted[name]} |")
        page.write_text(text)
    else:
        assert cells == wanted


def test_kept_python_is_formatted() -> None:
    folders = [str(kept) for path in EXAMPLES if (kept := path.parent / "compiled").is_dir()]
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated"]
    done = subprocess.run(
        [*command, "--line-length", "100", *folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_405b_has_the_published_degrees() -> None:
    """arXiv:2407.21783, table 4: 8,192 GPUs, tp 8, cp 1, pp 16, dp 64; 126 layers."""
    plan = json.loads((ROOT / "examples/llama-405b/compiled/torch/plan.json").read_text())
    assert plan["mesh"] == {"tp": 8, "pp": 16, "dp": 64}
    layers = [last - first + 1 for first, last in (stage["layers"] for stage in plan["stages"])]
    assert sum(layers) == 126
    assert (layers[0], layers[-1]) == (7, 7)


PUBLISHED = {
    # arXiv:2407.21783, table 4: three rows, 16M tokens a step in each.
    "llama-405b-phases": [
        ("main", 8192, {"tp": 8, "cp": 1, "pp": 16, "dp": 64}, 8192),
        ("wide", 16384, {"tp": 8, "cp": 1, "pp": 16, "dp": 128}, 8192),
        ("long", 16384, {"tp": 8, "cp": 16, "pp": 16, "dp": 8}, 131072),
    ],
    # Nemotron 3 Super, technical report, section 2.6.
    "long-context-moe": [("main", 512, {"tp": 2, "cp": 64, "ep": 64}, 1048576)],
    # arXiv:2408.00118, table 3: 6,144 chips, 768 replicas of 8.
    "gemma2-27b": [("main", 6144, {"tp": 8, "dp": 768, "zero": 3}, 8192)],
    # arXiv:2402.00838: FSDP, sequences of 2,048.
    "olmo-7b": [("main", 256, {"dp": 256, "zero": 3}, 2048)],
    # arXiv:2412.19437, section 3.1.
    "deepseek-v3": [("main", 2048, {"tp": 1, "pp": 16, "ep": 64, "zero": 1}, 4096)],
}
"""Phase, GPUs, degrees and sequence, as their sources tell them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_has_the_published_layout(name: str) -> None:
    job = pipeline.check(next(path for path in EXAMPLES if name_of(path) == name))
    found = []
    for phase, (_, _, degrees, _) in zip(job.phases, PUBLISHED[name], strict=True):
        spec = phase.spec
        assert spec.cluster is not None and spec.train is not None
        gpus = spec.cluster.nodes * spec.cluster.node.gpus
        held = {degree: getattr(spec.parallel, degree) for degree in degrees}
        found.append((phase.name, gpus, held, spec.train.seq))
        if name == "llama-405b-phases":
            assert spec.train.global_batch * spec.train.seq == 2**24
    assert found == PUBLISHED[name]
