"""What frozen matrices keep in Transformer Engine's linears, tensor by tensor."""

from __future__ import annotations

import pytest
from parlay.compiler.ledger.memory.layer import layer
from parlay.compiler.ledger.memory.sizes import sizes_of

from .jobs import job

TEXT = """
model from "{model}"
cluster {{ nodes = 1  node from "dgx-h100" }}
parallel {{ tp = 2  sequence_parallel = {cut} }}
train {{ seq = 4096  micro_batch = 1  global_batch = 16  steps = 1  precision = {precision}
  stack = "{stack}"  lora = lora(rank = 16) }}
"""
T, H, KV, F = 4096, 4096, 1024, 14336
"""Tokens; Llama 3 8B's widths."""


def saved(experts: bool = False, **words: str) -> dict[str, int]:
    usual = {"model": "llama3-8b", "cut": "on", "precision": "bf16", "stack": "nemo-24"}
    spec, _ = job(TEXT.format(**(usual | words)))
    return {row.name: row.value_bytes for row in layer(sizes_of(spec), experts=experts)}


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(("cut", "ranks"), [("on", 2), ("off", 1)])
def test_adapters_keep_their_inputs_whole_and_at_16_bits(
    cut: str, ranks: int, precision: str
) -> None:
    found = saved(cut=cut, precision=precision)
    norms = 2 * 2 * T * H // ranks  # what two norms read
    inputs = 2 * 2 * T * H  # of both column sides, gathered
    attention = 2 * T * (H + 2 * KV) // 2 + 2 * T * H // 2
    mlp = 3 * 2 * T * F // 2  # gate, up, and their product for the last adapter
    features = 2 * T * 4 * 16
    assert sum(found.values()) == norms + inputs + attention + mlp + features


def test_adapters_of_queries_keys_and_values_alone() -> None:
    """The MLP keeps what its activation reads, and nothing for a matrix."""
    found = saved(stack="nemo-24-lora")
    norms, attention = 2 * 2 * T * H // 2, 2 * T * (H + 2 * KV) // 2 + 2 * T * H // 2
    assert sum(found.values()) == norms + 2 * T * H + attention + 2 * T * F + 2 * T * 2 * 16


def test_routed_experts_keep_no_input() -> None:
    """Mixtral: neither the tokens they get nor the product that their last matrix reads."""
    found = saved(experts=True, model="mixtral-8x7b")
    assert "tokens dispatched to experts" not in found and "expert activation" not in found
    assert found["expert activation input"] == 2 * 2 * (T // 2) * 2 * F
    ours = saved(experts=True, model="mixtral-8x7b", stack="parlay")
    assert "tokens dispatched to experts" not in ours
    assert ours["expert activation"] == 2 * (T // 2) * 2 * F  # what the gate's function made
