"""Emitted code on an accelerator that computes nothing, at full size: where tensors lie.

Torch's meta device stands for the GPU, and ranks that only pretend to be there for the others. What
a GPU would refuse, tensors of it and of the host in one operation, is refused; and no rank may ask
the host, or the GPU, for more than its own share.
"""

from __future__ import annotations

import importlib
import json
import sys
from math import prod
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from parlay.runtime import init, mesh  # noqa: E402
from parlay.runtime.axes import Grid  # noqa: E402
from parlay.runtime.local import run_ranks  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.tokens import write_tokens  # noqa: E402
from torch.testing._internal.distributed import fake_pg  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from .proving import emitted  # noqa: E402

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SIZES = "layers = 2, hidden = 4096, heads = 32, ffn = 14336, vocab = 128256"
LLAMA = f"{SIZES}, kv_heads = 8"
FOUR = LLAMA.replace("layers = 2", "layers = 4")
EXPERTS = """experts { count = 16, top_k = 2, ffn = 2048, shared = 1, dense_layers = 1
  router = sigmoid, router_bias = on, aux_loss = 0.01, z_loss = 0.001 }"""
MLA = "mla { q_rank = 1536, kv_rank = 512, nope_dim = 128, rope_dim = 64, v_dim = 128 }"
BENT = "window(size = 1024, every = 2), softcap(attention = 50)"

LAYOUTS: dict[str, tuple[int, str, str, str]] = {
    "plain": (2, LLAMA, "tp = 2, dp = 8", "recompute = full"),
    "a pipeline": (
        4,
        FOUR,
        "tp = 4, pp = 2, dp = 4, schedule = interleaved(chunks = 2), zero = 1",
        "recompute = selective(norm)",
    ),
    "halves of a backward": (2, FOUR, "tp = 2, pp = 2, dp = 4, schedule = zbv, zero = 2", ""),
    "shards": (2, LLAMA, "dp = 16, zero = 3, shard = 8", "gradients = bf16"),
    "a ring": (8, f"{LLAMA}, {BENT}", "tp = 2, cp = 2, dp = 16, cp_method = ring", ""),
    "all keys": (8, f"{LLAMA}, {BENT}", "cp = 4, dp = 16, cp_method = allgather, zero = 1", ""),
    "heads for tokens": (
        8,
        f"{LLAMA}, position = alibi",
        "tp = 2, cp = 2, dp = 16, cp_method = ulysses",
        "precision = fp16",
    ),
    "experts": (4, f"{LLAMA}, sinks = on\n{EXPERTS}", "tp = 2, dp = 16, zero = 2", ""),
    "latents": (8, f"{SIZES}\n{MLA}", "tp = 4, dp = 16, zero = 1", ""),
    "adapters": (4, LLAMA, "tp = 2, dp = 16, zero = 3", "lora(rank = 16, alpha = 32)"),
}
"""Nodes of eight GPUs, the model, the layout, further fields of `train`."""


def job(nodes: int, model: str, parallel: str, train: str) -> str:
    return f"""model {{ {model} }}
cluster {{ nodes = {nodes}
  node from "dgx-h100" }}
parallel {{ {parallel} }}
train {{
  seq = 4096, micro_batch = 1, global_batch = 16, steps = 10
  optimizer = adamw(lr = 1e-3), lr_schedule = constant(warmup = 2)
  {train}
}}
data {{ format = tokens, path = "tokens.bin" }}
"""


class OneDevice(TorchDispatchMode):
    """Refuses what a GPU refuses; `host` is the most elements of a tensor of the host."""

    MOVES = ("aten::_to_copy", "aten::copy_")
    host = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        devices = {one.device.type for one in given if one.dim()}
        if len(devices) > 1 and op.name().split(".")[0] not in self.MOVES:
            raise RuntimeError(f"{op.name()} of tensors on {' and '.join(sorted(devices))}")
        found = op(*args, **(kwargs or {}))
        made = [one for one in tree_leaves(found) if isinstance(one, torch.Tensor)]
        self.host = max([self.host, *(one.numel() for one in made if one.device.type == "cpu")])
        return found


def step(folder: Path, rank: int) -> tuple[int, int, int]:
    """One step of a rank; the elements of the largest tensor of the host, of the weights that the
    rank has been given, and of what it updates."""
    plan = Plan.load(folder / "plan.json")
    backend = "nowhere"
    devices = ["cpu", "meta"]
    dist.Backend.register_backend(
        backend, fake_pg._create_fake_pg, extended_api=True, devices=devices
    )
    world = prod(plan.mesh.values())
    dist.init_process_group(backend, store=fake_pg.FakeStore(), rank=rank, world_size=world)
    mesh.own_device = lambda: torch.device("meta")
    # Numbers mean nothing here, but where and how many they are.
    init.draw = lambda name, block, *, rows, columns, seed: torch.empty(
        min(init.BLOCK, rows - block * init.BLOCK), columns
    )
    sys.path.insert(0, str(folder))
    train = importlib.import_module("train")
    train.must_be_finite = lambda *_, **__: None
    with OneDevice() as watched:
        built = train.build(plan)
        if "scale" in vars(built):
            built.scale.fits = lambda *_, **__: True
        train.backward(built, built.data.batch(0))
        train.update(built, 0)
    weights = {p.untyped_storage()._cdata: p for p in built.model.parameters()}.values()
    held = sum(p.untyped_storage().nbytes() // p.itemsize for p in weights)
    return watched.host, held, sum(part.numel() for part in built.optimizer.parts)


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, files = emitted(job(*LAYOUTS[name]), tmp_path)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    write_tokens(tmp_path / "tokens.bin", vocab=128256, seq=64, windows=64 * 33)
    plan = json.loads(files["plan.json"])
    grid = Grid(tuple(plan["mesh"].items()))
    last = grid.rank_of({axis: grid.size(axis) - 1 for axis in grid.axes})
    ((host, held, updated),) = run_ranks(lambda _: step(tmp_path, last), 1, timeout=100)
    # A block of rows of a weight, and its copies on the way.
    assert host <= 256 * 14336
    everything = 4 * (4096 * 4096 * 3 + 3 * 4096 * 14336) + 2 * 128256 * 4096
    assert 0 < updated <= everything
    if "zero = 3" in LAYOUTS[name][2]:  # but adapters, of which every rank has all
        assert held == (updated * 16 if name == "adapters" else 0)


def test_two_devices_are_refused() -> None:
    there, here = torch.ones(3, device="meta"), torch.ones(3)
    with OneDevice() as watched:
        there * torch.ones(()) + here.to("meta")
        with pytest.raises(RuntimeError, match=r"add\.Tensor of tensors on cpu and meta"):
            there + here
        torch.empty(5, 7)
    assert watched.host == 35
