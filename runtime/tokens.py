"""A small data set for proofs: random tokens, of which some windows have few labels and some none.

What is averaged over ranks or microbatches instead of over labels comes out wrong on it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from parlay.runtime.order import mixed

SHARES = (0.0, 0.5, 0.1, 1.0, 0.25, 0.9, 0.0, 0.4)
"""The share of labels that are padding, window after window."""


def write_tokens(path: Path, *, vocab: int, seq: int, windows: int) -> None:
    """Write `windows` windows of `seq` tokens to `path` as uint16 or uint32, with its sidecar.

    The last token of the vocabulary is the padding, the one before it ends documents. The same
    arguments give the same bytes, everywhere.
    """
    pad, end = vocab - 1, vocab - 2
    tokens = [mixed(1) % end]
    for position in range(windows * seq):
        # Label j of window w is token w * seq + j + 1 of the stream.
        window, j = divmod(position, seq)
        drawn = mixed(mixed(position))
        padded = drawn % 1000 < 1000 * SHARES[window % len(SHARES)]
        closes = (j + 1) % 29 == 0
        tokens.append(pad if padded else end if closes else (drawn // 1000) % end)
    dtype = "uint16" if vocab <= 1 << 16 else "uint32"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.array(tokens).astype(np.dtype(dtype).newbyteorder("<")).tofile(path)
    facts = {"dtype": dtype, "vocab": vocab, "end": end, "pad": pad}
    path.with_suffix(".json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
