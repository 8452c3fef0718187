"""What holds for every file: printing and parsing, and changes that change nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from parlay.compiler import checks, pipeline
from parlay.dsl.diagnostics import Severity
from parlay.dsl.equal import same_tree
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

pytestmark = pytest.mark.slow


def module_of(path: Path) -> Any:
    """A helper of the tests, which are no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


trees = module_of(Path(__file__).with_name("trees.py"))
generated = module_of(Path(__file__).parents[1] / "backends" / "generated.py")
CHANCE = st.randoms(use_true_random=False)

RELAXED = settings(
    max_examples=settings.default.max_examples,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
PATH = Path("/nowhere/run.par")
PART = Path("/nowhere/part.par")

JOBS = (
    """let tokens_per_sequence = 8Ki
let batch = 1024
model from "llama3-70b"
cluster { nodes = 8, node from "dgx-h100", fabric { kind = roce, oversubscription = 1.5 } }
parallel { tp = 8, pp = 4, schedule = interleaved(chunks = 2), dp = auto, zero = 1 }
train {
  seq = tokens_per_sequence
  micro_batch = 1
  global_batch = batch
  optimizer = adamw(lr = 3e-4, betas = [0.9, 0.95], weight_decay = 0.1)
  recompute = selective(core_attention, mlp)
  tokens = 1.5T
}
budget { memory = 95%, reserve = 1GiB }
assert memory.peak <= 90% * gpu.memory
phase "long context" {
  cluster { nodes = 32 }
  parallel { cp = 4 }
  train { seq = 4 * tokens_per_sequence }
}
""",
    """let width = 512
let half = width // 2
model small {
  layers = 8
  hidden = 2 * width
  heads = 8
  kv_heads = 4
  ffn = min(4 * width, 1376 * 2)
  vocab = 32k
  rope(theta = 500k, partial = 50%)
  window(size = half, every = 2)
}
cluster {
  nodes = 2
  node {
    gpus = 8
    gpu { memory = 80GB, bandwidth = 3.35TB/s, bf16 = 989TFLOP/s, price = 2.5$/h }
    link { kind = nvswitch, bandwidth = 450GB/s, latency = 2us }
    nic { count = 8, bandwidth = 400Gb/s }
  }
  reliability { gpu_mtbf = 50000h, restart = 10min }
}
parallel { tp = 2, dp = auto, order = [tp, dp, pp, cp] }
train { seq = 2 * half * 4, micro_batch = 2, global_batch = 64 }
target "megatron" { version = "0.19", options { moe_token_dispatcher_type = flex } }
""",
    """model from "mixtral-8x7b"
cluster { nodes = 4, node from "dgx-h100" }
parallel { pp = 2, ep = 8, dp = auto, zero = 1, offload = cpu(optimizer) }
train { seq = 4Ki, micro_batch = 1, global_batch = 512, precision = bf16, master = fp32 }
""",
)


DRAWN = CHANCE.map(generated.job)
"""Jobs from a hat, legal or not."""


def tree_of(text: str) -> Any:
    tree, told = parse(Source("run.par", text))
    assert told == ()
    return tree


def job_of(text: str, part: str = "") -> pipeline.Job:
    return pipeline.load(PATH, {PATH: text, PART: part})


def meaning(job: pipeline.Job) -> Any:
    return [(each.name, each.spec, each.open, each.targets, each.model_name) for each in job.phases]


def said(job: pipeline.Job) -> Counter[Any]:
    told = pipeline.checked(job).diagnostics
    return Counter((one.code, one.severity, one.message) for one in told)


# ── Printing and parsing ──────────────────────────────────────────────────────


@RELAXED
@given(trees.files)
def test_a_printed_tree_is_parsed_to_itself(tree: Any) -> None:
    source = Source("run.par", trees.text_of(tree))
    read, told = parse(source)
    assert not any(one.severity is Severity.ERROR for one in told)
    assert same_tree(read.statements, tree.statements)
    again = Source("run.par", format(read, source))
    second, told = parse(again)
    assert not any(one.severity is Severity.ERROR for one in told)
    assert same_tree(second.statements, tree.statements)
    assert format(second, again) == again.text


# ── Files that say the same ───────────────────────────────────────────────────


@pytest.mark.parametrize("text", JOBS)
def test_the_jobs_are_accepted(text: str) -> None:
    job = pipeline.checked(job_of(text))
    assert job.errors == ()
    assert meaning(job_of(trees.text_of(tree_of(text)))) == meaning(job)


@RELAXED
@given(
    text=st.one_of(st.sampled_from(JOBS), DRAWN),
    changes=st.sets(st.sampled_from(("rename", "reorder", "split", "convert")), min_size=1),
    chance=CHANCE,
)
def test_the_same_spec_after_changes(text: str, changes: set[str], chance: Random) -> None:
    tree, part = tree_of(text), None
    if "rename" in changes:
        tree = trees.renamed_lets(tree)
    if "convert" in changes:
        tree = trees.converted(tree, chance)
    if "reorder" in changes:
        tree = trees.reordered(tree, chance)
    if "split" in changes:
        tree, part = trees.split(tree, chance)
    job = job_of(trees.text_of(tree), trees.text_of(part) if part else "")
    assert [one for one in job.errors if one.code != "P007"] == []
    assert meaning(job) == meaning(job_of(text))


# ── More memory ───────────────────────────────────────────────────────────────


@RELAXED
@given(
    model=st.sampled_from(("llama3-8b", "llama3-70b", "mixtral-8x7b", "gpt2-xl")),
    tp=st.sampled_from((1, 2, 4, 8)),
    pp=st.sampled_from((1, 2, 4, 8)),
    zero=st.integers(0, 3),
    memory=st.integers(1, 400),
    more=st.integers(1, 1000),
)
def test_more_memory_never_makes_a_legal_layout_illegal(
    model: str, tp: int, pp: int, zero: int, memory: int, more: int
) -> None:
    text = f"""model from "{model}"
cluster {{ nodes = 8 node from "dgx-h100" {{ gpu {{ memory = {{}}GB }} }} }}
parallel {{ tp = {tp}, pp = {pp}, dp = auto, zero = {zero} }}
train {{ seq = 1024, micro_batch = 1, global_batch = 512, recompute = full }}
"""
    assume(not pipeline.checked(job_of(text.replace("{}", str(memory)))).errors)
    larger = pipeline.checked(job_of(text.replace("{}", str(memory + more))))
    assert larger.errors == ()


@RELAXED
@given(text=DRAWN, memory=st.integers(1, 400), more=st.integers(1, 1000))
def test_more_memory_for_any_job(text: str, memory: int, more: int) -> None:
    def errors(size: int) -> set[str]:
        changed = re.sub(r'(node from "[^"]*")', rf"\1 {{ gpu {{ memory = {size}GB }} }}", text)
        assert changed != text
        found = {one.code for one in pipeline.checked(job_of(changed)).errors}
        # A state that does not fit is told in place of the peak, which is more.
        return {"M204" if code == "M201" else code for code in found}

    assert errors(memory + more) <= errors(memory)


# ── Diagnostics ───────────────────────────────────────────────────────────────


def examples() -> list[str]:
    pages = [checks.page(code) for code in checks.codes()]
    return [page.example for page in pages if page is not None]


@RELAXED
@given(text=st.one_of(st.sampled_from(examples()), DRAWN), chance=CHANCE)
def test_diagnostics_do_not_depend_on_the_order_of_fields(text: str, chance: Random) -> None:
    tree = tree_of(text)
    other = trees.text_of(trees.reordered(tree, chance))
    assert said(job_of(other)) == said(job_of(trees.text_of(tree)))


def test_diagnostics_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    paths = []
    broken = [
        JOBS[0].replace("tp = 8", "tp = 6, tq = 3, tr = 4"),
        JOBS[1].replace("width", "wdth", 1),
    ]
    for number, text in enumerate([*examples()[:30], *broken]):
        paths.append(tmp_path / f"{number:02}.par")
        paths[-1].write_text(text)
    outputs = set()
    for seed in ("0", "1", "77", "4242"):
        ended = subprocess.run(
            [sys.executable, "-m", "parlay.compiler.cli", "check", "--json", *map(str, paths)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert json.loads(ended.stdout)["summary"]["errors"] > 20
        outputs.add(ended.stdout)
    assert len(outputs) == 1
