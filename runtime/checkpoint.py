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
from collections.abc import Mapping
from itertools import count, takewhile
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime.boxes import Boxes, Saving
from parlay.runtime.committed import (
    committed,
    digest,
    last_of,
    read_manifest,
    sync_folder,
    write_manifest,
)
from parlay.runtime.foreign import INDEX, Writer
from parlay.runtime.mesh import Axis
from parlay.runtime.optimizer import Optimizer
from parlay.runtime.plan import Plan
from parlay.runtime.saved import CheckpointError, Saved
from parlay.runtime.scaling import LossScale
from torch import Tensor
from torch.distributed.checkpoint import save


class Checkpoints(Saved):
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
        super().__init__(plan, tp=tp)
        self.optimizer, self.scale = optimizer, scale
        asked = plan.checkpoint
        self.folder = Path(os.environ.get("PARLAY_OUT") or folder) / asked.path
        self.every, self.keep, self.beside = asked.every, asked.keep, asked.asynchronous
        self.under_way: Thread | None = None
        self.failure: BaseException | None = None

    def resume(self) -> int:
        """The first step to take: 0, or where `$PARLAY_RESUME` asks to go on, the one after the
        last save, whose state the optimizer has now. Without it, earlier saves are not run over."""
        wanted = os.environ.get("PARLAY_RESUME", "") not in ("", "0")
        found = self.agreed(lambda: self._found(wanted))
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
            f"{kind}.{name}": self.boxes(places[name], owned["offset"], owned[kind])
            for name, owned in slices.items()
            for kind in ("master", *self.optimizer.kinds)
        }

    # ── Writing ───────────────────────────────────────────────────────────────

    def _beside(self, state: dict[str, Boxes], step: int, scaled: dict[str, Any]) -> None:
        try:
            self._write(state, step, scaled)
        except BaseException as failure:
            self.failure = failure

    def _write(self, state: dict[str, Boxes], step: int, scaled: dict[str, Any]) -> None:
        """Each rank writes and syncs its part; the first commits once all have."""
        name = f"step-{step:08}"
        staged = self.folder / self.agreed(lambda: self._fresh(name))
        save(
            dict(state),
            storage_writer=Writer(staged),
            planner=Saving(),
            process_group=self.group,
        )
        # Asked for by name: a list of the folder would have the files of thousands of ranks.
        rank = 0 if self.group is None else dist.get_rank()
        own = (staged / f"__{rank}_{n}.distcp" for n in count())
        written = [*takewhile(Path.is_file, own), *([staged / INDEX] if self.first else [])]
        files = self.on_first({path.name: digest(path) for path in written})
        if self.first:
            sync_folder(staged)
        self.agreed(lambda: self._commit(staged, name, files, step, scaled))

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
        if told := self.wrong(folder, files, self._state(state)):
            raise CheckpointError(f"{folder} cannot be gone on from: {told}")
        # On the host: the device holds the state once already. Rows of padding are zeros.
        found = {
            name: {
                key: torch.zeros_like(value, device="cpu") if isinstance(value, Tensor) else value
                for key, value in owned.items()
            }
            for name, owned in state.items()
        }
        self.read(folder, files, self._state(found))
        taken = manifest["step"]
        if self.scale is not None:
            taken = manifest.get("taken", taken)
            self.scale.load_state_dict(manifest.get("loss_scale", self.scale.state_dict()))
        self.optimizer.load_state_dict({"step": taken, "slices": found})
