"""Data sheets that a file's GPU may have, and the wires between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parlay.compiler import catalog
from parlay.compiler.checks import (
    Subject,
    devices,
    wires,
)

Job = Callable[..., str]
Read = Callable[[str], Subject]


# ── Data sheets ───────────────────────────────────────────────────────────────


def test_data_sheets() -> None:
    devices.value.cache_clear()
    devices.wires.cache_clear()
    assert devices.value("h100-sxm-80gb", "memory") == 81559 * 2**20
    assert devices.value("h100-sxm-80gb", "bf16") == 989.4e12
    assert devices.value("h100-sxm-80gb", "fp4") is None
    assert devices.value("no-such-gpu", "bf16") is None
    assert devices.text("h100-sxm-80gb", "memory") == "81559MiB"
    wires = devices.wires()
    assert devices.Wire("h100-sxm-80gb", "nvswitch", 450e9) in wires
    assert all(each.kind in ("nvlink", "nvswitch") and each.gpu for each in wires)
    assert len(wires) > 5


@pytest.mark.parametrize(
    ("gpu", "but", "meant"),
    [
        ('from "dgx-h100"', "", ("h100-sxm-80gb",)),
        ("{ gpus = 8, gpu { memory = 80GB, bf16 = 989TFLOP/s, bandwidth = 3.35TB/s } }", "", None),
        ("{ gpus = 8, gpu { memory = 80GB, bf16 = 1TFLOP/s } }", "", "all"),
        ("{ gpus = 8, gpu { memory = 80GB } }", "", "all"),
        ("{ gpus = 8, gpu { memory = 80GB, bf16 = 989TFLOP/s } }", "bf16", "all"),
    ],
)
def test_meant(gpu: str, but: str, meant: tuple[str, ...] | str | None, subject: Read) -> None:
    found = devices.meant(subject(f"cluster {{ node {gpu} }}"), but=but)
    if meant == "all":
        assert found == catalog.names("gpu")
    elif meant is None:
        assert "h100-sxm-80gb" in found and len(found) < len(catalog.names("gpu"))
        assert all(devices.value(name, "bf16") == pytest.approx(989e12, rel=0.01) for name in found)
    else:
        assert found == meant


def test_close() -> None:
    assert devices.close(100, 99) and devices.close(99, 100)
    assert not devices.close(100, 98.9) and not devices.close(98.9, 100)
    assert devices.close(100, 90, within=0.1) and not devices.close(100, 89, within=0.1)


def test_presets(subject: Read) -> None:
    one = subject('cluster { node from "dgx-h100" }')
    assert devices.preset(one) == "h100-sxm-80gb"
    assert devices.preset(one, "cluster.node") == "dgx-h100"
    assert devices.preset(one, "cluster.node.fan") is None
    assert devices.preset(subject("cluster { node { gpus = 8 } }")) is None


# ── Wires ─────────────────────────────────────────────────────────────────────

FAST = '{ nodes = 2, node from "dgx-h100"'


def test_speeds(subject: Read) -> None:
    one = subject(f"cluster {FAST} }}")
    assert wires.speed_of(one, "link") == 450e9
    assert wires.speed_of(one, "fabric") == 50e9
    slower = subject(f"cluster {FAST}, fabric {{ oversubscription = 4 }} }}")
    assert wires.speed_of(slower, "fabric") == 12.5e9
    cards = subject(f"cluster {FAST} {{ nic {{ count = 2, bandwidth = 100Gb/s }} }} }}")
    assert wires.speed_of(cards, "fabric") == 2 * 12.5e9 / 8
    bare = subject("cluster { node { gpus = 8 } }")
    assert [wires.speed_of(bare, wire) for wire in ("link", "host", "fabric")] == [None] * 3
    assert wires.cost(bare, "fabric") == []
    assert wires.cost(one, "fabric") == [
        "400 Gb/s a GPU over the fabric, 450 GB/s inside the domain: 9 times slower"
    ]
    assert wires.cost(one, "link") == ["450 GB/s a GPU over the link, 450 GB/s inside the domain"]


def test_the_place_of_a_domain(subject: Read) -> None:
    one = subject(f"cluster {FAST} }}")
    span, said = wires.domain_label(one, 8)
    assert span == one.span("cluster.node.link.domain")
    assert said.startswith("8 GPUs in a fast domain")
    bare = subject("cluster { node { gpus = 1 } }")
    assert wires.domain_label(bare, 1) == (bare.span("cluster.node.gpus"), "1 GPU a node")
