"""What one step sends, counted, against the table of docs/emitted.md worked out by hand."""

import json
import math
import sys

import pytest
import torch
from parlay.runtime.axes import Grid
from parlay.runtime.count import Counter, named_groups
from parlay.runtime.local import run_ranks
from parlay.runtime.plan import Plan

pytestmark = pytest.mark.distributed

B, S, H, MICROBATCHES, LAYERS, BUCKET = 2, 16, 64, 4, 2, 10_000
MESH = {"tp": 2, "dp": 2, "pp": 2}
E = 8  # bytes of an element: everything is float64
X = B * S * H * E


def counted(folder):
    """By rank, `{(group, collective): (calls, bytes)}` of one step."""
    fields = json.loads((folder / "plan.json").read_text())
    fields["dtypes"] = dict.fromkeys(fields["dtypes"], "float64")
    fields["batch"]["seq"], fields["buckets"]["gradients"] = S, BUCKET

    def target(rank):
        sys.path.insert(0, str(folder))
        import train

        job = train.build(Plan.of(fields))
        with Counter(named_groups(Grid.of(MESH, order=tuple(MESH)))) as counter:
            train.backward(job, [(torch.zeros(B, S, dtype=torch.int64),) * 2] * MICROBATCHES)
            train.update(job, 0)
        found = {}
        for row in counter.rows():
            calls, sent = found.get((row["group"], row["collective"]), (0, 0))
            found[row["group"], row["collective"]] = calls + row["calls"], sent + row["bytes"]
        return found

    return run_ranks(target, 8, timeout=60)


def of_stage(last):
    """Whole weights and all weights of a stage, in elements; 258 rows of vocabulary over tp."""
    whole = (2 * LAYERS + last) * H
    layer = (64 * 64 * 2 + 32 * 64 * 2 + 3 * 172 * 64) // 2
    return whole, whole + LAYERS * layer + 129 * H


def messages(last, *, size):
    """Between the two stages: an activation forward, its gradient backward."""
    each = MICROBATCHES, MICROBATCHES * size
    return {("pp", "send"): each, ("pp", "recv"): each}


def tp_all_reduce(*, tensors, last, once=0):
    """`tensors` of [b, s, h] a microbatch, on the last stage those of the loss too."""
    calls, sent = MICROBATCHES * tensors, MICROBATCHES * tensors * X
    if last:
        calls, sent = calls + 2 * MICROBATCHES, sent + 3 * MICROBATCHES * B * S * E
    return calls + (once > 0), sent + once * E


def loss_and_labels(last):
    return (2, 16) if last else (0, 0)


def sequence(last):
    whole, every = of_stage(last)
    gathers = MICROBATCHES * (6 * LAYERS + (2 if last else 1))
    scatters = MICROBATCHES * (4 * LAYERS + 1)
    calls, sent = loss_and_labels(last)
    return messages(last, size=X // 2) | {
        ("tp", "all_gather"): (gathers, gathers * X),
        ("tp", "reduce_scatter"): (scatters, scatters * X),
        ("tp", "all_reduce"): tp_all_reduce(tensors=0, last=last, once=whole),
        ("dp", "all_reduce"): (calls + math.ceil(every / BUCKET), sent + every * E),
        ("tp_pp", "all_reduce"): (1, E),
    }


def whole_sequence(last):
    _, every = of_stage(last)
    calls, sent = loss_and_labels(last)
    return messages(last, size=X) | {
        ("tp", "all_reduce"): tp_all_reduce(tensors=4 * LAYERS + 1, last=last),
        ("dp", "all_reduce"): (calls + math.ceil(every / BUCKET), sent + every * E),
        ("tp_pp", "all_reduce"): (1, E),
    }


def zero_1(last):
    _, every = of_stage(last)
    padded = every + every % 2
    expected = sequence(last) | {
        ("dp", "reduce_scatter"): (1, padded * E),
        ("dp", "all_gather"): (1, padded * E),
        ("tp_dp_pp", "all_reduce"): (1, E),
        ("dp", "all_reduce"): loss_and_labels(last),
    }
    del expected["tp_pp", "all_reduce"]
    return {key: amount for key, amount in expected.items() if amount != (0, 0)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("as written", sequence), ("whole sequence", whole_sequence), ("zero 1", zero_1)],
)
def test_a_step_sends_what_the_contract_says(variant, name, expected):
    for rank, found in enumerate(counted(variant(name))):
        assert found == expected(rank >= 4), f"rank {rank}"
