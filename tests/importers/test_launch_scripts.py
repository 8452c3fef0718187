"""Ten public launch scripts of known models, written down as arguments: each imports and checks.

Those of Megatron-LM stand in tests/backends/megatron/scripts, the others beside this file; each
names its source.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.importers import deepspeed, megatron, torchtitan

HERE = Path(__file__).parent
MEGATRON = HERE.parent / "backends/megatron/scripts"

# Script -> its reader, its degrees (tp, pp, cp, ep, dp, zero) on so many GPUs.
SCRIPTS: dict[str, tuple[Any, dict[str, Any], tuple[int, ...], int]] = {
    "gpt3-175b.sh": (megatron, {}, (8, 16, 1, 1, 1, 0), 128),
    "llama3-8b-fp8.sh": (megatron, {"node": "dgx-h200"}, (1, 1, 1, 1, 8, 1), 8),
    "mixtral-8x7b.sh": (megatron, {}, (1, 4, 1, 8, 16, 1), 64),
    "mixtral-8x22b.txt": (megatron, {}, (2, 8, 1, 8, 8, 1), 128),
    "nemotron4-15b.txt": (megatron, {}, (8, 1, 1, 1, 1, 1), 8),
    "qwen3-30b-a3b.txt": (megatron, {}, (2, 1, 1, 8, 4, 1), 8),
    "deepseek-v3.txt": (megatron, {}, (), 0),
    "sc21-145b.sh": (megatron, {}, (8, 8, 1, 1, 24, 0), 1536),
    "bloom-176b.sh": (deepspeed, {"node": "dgx-a100"}, (4, 12, 1, 1, 8, 1), 384),
    "llama3-405b.txt": (torchtitan, {"gpus": 512}, (8, 1, 1, 1, 64, 3), 512),
}


def place(name: str) -> Path:
    own = HERE / "scripts" / name
    return own if own.exists() else MEGATRON / name


def test_there_are_ten() -> None:
    assert len(SCRIPTS) == 10
    assert all("http" in text or "publish" in text for text in map(head, SCRIPTS))
    found = {path.name for path in (HERE / "scripts").iterdir()}
    assert found | {path.name for path in MEGATRON.iterdir()} == set(SCRIPTS)


def head(name: str) -> str:
    return place(name).read_text()[:600]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_published_script_imports_and_checks(name: str, tmp_path: Path) -> None:
    module, given, degrees, gpus = SCRIPTS[name]
    read: Callable[..., Any] = module.read
    out = tmp_path / "job.par"
    out.write_text(read(place(name), **given).text)
    job = pipeline.check(out)
    assert [said.message for said in job.errors] == []
    spec = job.phases[0].spec
    assert spec.model is not None and spec.cluster is not None and spec.train is not None
    if degrees:
        p = spec.parallel
        assert (p.tp, p.pp, p.cp, p.ep, p.dp, p.zero) == degrees
        assert spec.cluster.gpus == gpus


def test_bloom_is_dealt_out_as_it_was() -> None:
    """Embedding and head count as a layer each: 5 layers on the first and the last stage."""
    text = deepspeed.read(place("bloom-176b.sh"), node="dgx-a100").text
    stages = ", ".join(["5", *["6"] * 10, "5"])
    for said in (
        f"stages = [{stages}]",
        "position = alibi",
        "embedding_norm = on",
        "micro_batch = 2",
        "global_batch = 2048",
        "lr = 6e-05",
        "recompute = full",
        "#   --rampup-batch-size 192 16 9_765_625",
    ):
        assert said in text, said
