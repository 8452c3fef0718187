"""How fast a row ran: as printed, or from FLOP/s where the row says how they are counted."""

from __future__ import annotations

from parlay.compiler.ledger import flops
from parlay.compiler.spec.blocks import Spec
from stacks import Row, stack_of

COUNTED = ("tflops_per_gpu", "mfu_pct", "hfu_pct")
"""Columns that a speed follows from, the first that is filled before the others."""
CAUSAL = ("bridge", "automodel")
"""Stacks that count attention over the causal half; all others count the full square."""


def speed(row: Row) -> float:
    """Tokens/s a GPU, from the step time where that is printed; 0 where no speed is."""
    if row["step_time_s"] and row["global_batch_seqs"] and row["seq"] and row["gpus"]:
        tokens = float(row["global_batch_seqs"]) * float(row["seq"])
        return tokens / float(row["step_time_s"]) / float(row["gpus"])
    return float(row["tokens_per_s_per_gpu"] or 0)


def from_flops(row: Row, spec: Spec) -> float:
    """Tokens/s a GPU from TFLOP/s, MFU or HFU, by the row's count of FLOPs a token.

    Hardware FLOPs count the layers' forward twice under full recompute, the head once
    (Narayanan et al. 2021, eq. 3: 96·B·s·l·h²·(1 + s/6h + V/16lh)).
    """
    column = next((name for name in COUNTED if row[name]), None)
    if column is None:
        return 0.0
    model, train, cluster = spec.model, spec.train, spec.cluster
    assert model is not None and train is not None and cluster is not None
    rate = float(row[column]) * 1e12
    if column != "tflops_per_gpu":
        peak = float(row["peak_flops_used_tflops"] or 0) * 1e12
        peak = peak or flops.peak(cluster.node.gpu, train.precision) or 0.0
        rate = float(row[column]) / 100 * peak
    causal = stack_of(row).partition("-")[0] in CAUSAL
    per_token = flops.per_token(spec, causal=causal)
    hardware = column == "hfu_pct" or "hardware" in row["notes"].lower()
    if hardware and train.recompute.name == "full":
        head = 6 * model.hidden * model.vocab
        per_token += (per_token - head) / 3
    return rate / per_token
