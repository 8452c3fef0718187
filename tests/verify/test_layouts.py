"""Every axis, alone and together, computes what one process does and sends what was predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .proving import par, prove

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LAYOUTS = {
    "one process": par(),
    "dp": par("dp = 2", gpus=2),
    "tp": par("tp = 2, sequence_parallel = off", gpus=2),
    "tp with sequence parallelism": par("tp = 2", gpus=2),
    "pp": par("pp = 2", gpus=2),
    "pp 4, fewer microbatches than stages": par("pp = 4", gpus=4, global_batch=6),
    "tp 4, bf16 over fp32 masters": par("tp = 4", gpus=4, train="precision = bf16"),
    "tp, dp": par("tp = 2, sequence_parallel = off, dp = 2", gpus=4, train="precision = bf16"),
    "tp, pp, dp in order": par("tp = 2, pp = 2, dp = 2, order = [tp, pp, dp]", gpus=8),
    "tp, dp, pp": par("tp = 2, pp = 2, dp = 2, order = [tp, dp, pp]", gpus=8),
    "dp, pp, tp": par(
        "tp = 2, sequence_parallel = off, pp = 2, dp = 2, order = [dp, pp, tp]", gpus=8
    ),
    "no clipping": par("tp = 2, pp = 2", gpus=4, train="clip = 0"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    result = prove(LAYOUTS[name], tmp_path)
    assert result["passed"], result["failures"]
    assert result["loss"]["compared"] > 0 and result["loss"]["max_relative_error"] <= 1e-10
    assert result["gradients"]["max_relative_error"] <= 1e-10
    assert result["weights"]["max_relative_error"] <= 1e-10
    assert result["collectives"]["match"]
