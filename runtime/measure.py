"""What this machine's backend really does: products, copies and collectives by size.

`python -m parlay.runtime.measure --ranks N` prints one JSON document. On GPUs the collectives go
over NCCL, one rank a GPU; without them over Gloo.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.collectives import all_gather, reduce_scatter
from parlay.runtime.local import run_ranks

SQUARES = {"cpu": (256, 512, 1024), "cuda": (1024, 2048, 4096, 8192)}
DTYPES = {"cpu": (torch.float32,), "cuda": (torch.bfloat16, torch.float16)}
SIZES = {"cpu": (2**10, 2**14, 2**20, 2**24), "cuda": (2**10, 2**16, 2**20, 2**24, 2**27, 2**29)}
COPIES = {"cpu": (2**20, 2**26), "cuda": (2**24, 2**27, 2**30)}
"""Bytes; the largest is past every cache."""
REPEATS = 5


def measure(ranks: int, *, timeout: float = 300.0) -> dict[str, Any]:
    """Everything, on `ranks` ranks of this machine."""
    device = "cuda" if torch.cuda.device_count() >= ranks else "cpu"
    found = run_ranks(lambda rank: _rank(rank, device), ranks, timeout=timeout)
    return {"version": 1, "device": device, "ranks": ranks, **found[0]}


def _rank(rank: int, device: str) -> dict[str, Any]:
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    found = {
        "name": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "matmul": [_matmul(n, t, device) for t in DTYPES[device] for n in SQUARES[device]],
        "copy": [_copy(size, device) for size in COPIES[device]],
        "collectives": [
            _collective(name, size, device) for name in COLLECTIVES for size in SIZES[device]
        ],
    }
    dist.destroy_process_group()
    return found


def _matmul(n: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    a, b = (torch.randn(n, n, dtype=dtype, device=device) for _ in range(2))
    seconds = _timed(lambda: a @ b, device)
    name = str(dtype).removeprefix("torch.")
    return {"m": n, "n": n, "k": n, "dtype": name, "flops_per_s": 2 * n**3 / seconds}


def _copy(size: int, device: str) -> dict[str, Any]:
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = _timed(lambda: target.copy_(source), device)
    return {"bytes": size, "bytes_per_s": 2 * size / seconds}


def _collective(name: str, size: int, device: str) -> dict[str, Any]:
    world = dist.get_world_size()
    elements = max(world, size // 4 // world * world)
    whole = torch.ones(elements, device=device)
    part = torch.ones(elements // world, device=device)
    try:
        seconds = _timed(lambda: COLLECTIVES[name](whole, part), device)
    except (RuntimeError, NotImplementedError) as refusal:
        # A backend without this collective says so at once, on every rank.
        return {"collective": name, "ranks": world, "skipped": str(refusal).partition("\n")[0]}
    return {"collective": name, "ranks": world, "bytes": 4 * elements, "seconds": seconds}


COLLECTIVES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "all_reduce": lambda whole, part: dist.all_reduce(whole),
    "all_gather": lambda whole, part: all_gather(whole, part),
    "reduce_scatter": lambda whole, part: reduce_scatter(part, whole),
    "all_to_all": lambda whole, part: dist.all_to_all_single(torch.empty_like(whole), whole),
    "send": lambda whole, part: _round(whole),
}


def _round(whole: torch.Tensor) -> None:
    """Every rank sends to the next one and receives from the one before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    got = torch.empty_like(whole)
    both = [
        dist.P2POp(dist.isend, whole, (rank + 1) % world),
        dist.P2POp(dist.irecv, got, (rank - 1) % world),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def _timed(work: Callable[[], Any], device: str) -> float:
    """The best of several, in seconds; all ranks start together."""
    best = float("inf")
    for _ in range(REPEATS + 1):  # the first one warms up
        dist.barrier()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Prints the document."""
    parser = argparse.ArgumentParser(description="Measure products, copies and collectives.")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.ranks)))


if __name__ == "__main__":
    main()
