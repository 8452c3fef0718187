"""What a layer costs, by which stages are made even: the weights that one token meets.

Counted from the published shapes of the checkpoints, in which norms are no products.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.layout.balance import head_flops, layer_flops

LLAMA = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
LATENT = 187_107_328 - 1536 - 512  # q_a, q_b, kv_a, kv_b and o without the norms of q_a and kv_a
BROAD = 3 * 7168 * 18432  # as wide as eight experts of 2,048 and a shared one


def model_of(name: str, folder: Path) -> Any:
    path = folder / "job.par"
    path.write_text(
        f'model from "{name}"\ncluster {{ nodes = 32  node from "dgx-h100" }}\n'
        "train { seq = 4096  micro_batch = 1  global_batch = 1024  steps = 1 }\n"
    )
    (phase,) = pipeline.load(path).phases
    return phase.spec.model


@pytest.mark.parametrize(
    ("name", "layer", "seq", "flops"),
    [
        ("llama3-8b", 0, None, 2 * LLAMA),
        ("llama3-8b", 31, 8192, 2 * LLAMA + 4 * 4096 * 4096),
        ("deepseek-v3", 0, None, 2 * (LATENT + BROAD)),
        ("deepseek-v3", 3, None, 2 * (LATENT + BROAD + 7168 * 256)),
        ("deepseek-v3", 3, 4096, 2 * (LATENT + BROAD + 7168 * 256 + 128 * 320 * 2048)),
    ],
)
def test_a_layer(name: str, layer: int, seq: int | None, flops: int, tmp_path: Path) -> None:
    assert layer_flops(model_of(name, tmp_path), layer, seq=seq) == flops


def test_the_head(tmp_path: Path) -> None:
    assert head_flops(model_of("llama3-8b", tmp_path)) == 2 * 4096 * 128_256
