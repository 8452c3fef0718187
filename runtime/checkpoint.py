"""Saves a run and goes on from where it was saved, under any layout of the same model.

Every save is a fresh folder, which one rename commits:

    checkpoints/step-00000100.tmp-1f3a/  being written; never read
    checkpoints/step-00000100/           after 100 steps; counts where it has `committed.json`
        __0_0.distcp, …                  masters and moments, by torch.distributed.checkpoint
        .metadata                        its index
        committed.json                   {"version", "step", "seed", "samples", "spec", "files"},
                                         under fp16 "taken" and "loss_scale" too

Weights are their masters, rounded, and are not saved a second time. The position in the data is
two integers, the seed and the samples consumed; nothing else is random.
"""

from __future__ import annotations

import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.boxes import Boxes, Loading, Saving, boxes_of
from parlay.runtime.committed import (
    Damaged,
    committed,
    digest,
    last_of,
    read_manifest,
    sync_folder,
    write_manifest,
)
from parlay.runtime.foreign import INDEX, ForeignError, Reader, Writer, read_index
from parlay.runtime.mesh import Axis
from parlay.runtime.optimizer import Optimizer
from parlay.runtime.plan import Plan
from parlay.runtime.scaling import LossScale
from parlay.runtime.weights import Piecewise, Place, end_of, routed
from torch import Tensor
from torch.distributed.checkpoint import load, save

VOCABULARY = ("embedding.weight", "head.weight", "head.bias")
"""The ends of the names whose rows may be padded."""


class CheckpointError(RuntimeError):
    """A run cannot be saved, or cannot go on from what was saved."""


class Checkpoints:
    """The saves of one run, in `plan.checkpoint.path`, which counts from `$PARLAY_OUT` or `folder`.

    `tp` is the axis that cuts weights. With `plan.checkpoint.every` a step is saved in so many, the
    last one always; with `keep` so many of the newest stay. Asynchronous saves run beside training
    on a group of processes of their own, one at a time.
    """

    def __init__(
        self,
        plan: Plan,
        optimizer: Optimizer,
        *,
        folder: Path,
        tp: Axis | None = None,
        scale: LossScale | None = None,
    ) -> None:
        self.plan, self.optimizer, self.tp, self.scale = plan, optimizer, tp, scale
        asked = plan.checkpoint
        self.folder = Path(os.environ.get("PARLAY_OUT") or folder) / asked.path
        self.every, self.keep, self.beside = asked.every, asked.keep, asked.asynchronous
        self.group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        if self.group is None:
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        self.first = self.group is None or dist.get_rank() == 0
        self.under_way: Thread | None = None
        self.failure: BaseException | None = None

    def resume(self) -> int:
        """The first step to take: 0, or where `$PARLAY_RESUME` asks to go on, the one after the
        last save, whose state the optimizer has now. Without it, earlier saves are not run over."""
        wanted = os.environ.get("PARLAY_RESUME", "") not in ("", "0")
        found = self._agreed(lambda: self._found(wanted))
        if found is None:
            return 0
        name, manifest = found
        self._load(self.folder / name, manifest)
        step: int = manifest["step"]
        return step

    def after(self, step: int, *, now: bool = False) -> None:
        """Before: step `step` is done. After: it is saved, or being saved, if due or `now`."""
        done = step + 1
        if now or done == self.plan.steps or (self.every and done % self.every == 0):
            self.save(done)

    def save(self, step: int) -> None:
        """Saves the state after `step` steps."""
        self.wait()
        state = self._state(self.optimizer.state_dict()["slices"])
        scaled: dict[str, Any] = {}
        if self.scale is not None:  # steps may have been left out
            scaled = {"taken": self.optimizer.taken, "loss_scale": self.scale.state_dict()}
        if not self.beside:
            self._write(state, step, scaled)
            return
        state = {name: boxes.on_cpu() for name, boxes in state.items()}
        self.under_way = Thread(target=self._beside, args=(state, step, scaled), name="checkpoint")
        self.under_way.start()

    def wait(self) -> None:
        """After: no save is under way, and the last one is committed."""
        if self.under_way is not None:
            self.under_way.join()
            self.under_way = None
        if self.failure is not None:
            raise CheckpointError(f"a save failed: {self.failure}") from self.failure

    # ── What is saved ─────────────────────────────────────────────────────────

    def _state(self, slices: Mapping[str, Mapping[str, Any]]) -> dict[str, Boxes]:
        """`{"master.layers.0.attention.q.weight": …}`: what this rank owns, in whole weights."""
        places = {place.name: place for place in self.optimizer.weights.places}
        return {
            f"{kind}.{name}": self._boxes(places[name], owned["offset"], owned[kind])
            for name, owned in slices.items()
            for kind in ("master", *self.optimizer.kinds)
        }

    def _boxes(self, place: Place, offset: int, flat: Tensor) -> Boxes:
        shape, cuts = list(place.shape), place.dealt
        if place.cut is not None and self.tp is not None and not routed(place.name):
            copies = place.copies
            alike = copies.size if copies and set(copies.ranks) <= set(self.tp.ranks) else 1
            cuts = (Piecewise(place.cut, self.tp.rank // alike, self.tp.size // alike),)
        for dim, _, pieces in cuts:
            shape[dim] *= pieces
        if end_of(place.name) in VOCABULARY:
            shape[0] = self.plan.model.vocab
        whole = torch.Size(shape)
        places = {dim: piece for dim, piece, _ in cuts}
        boxes = boxes_of(flat, start=offset, piece=place.shape, whole=whole, places=places)
        return Boxes(shape=whole, boxes=boxes, saved=place.copies is None or place.copies.first)

    # ── Writing ───────────────────────────────────────────────────────────────

    def _beside(self, state: dict[str, Boxes], step: int, scaled: dict[str, Any]) -> None:
        try:
            self._write(state, step, scaled)
        except BaseException as failure:
            self.failure = failure

    def _write(self, state: dict[str, Boxes], step: int, scaled: dict[str, Any]) -> None:
        """Each rank writes and syncs its part; the first commits once all have."""
        name = f"step-{step:08}"
        staged = self.folder / self._agreed(lambda: self._fresh(name))
        save(
            dict(state),
            storage_writer=Writer(staged),
            planner=Saving(),
            process_group=self.group,
        )
        rank = 0 if self.group is None else dist.get_rank()
        written = [*staged.glob(f"__{rank}_*.distcp"), *([staged / INDEX] if self.first else [])]
        own = {path.name: digest(path) for path in written}
        sync_folder(staged)
        files = self._gathered(own)
        self._agreed(lambda: self._commit(staged, name, files, step, scaled))

    def _fresh(self, name: str) -> str:
        """A new folder for a save; what an earlier run left unfinished goes."""
        if (self.folder / name).exists():
            if committed(self.folder / name):
                raise CheckpointError(f"{self.folder / name} is there already")
            shutil.rmtree(self.folder / name)
        for left in self.folder.glob("step-*.tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        fresh = f"{name}.tmp-{uuid.uuid4().hex[:8]}"
        (self.folder / fresh).mkdir(parents=True)
        return fresh

    def _commit(
        self,
        staged: Path,
        name: str,
        files: dict[str, str],
        step: int,
        scaled: dict[str, Any],
    ) -> None:
        samples = step * self.plan.batch.global_batch
        manifest = {
            "version": 1,
            "step": step,
            "seed": self.plan.seed,
            "samples": samples,
            "spec": self.plan.spec,
            "files": files,
            **scaled,
        }
        write_manifest(staged, manifest)
        staged.rename(self.folder / name)
        sync_folder(self.folder)
        for old in self._beyond():
            # Without its manifest it counts no longer, however far the removal comes.
            (old / "committed.json").unlink()
            shutil.rmtree(old, ignore_errors=True)

    def _beyond(self) -> list[Path]:
        """The saves that are older than the newest `keep`."""
        if not self.keep:
            return []
        return sorted(path for path in self.folder.glob("step-*") if committed(path))[: -self.keep]

    # ── Reading ───────────────────────────────────────────────────────────────

    def _found(self, wanted: bool) -> tuple[str, dict[str, Any]] | None:
        last = last_of(self.folder)
        if last is None:
            return None
        if not wanted:
            raise CheckpointError(
                f"{self.folder} has the saves of an earlier run, the last {last.name}: resume goes "
                "on from it, another checkpoint.path starts anew"
            )
        manifest = read_manifest(last)
        step, samples = manifest["step"], manifest["samples"]
        if manifest["seed"] != self.plan.seed or samples != step * self.plan.batch.global_batch:
            raise CheckpointError(
                f"{last} has consumed {samples} samples of seed {manifest['seed']} in {step} "
                f"steps; this run takes {self.plan.batch.global_batch} a step of seed "
                f"{self.plan.seed}"
            )
        return last.name, manifest

    def _load(self, folder: Path, manifest: dict[str, Any]) -> None:
        """The state in `folder`: each rank reads what it owns."""
        files = manifest["files"]
        state = self.optimizer.state_dict()["slices"]
        wrong = self._gathered(self._wrong(folder, files, self._state(state)))
        if wrong:
            told = "; ".join(f"{name} {words}" for name, words in sorted(wrong.items())[:3])
            raise CheckpointError(f"{folder} cannot be gone on from: {told}")
        # On the host: the device holds the state once already. Rows of padding are zeros.
        found = {
            name: {
                key: torch.zeros_like(value, device="cpu") if isinstance(value, Tensor) else value
                for key, value in owned.items()
            }
            for name, owned in state.items()
        }
        load(
            dict(self._state(found)),
            storage_reader=Reader(folder, files=set(files)),
            planner=Loading(),
            process_group=self.group,
        )
        taken = manifest["step"]
        if self.scale is not None:
            taken = manifest.get("taken", taken)
            self.scale.load_state_dict(manifest.get("loss_scale", self.scale.state_dict()))
        self.optimizer.load_state_dict({"step": taken, "slices": found})

    def _wrong(
        self, folder: Path, files: Mapping[str, str], state: Mapping[str, Boxes]
    ) -> dict[str, str]:
        """What is damaged, of this rank's share of the files, or does not fit what it holds."""
        rank, world = (0, 1) if self.group is None else (dist.get_rank(), dist.get_world_size())
        wrong = {
            name: "is damaged"
            for name in sorted(files)[rank::world]
            if not (folder / name).is_file() or digest(folder / name) != files[name]
        }
        try:
            saved = read_index(folder / INDEX).state_dict_metadata
        except (OSError, ForeignError) as error:
            return {**wrong, INDEX: f"is refused: {error}"}
        for name, boxes in state.items():
            if name not in saved:
                wrong[name] = "is missing"
            elif saved[name].size != boxes.shape:
                wrong[name] = f"is {list(saved[name].size)}, here {list(boxes.shape)}"
        return wrong

    # ── Agreement ─────────────────────────────────────────────────────────────

    def _agreed(self, decide: Callable[[], Any]) -> Any:
        """What `decide` returns on the first rank, on every rank; what it raises, too."""
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = decide()
            except (OSError, CheckpointError, Damaged) as error:
                answer[1] = str(error)
        if self.group is not None:
            dist.broadcast_object_list(answer, src=0, group=self.group)
        if answer[1] is not None:
            raise CheckpointError(answer[1])
        return answer[0]

    def _gathered(self, own: dict[str, str]) -> dict[str, str]:
        """The entries of all ranks together, on every rank."""
        if self.group is None:
            return own
        every: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(every, own, group=self.group)
        return {name: value for one in every for name, value in one.items()}
