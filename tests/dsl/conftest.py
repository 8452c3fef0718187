"""A file as it is meant to be written, for tests that break or reshape it."""

from __future__ import annotations

import pytest

SAMPLE = """\
# 70B on eight DGX nodes: each pipeline stage fills one node.
let tokens_per_sequence = 8Ki

model from "llama3-70b"

cluster {
  nodes = 8
  node from "dgx-h100"
  fabric { kind = infiniband, oversubscription = 1.0 }
}

parallel {
  tp = 8
  sequence_parallel = on
  pp = 4
  schedule = interleaved(chunks = 2)
  cp = 1
  dp = auto                      # 64 / (8 * 4 * 1) = 2
  zero = 1
  order = [tp, cp, pp, dp]       # fastest-varying first
}

train {
  seq = tokens_per_sequence
  micro_batch = 1
  global_batch = 1024
  precision = bf16
  recompute = selective
  optimizer = adamw(lr = 3e-4, betas = [0.9, 0.95], weight_decay = 0.1)
  lr_schedule = cosine(warmup = 2000, min_lr = 3e-5)
  tokens = 1T
}

assert memory.peak <= 90% * gpu.memory
assert pipeline.bubble < 10%

phase "long context" {
  cluster { nodes = 32 }
  parallel { cp = 4, dp = auto }   # 256 / (8 * 4 * 4) = 2
  train { seq = 32Ki, tokens = 80B }
}
"""


@pytest.fixture
def sample() -> str:
    """Without a mistake, with every kind of statement but `import` and `allow`."""
    return SAMPLE
