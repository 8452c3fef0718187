"""Notes beside the ledger: links, what a CP rank holds of a sequence, what recompute costs."""

from __future__ import annotations

from typing import Any

from parlay.compiler.layout import Layout
from parlay.compiler.ledger.comm import speed
from parlay.compiler.ledger.state import WIDTHS
from parlay.compiler.spec.blocks import Spec

GIB = 2**30
LATENCY_SHARE = 0.05
"""Of an all-gather's transfer, the latency that is taken for the knee of its speed."""


def link_notes(spec: Spec) -> dict[str, Any]:
    """One direction of every wire: bytes a second, and milliseconds for a GiB.

    `link_over_nic` is the ratio in one direction; vendors quote the link's both, the card's one.
    """
    assert spec.cluster is not None
    node = spec.cluster.node
    rates = {
        "memory": node.gpu.bandwidth_bytes_per_s,
        "link": node.link.bandwidth_bytes_per_s if node.link else None,
        "host": node.host.bandwidth_bytes_per_s if node.host else None,
        "nic": node.nic.bandwidth_bytes_per_s if node.nic else None,
    }
    found: dict[str, Any] = {
        name: {
            "bytes_per_s": rate,
            "ms_per_gib": GIB / rate * 1e3,
            "formula": f"{GIB} B / {rate:g} B/s",
        }
        for name, rate in rates.items()
        if rate
    }
    link, nic = rates["link"], rates["nic"]
    if link and nic:
        found["link_over_nic"] = link / nic
        found["link_over_nic_as_quoted"] = 2 * link / nic
    return found


def context_note(spec: Spec) -> dict[str, Any]:
    """Which of 2·cp chunks of a sequence each CP rank holds: i and 2·cp - 1 - i.

    So every rank has the same causal work (arXiv:2407.21783, section 3.3.2). `largest_ulysses` is
    the most ranks that the all-to-all can deal key/value heads to, after tp.
    """
    model, parallel = spec.model, spec.parallel
    assert model is not None
    heads = model.kv_heads if model.mla is None else model.heads
    return {
        "chunks": [[rank, 2 * parallel.cp - 1 - rank] for rank in range(parallel.cp)],
        "largest_ulysses": max(1, heads // parallel.tp),
    }


def recompute_note(spec: Spec) -> dict[str, Any]:
    """Extra FLOPs of recompute as published, over the model's own.

    full: one more forward of three; core attention: s/(6h) (arXiv:2205.05198, section 5). The
    priced step counts what is really computed again, see `time.hfu`.
    """
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    core = train.seq / (6 * model.hidden)
    match train.recompute.name:
        case "full":
            share, formula = 1 / 3, "1 forward / 3"
        case "selective":
            share, formula = core, f"{train.seq} / (6 x {model.hidden})"
        case _:
            share, formula = 0.0, "0"
    return {"form": train.recompute.name, "published_extra_flops": share, "formula": formula}


def gather_note(spec: Spec, layout: Layout) -> dict[str, Any]:
    """The smallest all-gather of ZeRO-3 that its wire carries at full speed, in elements.

    A ring of N ranks takes (N - 1)·(alpha + M/(N·B)): below M = alpha·B·N / 5 % the latency alpha
    is more than a twentieth of the transfer. PyTorch FSDP measured this knee at 33 million elements
    on its cluster (arXiv:2304.11277, section 3.2.1).
    """
    assert spec.cluster is not None
    reach = layout.reach("shard")
    latency, bandwidth = speed(spec.cluster, reach.link)
    width = WIDTHS.get(spec.train.precision, 2) if spec.train else 2
    elements = latency * bandwidth * reach.size / LATENCY_SHARE / width
    formula = (
        f"{latency:g} s x {bandwidth:g} B/s x {reach.size} ranks / {LATENCY_SHARE:g} / {width} B"
    )
    return {"gather_floor_elements": round(elements), "gather_floor_formula": formula}
