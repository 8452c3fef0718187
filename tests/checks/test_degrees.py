"""Whether there is a layout: product, order, experts, shards and stages, one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.compiler.checks import (
    Subject,
    degrees,
)

Job = Callable[..., str]
Read = Callable[[str], Subject]
MOE = 'from "mixtral-8x7b"'
NO_FFN = 'from "llama3-8b" { ffn = "x" }'
FAR = "order = [tp, pp, cp, dp]"


@pytest.mark.parametrize(
    ("blocks", "holds"),
    [
        ({"parallel": "{ tp = 8 }"}, True),
        ({"parallel": "{ tp = 8, dp = 8 }"}, True),
        ({"parallel": "{ tp = 8, dp = 4 }"}, False),
        ({"parallel": "{ tp = 8, dp = 16 }"}, False),
        ({"parallel": "{ tp = auto }"}, False),
        ({"parallel": "{ tp = 8, order = [tp, tp, dp] }"}, False),
        ({"parallel": "{ tp = 8, order = [dp] }"}, False),
        ({"parallel": "{ tp = 8, order = [tp, dp] }"}, True),
        ({"parallel": "{ zero = 3, shard = 24 }"}, False),
        ({"parallel": "{ zero = 3, shard = 16 }"}, True),
        ({"parallel": "{ pp = 3 }", "cluster": '{ nodes = 3, node from "dgx-h100" }'}, False),
        ({"parallel": "{ tp = 8, pp = 2, stages = [16, 16] }"}, True),
        ({"parallel": "{ tp = 8, pp = 2, stages = [16, 15] }"}, False),
        ({"parallel": "{ tp = 8, pp = 2, stages = [16, 17] }"}, False),
        ({"parallel": "{ tp = 8, pp = 2, stages = [32] }"}, False),
        ({"parallel": "{ tp = 8, pp = 2, stages = [32, 0] }"}, False),
        ({"parallel": "{ tp = 8, pp = 2, stages = [31, 1] }"}, True),
        ({"parallel": '{ tp = 8, pp = 2, stages = "x" }'}, False),
        ({"parallel": "{ pp = 32, stages = auto }"}, True),
        ({"parallel": "{ pp = 64, stages = auto }"}, False),
        ({"model": NO_FFN, "parallel": "{ pp = 2, stages = auto }"}, False),
        ({"model": NO_FFN, "parallel": "{ pp = 2 }"}, True),
        ({"model": "{ params = 7B }", "parallel": "{ pp = 64 }"}, True),
        ({"model": MOE, "parallel": "{ ep = 8, zero = 1 }"}, True),
        ({"model": MOE, "parallel": "{ ep = 3, zero = 1 }"}, False),
        ({"model": MOE, "parallel": "{ etp = 3, zero = 1 }"}, False),
        ({"model": MOE, "parallel": f"{{ tp = 2, cp = 2, pp = 4, ep = 8, {FAR} }}"}, False),
        ({"parallel": "{ ep = 3 }"}, False),
        ({"parallel": "{ etp = 3 }"}, False),
        ({"cluster": "{ nodes = auto, node from \"dgx-h100\" }"}, False),
        ({"cluster": "{ nodes = 8, node { gpus = \"x\" } }"}, False),
        ({"cluster": '{ nodes = 8, node from "dgx-h100" { link { domain = "x" } } }'}, False),
        ({"cluster": "{ nodes = 1, node { gpus = 8 } }"}, True),
        ({"cluster": "{ nodes = 1 }"}, False),
    ],
)  # fmt: skip
def test_degrees_hold(blocks: dict[str, str], holds: bool, job: Job, subject: Read) -> None:
    assert degrees.degrees_hold(subject(job(**blocks))) is holds


def test_no_cluster_no_layout(subject: Read) -> None:
    assert not degrees.degrees_hold(subject("parallel { tp = 1 }"))


def test_axes_of_the_order(job: Job, subject: Read) -> None:
    parallel = subject(job(parallel="{ tp = 2, pp = 2, order = [tp, dp, dp, tp, cp] }")).parallel
    assert degrees.repeated_axes(parallel) == ("tp", "dp")
    assert degrees.missing_axes(parallel) == ("pp",)
    assert not degrees.order_holds(parallel)
    opened = subject(job(parallel="{ tp = auto, order = [dp] }")).parallel
    assert degrees.missing_axes(opened) == ()
    assert degrees.order_holds(opened)
    two = subject(job(parallel="{ tp = 2, order = [dp] }")).parallel
    assert degrees.missing_axes(two) == ("tp",)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ('from "llama3-8b"', True),
        ('from "llama3-8b" { vocab = "x" }', False),
        ("{ params = 7B }", False),
        (MOE, True),
        (f'{MOE} {{ experts {{ count = "x" }} }}', False),
        ('from "deepseek-v3"', True),
        ('from "deepseek-v3" { mla { kv_rank = "x" } }', False),
    ],
)
def test_shape_known(model: str, known: bool, job: Job, subject: Read) -> None:
    assert degrees.shape_known(subject(job(model)).model) is known
