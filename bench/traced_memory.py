"""What emitted code holds beside the ledger: `python bench/traced_memory.py [FILE.par …]`.

Each job, those of `JOBS` unless files are given, is compiled for torch, and one rank of its real
world size runs a step at full size on no GPU: tensors are fake (`FakeTensorMode`: shapes without
data) and so is the process group. Every storage is counted from the operator that makes it until it
is freed. A first update makes the optimizer's state; the step after it is measured:

    states       weights, gradients, masters and moments, between two steps
    activations  the most that lies between forwards and their backwards, states, messages between
                 stages and gathered weights left out
    peak         the most of all in the step
    update       the most while the optimizer steps

Without a GPU torch takes RMSNorm apart into fp32 operators; here it keeps what the GPU's kernel
keeps (input, weight and one fp32 number a token). Attention is torch's flash kernel, and what
FlexAttention's keeps (queries, keys, values, output and one fp32 number a query) where the job asks
for windows, caps or sinks. Two gradients of one tied weight are summed out of place, which fake
tensors need and real ones do not. Routers send as many tokens to every expert: who was chosen is
data, which fake tensors have not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives
import torch.nn.functional as F
from parlay.compiler import pipeline
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.memory import RankClass, account
from parlay.compiler.spec.resolve import Phase
from parlay.runtime import experts, flex
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

# ── What lives ────────────────────────────────────────────────────────────────


class Live(TorchDispatchMode):
    """Counts the bytes of every fake storage that is alive; `peak` is the most since `mark`."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._known: dict[int, int] = {}
        self._changing: list[torch.UntypedStorage] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._follow()
        out = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._see, out)
        return out

    def follow(self, tensors: list[Tensor]) -> None:
        """The storages of `tensors` are made larger and smaller where no operator tells of it."""
        self._changing = [tensor.untyped_storage() for tensor in tensors]

    def _follow(self) -> None:
        for storage in self._changing:
            if (now := storage.nbytes()) != self._known[storage._cdata]:
                self.bytes += now - self._known[storage._cdata]
                self._known[storage._cdata] = now
        self.peak = max(self.peak, self.bytes)

    def mark(self) -> None:
        """The peak counts from here."""
        self.peak = self.bytes

    def _see(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor) and tensor.fake_device.type != "meta":
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._known:
                self._known[key] = storage.nbytes()
                self.bytes += storage.nbytes()
                self.peak = max(self.peak, self.bytes)
                weakref.finalize(storage, self._free, key)
        return tensor

    def _free(self, key: int) -> None:
        self.bytes -= self._known.pop(key)


class _FusedNorm(torch.autograd.Function):
    """What the GPU's RMSNorm keeps and makes; no arithmetic."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        statistics = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
        ctx.save_for_backward(x, weight, statistics)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def _rms_norm(x: Tensor, shape: Any, weight: Tensor, eps: float | None = None) -> Tensor:
    return _FusedNorm.apply(x, weight)  # type: ignore[no-any-return]


class _FusedAttention(torch.autograd.Function):
    """What FlexAttention's kernels keep and make on a GPU; no arithmetic."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        # In memory as the queries are: the batch first, then the sequence.
        b, heads, s, _ = q.shape
        out = q.new_empty(b, s, heads, v.shape[-1]).transpose(1, 2)
        lse = q.new_empty(q.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(one) for one in ctx.saved_tensors[:3])


_DENSE = F.scaled_dot_product_attention


def _dense(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Any:
    """Values of another width than the keys', which no fused kernel of CPUs has."""
    if q.shape[-1] == v.shape[-1]:
        return _DENSE(q, k, v, **given)
    return _FusedAttention.apply(q, k, v)[0]  # type: ignore[no-untyped-call]


def _flex(q: Tensor, k: Tensor, v: Tensor, *, return_aux: Any = None, **_: Any) -> Any:
    out, lse = _FusedAttention.apply(q, k, v)
    return (out, SimpleNamespace(lse=lse)) if return_aux else out


_VISIT = experts.visit


def _visit(x: Tensor, chosen: Any, own: Any, *, ep: Any = None, etp: Any = None) -> Tensor:
    """`visit`, told that each rank gets as many rows as any other."""
    rows = chosen.experts.numel()
    lists = [_dealt(rows, ep.size)] * 2 if ep is not None else []
    lists += [[rows] * etp.size] if etp is not None else []
    with patch.object(FakeTensor, "tolist", lambda _: lists.pop(0)):
        return _VISIT(x, chosen, own, ep=ep, etp=etp)


def _dealt(number: int, ranks: int) -> list[int]:
    return [number // ranks + (rank < number % ranks) for rank in range(ranks)]


def _bincount(x: Tensor, *, minlength: int) -> Tensor:
    return x.new_empty(minlength)


# ── One rank ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Figures:
    """Bytes of one rank, traced or predicted."""

    states: int
    activations: int
    peak: int
    update: int


def trace(files: Mapping[str, str], *, world: int, rank: int) -> Figures:
    """A step of an emitted folder on one fake rank."""
    with (
        tempfile.TemporaryDirectory() as name,
        _world(world, rank),
        _imported(files, name) as train,
    ):
        plan = train.Plan.load(Path(name) / "plan.json")
        with FakeTensorMode(allow_non_fake_inputs=True), Live() as live:
            return _step(train, plan, live)


def _step(train: Any, plan: Any, live: Live) -> Figures:
    shape = plan.batch.micro_batch, plan.batch.seq // plan.mesh.get("cp", 1)
    tokens = torch.zeros(shape, dtype=torch.int64)
    batch = [(tokens, tokens)] * plan.batch.microbatches
    job = train.build(plan)
    live.follow([unit.buffer for unit in _gathered(job)])
    adamw = getattr(job.optimizer, "adamw", None)
    for group in adamw.param_groups if adamw else ():
        group["fused"] = True  # as on a GPU
    forwards: list[int] = []
    units = _gathered(job)

    def after(sent: int) -> None:
        whole = sum(unit.buffer.untyped_storage().nbytes() for unit in units)
        forwards.append(live.bytes - sent - whole)

    with _after_forwards(train, job, after):
        train.update(job, 0)
        kept = live.bytes
        live.mark()
        train.backward(job, batch)
        peak = live.peak
    live.mark()
    train.update(job, 1)
    counters = sum(state["step"].nbytes for state in adamw.state.values()) if adamw else 0
    states = kept - counters - _bytes(batch)
    return Figures(states, max(forwards) - kept, peak - kept + states, live.peak - kept + states)


def _gathered(job: Any) -> list[Any]:
    """The units that are whole only while they are used, frozen ones under adapters too."""
    found = []
    for name in ("weights", "frozen"):
        weights = getattr(job, name, None)
        found += weights.units if getattr(weights, "gathers", False) else []
    return found


def _bytes(batch: list[tuple[Tensor, Tensor]]) -> int:
    return len({id(tensor): tensor for pair in batch for tensor in pair}) * batch[0][0].nbytes


@contextmanager
def _after_forwards(train: Any, job: Any, do: Callable[[int], None]) -> Iterator[None]:
    """Calls `do` after each forward of a microbatch with the bytes of messages that lie there."""
    piped = hasattr(train, "pipeline")
    owner: Any = train.pipeline._Worker if piped else type(job.model)
    plain = owner.forward

    def forward(self: Any, *args: Any) -> Any:
        out = plain(self, *args)
        messages = [*self.inbox.values(), *self.sent, out] if piped else []
        storages = {t.untyped_storage()._cdata: t.nbytes for t in messages if t is not None}
        do(sum(storages.values()))
        return out

    with patch.object(owner, "forward", forward):
        yield


@contextmanager
def _world(world: int, rank: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _imported(files: Mapping[str, str], folder: str) -> Iterator[Any]:
    """The emitted train.py as a module; weights stay undrawn, data unread, labels uncounted."""
    for name, text in files.items():
        (Path(folder) / name).write_text(text)
    sys.path.insert(0, folder)
    try:
        with patch.object(experts, "visit", _visit):
            train: Any = importlib.import_module("train")
        with (
            patch.object(train.init, "fill", lambda *_, **__: None),
            patch.object(train, "Loader", lambda *_, **__: None),
            patch.object(train, "valid_labels", lambda *_, **__: 1),
            patch.object(train, "must_be_finite", lambda *_, **__: None),
            patch.object(F, "rms_norm", _rms_norm),
            patch.object(F, "scaled_dot_product_attention", _dense),
            patch.object(flex, "on_gpu", lambda _: True),
            patch.object(flex, "compiled", lambda: _flex),
            patch.object(flex, "block_mask", lambda *_: None),
            patch.object(torch, "bincount", _bincount),
        ):
            yield train
    finally:
        sys.path.remove(folder)
        for name in ("train", "model", "mesh"):
            sys.modules.pop(name, None)


# ── The ledger beside it ──────────────────────────────────────────────────────


def predicted(each: RankClass) -> Figures:
    """The same figures of a rank class."""
    moments = {moment.name: moment for moment in each.moments}
    backward = moments["backward"]
    states = sum(backward.categories[name] for name in ("weights", "gradients", "optimizer"))
    kept = [m.categories["activations"] + _kept_logits(m) for m in moments.values()]
    peaks = [m.value_bytes for name, m in moments.items() if name != "optimizer step"]
    return Figures(states, max(kept), max(peaks), moments["optimizer step"].value_bytes)


def _kept_logits(moment: Any) -> int:
    return sum(
        line.value_bytes
        for line in moment.lines
        if line.category == "logits" and line.name != "logits while the loss runs"
    )


@dataclass(frozen=True)
class Row:
    """One rank of one job."""

    job: str
    stage: int
    traced: Figures
    ledger: Figures

    def error(self, name: str) -> float:
        """Predicted over traced, less one."""
        traced = getattr(self.traced, name)
        return float(getattr(self.ledger, name) / traced - 1) if traced else 0.0


def rows(job: str, text: str, stages: tuple[int, ...] | None = None) -> Iterator[Row]:
    """One rank of each of `stages` (the first, the last and one between, unless given)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.par"
        path.write_text(text)
        yield from rows_of(job, path, stages)


def shortened(path: Path) -> str:
    """A file with the fewest microbatches that reach the most held: 2·pp of each chunk.

    Beyond those a step repeats itself, and a fake one takes as long as its operators are many.
    """
    phase = pipeline.load(path).phases[0]
    parallel, train = phase.spec.parallel, phase.spec.train
    assert train is not None
    each = train.micro_batch * parallel.dp
    batch = min(train.global_batch, 2 * parallel.pp * each)
    text = path.read_text("utf-8")
    return re.sub(r"global_batch = \d+", f"global_batch = {batch}", text)


def rows_of(job: str, path: Path, stages: tuple[int, ...] | None = None) -> Iterator[Row]:
    """`rows` of the first phase of a file; none where the torch back end refuses it."""
    made = _emitted(path)
    if made is None:
        return
    phase, layout, files = made
    classes = account(phase.spec, layout).classes
    pp = phase.spec.parallel.pp
    for stage in stages or sorted({0, pp // 2, pp - 1}):
        rank = _fullest(phase, layout, stage)
        yield Row(
            job, stage, trace(files, world=layout.world, rank=rank), predicted(classes[stage])
        )


def _fullest(phase: Phase, layout: Layout, stage: int) -> int:
    """The rank of a stage that holds most: in a ring the last, which sees most keys of others."""
    parallel = phase.spec.parallel
    ring = parallel.cp_method.name in ("ring", "ulysses_ring")
    wanted = {"pp": stage, "cp": parallel.cp - 1 if ring else 0}
    for rank in range(layout.world):
        at = layout.coordinates(rank)
        if all(at.get(axis, 0) == place for axis, place in wanted.items()):
            return rank
    raise AssertionError(wanted)


def _emitted(path: Path) -> tuple[Phase, Layout, dict[str, str]] | None:
    job = pipeline.load(path)
    assert not job.errors, job.errors
    phase = job.phases[0]
    emission = pipeline.emit(job, "torch")
    layout = pipeline.lay_out(phase)
    files = dict(emission.files_of("torch"))
    return (phase, layout, files) if files and layout is not None else None


# ── Jobs ──────────────────────────────────────────────────────────────────────


def job_text(
    model: str,
    nodes: int,
    parallel: str,
    *,
    seq: int = 4096,
    micro: int = 1,
    batch: int = 16,
    train: str = "",
) -> str:
    """A job on DGX H100 nodes."""
    return f"""
model from "{model}"
cluster {{ nodes = {nodes}  node from "dgx-h100" }}
parallel {{ {parallel}  order = [tp, cp, pp, dp] }}
train {{ seq = {seq}  micro_batch = {micro}  global_batch = {batch}  steps = 10
  optimizer = adamw(lr = 3e-4)  lr_schedule = cosine(warmup = 2, min_lr = 3e-5)  {train} }}
"""


TP8 = "tp = 8  pp = 4  dp = 2  zero = 1"
JOBS: Mapping[str, str] = {
    "70B tp8 pp4 interleaved": job_text(
        "llama3-70b", 8, f"{TP8}  schedule = interleaved(chunks = 2)", seq=8192
    ),
    "70B tp8 pp4 1F1B": job_text("llama3-70b", 8, TP8, seq=8192),
    "70B tp8 pp4, no sequence parallelism": job_text(
        "llama3-70b", 8, f"{TP8}  sequence_parallel = off"
    ),
    "70B tp8 pp4, recompute full": job_text(
        "llama3-70b", 8, TP8, seq=8192, train="recompute = full"
    ),
    "70B tp8 pp2 zero 0": job_text("llama3-70b", 2, "tp = 8  pp = 2"),
    "8B tp2 pp1": job_text("llama3-8b", 1, "tp = 2  zero = 1"),
    "8B tp1 pp1": job_text("llama3-8b", 1, "zero = 1"),
    "8B tp1 pp4": job_text("llama3-8b", 1, "pp = 4  zero = 1"),
    "8B ZeRO-2": job_text("llama3-8b", 1, "zero = 2"),
    "8B ZeRO-3": job_text("llama3-8b", 1, "zero = 3"),
    "8B ZeRO-3 tp2 pp2, recompute full": job_text(
        "llama3-8b", 1, "tp = 2  pp = 2  zero = 3", train="recompute = full"
    ),
    "8B ZeRO-3 in two copies": job_text("llama3-8b", 1, "zero = 3  shard = 4"),
    "8B tp4 fp32": job_text("llama3-8b", 1, "tp = 4", train="precision = fp32"),
    "GPT-2 XL dp8": job_text("gpt2-xl", 1, "zero = 1", seq=1024, micro=4, batch=32),
}


def main() -> None:
    """Prints the table, worst error of each figure last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="jobs in place of the usual ones")
    parser.add_argument("--job", help="only jobs whose name has this in it", default="")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    names = ("states", "activations", "peak", "update")
    found: list[Row] = []
    if not arguments.json:
        print(f"{'job':38} {'stage':>5}" + "".join(f" {name:>22}" for name in names))
    named = {name: rows(name, text) for name, text in JOBS.items()}
    given = {path.stem: rows(path.stem, shortened(path)) for path in arguments.files}
    for name, made in (given or named).items():
        if arguments.job not in name:
            continue
        for row in made:
            found.append(row)
            cells = "".join(
                f" {getattr(row.traced, n) / 2**30:11.4f} {100 * row.error(n):+9.3f}%"
                for n in names
            )
            if not arguments.json:
                print(f"{name:38} {row.stage:5}{cells}", flush=True)
    if arguments.json:
        document = [
            {"job": r.job, "stage": r.stage, "traced": vars(r.traced), "ledger": vars(r.ledger)}
            for r in found
        ]
        print(json.dumps({"version": 1, "rows": document}, indent=1))
        return
    worst = {n: max((abs(row.error(n)) for row in found), default=0.0) for n in names}
    print("worst: " + ", ".join(f"{n} {100 * error:.3f} %" for n, error in worst.items()))


if __name__ == "__main__":
    main()
