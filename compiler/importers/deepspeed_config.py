"""ds_config.json by its keys, each taken once; sizes of the batch, degrees, and ZeRO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any, Final

from parlay.compiler.importers.deepspeed_files import Job
from parlay.compiler.importers.written import Draft, in_range, switch

MISSING: Final = object()
AUTO: Final = "auto"

ARGUMENTS: Final[Mapping[str, str]] = {
    "train_micro_batch_size_per_gpu": "per-device-train-batch-size",
    "gradient_accumulation_steps": "gradient-accumulation-steps",
    "gradient_clipping": "max-grad-norm",
    "optimizer.params.lr": "learning-rate",
    "optimizer.params.eps": "adam-epsilon",
    "optimizer.params.weight_decay": "weight-decay",
    "scheduler.params.warmup_max_lr": "learning-rate",
    "scheduler.params.warmup_num_steps": "warmup-steps",
    "scheduler.params.total_num_steps": "max-steps",
}
"""Keys that may be `auto`, and the option of Hugging Face's Trainer that then says their value."""

USUAL: Final[Mapping[str, Any]] = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "optimizer.params.lr": 5e-5,
    "optimizer.params.betas": [0.9, 0.999],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.weight_decay": 0.0,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_num_steps": 0,
}
"""What that Trainer puts in the place of `auto` where no option is given."""

FLAGS: Final[Mapping[str, str]] = {"bf16.enabled": "bf16", "fp16.enabled": "fp16"}


class Config:
    """The keys of a configuration by their paths; what nothing takes is the rest."""

    def __init__(self, job: Job, draft: Draft) -> None:
        self._job, self._draft = job, draft
        self._values = dict(_flat(job.config, ""))
        self._taken: set[str] = set()

    def has(self, path: str) -> bool:
        """Whether a key is there, a section counting as one."""
        return any(name == path or name.startswith(f"{path}.") for name in self._values)

    def raw(self, path: str, *, known: bool = False) -> Any:
        """The value of a key, taken; None where it is absent, or `auto` and nothing says it.

        `known` says that it follows from other keys where it is `auto`.
        """
        self._taken.add(path)
        value = self._values.get(path)
        if value != AUTO:
            return value
        return None if known else self._said(path)

    def _said(self, path: str) -> Any:
        """What the command line says of a key that is `auto`."""
        if path in FLAGS and self._job.script:
            return self._job.flag(FLAGS[path])
        if path == "optimizer.params.betas" and (betas := self.betas()):
            return betas
        text = self._job.argument(ARGUMENTS[path]) if path in ARGUMENTS else None
        if text is None and path in USUAL:
            usual = USUAL[path]
            self._draft.assumed.append(f"{path} = {usual}: auto, which Hugging Face's Trainer sets")
            return usual
        if text is None:
            self._draft.lost.append(f"{path} = auto: the training script decides it")
            return None
        try:
            return float(text) if "." in text or "e" in text.lower() else int(text)
        except ValueError:
            self._draft.lost.append(f"{path} = auto, which is {text}: no number")
            return None

    def betas(self) -> list[float] | None:
        """The decay rates of the moments, where the command line has one of them."""
        given = [self.argument(f"adam-beta{n}") for n in (1, 2)]
        if given == [None, None]:
            return None
        usual = zip(given, (0.9, 0.999), strict=True)
        return [default if value is None else value for value, default in usual]

    def argument(self, option: str) -> float | None:
        """A number of the command line; what is none is told and stays out."""
        text = self._job.argument(option)
        try:
            found = None if text is None else float(text)
        except ValueError:
            found = -1.0
        if found is not None and not (0 <= found < 1e15 and in_range(found)):
            self._draft.lost.append(f"--{option} {text}: no number")
            return None
        return found

    def word(self, option: str) -> str | None:
        """A word of the command line."""
        return self._job.argument(option)

    def is_auto(self, path: str) -> bool:
        """Whether a key is left to the training script."""
        return self._values.get(path) == AUTO

    def whole(self, path: str, *, known: bool = False) -> int | None:
        """A whole number; what is none is told and stays out."""
        value = self.raw(path, known=known)
        if value is None:
            return None
        if not _is_whole(value):
            self._unfit(path, value, "whole number")
            return None
        return int(value)

    def real(self, path: str, default: float) -> float:
        """A number that is not negative; what is none is told, and the default stands."""
        value = self.raw(path)
        if value is None:
            return default
        if not _is_real(value):
            self._unfit(path, value, "number")
            return default
        return float(value)

    def flag(self, path: str, default: bool = False) -> bool:
        """A switch."""
        value = self.raw(path)
        if value is not None and not isinstance(value, bool):
            self._unfit(path, value, "switch")
        return value if isinstance(value, bool) else default

    def text(self, path: str, default: str = "") -> str:
        """A string."""
        value = self.raw(path)
        if value is not None and not isinstance(value, str):
            self._unfit(path, value, "string")
        return value if isinstance(value, str) else default

    def reals(self, path: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of numbers."""
        value = self.raw(path)
        if value is None:
            return default
        if not isinstance(value, list) or not all(map(_is_real, value)):
            self._unfit(path, value, "list of numbers")
            return default
        return tuple(map(float, value))

    def rest(self) -> Iterator[tuple[str, Any]]:
        """What nothing has taken, by its path."""
        yield from ((n, value) for n, value in self._values.items() if n not in self._taken)

    def _unfit(self, path: str, value: Any, kind: str) -> None:
        self._draft.lost.append(f"{path} = {str(value)[:200]}: no {kind}")


def _is_real(value: Any) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and value >= 0 and in_range(value)


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1e15 and value == int(value)


def _flat(values: Mapping[str, Any], prefix: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value and depth < 8:
            yield from _flat(value, f"{path}.", depth + 1)
        else:
            yield path, value


# ── Blocks ────────────────────────────────────────────────────────────────────


def degrees(config: Config) -> dict[str, int]:
    """tp, pp, cp and ep, as far as the configuration has them."""
    names = {
        "tp": ("tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size"),
        "pp": ("pipeline.stages",),
        "cp": ("sequence_parallel_size",),
        "ep": ("expert_parallel.autoep_size",),
    }
    found = {}
    for axis, paths in names.items():
        sizes = [size for path in paths if (size := config.whole(path))]
        found[axis] = max(1, *sizes) if sizes else 1
    return found


def batch(config: Config, draft: Draft, dp: int | None) -> tuple[int, int, int]:
    """Micro-batch, microbatches and replicas, by train_batch_size = micro · microbatches · dp.

    Of two that are given the third follows; of one, one microbatch a step, as DeepSpeed takes it.
    """
    micro, steps = (
        config.whole(name)
        for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    total = config.whole("train_batch_size", known=micro is not None and steps is not None)
    if dp is None and total and micro and total % (micro * (steps or 1)) == 0:
        dp = total // (micro * (steps or 1))
    dp = dp or (gcd(total, 8) if total else 8)
    if micro is None and total is not None:
        micro = max(1, total // (dp * (steps or 1)))
    if micro is None:
        micro = 1
        draft.assumed.append("micro_batch = 1: no size of a batch is given")
    if steps is None:
        steps = max(1, total // (micro * dp)) if total else 1
    if total is not None and total != micro * steps * dp:
        said = f"{total} is not {micro} · {steps} · {dp}"
        draft.lost.append(f"train_batch_size: {said}, {micro * steps * dp} is written")
    draft.set("train.micro_batch", str(micro))
    draft.set("train.global_batch", str(micro * steps * dp))
    return micro, steps, dp


def sharding(config: Config, draft: Draft) -> None:
    """ZeRO, what leaves the GPU, and what overlaps."""
    section = "zero_optimization"
    stage = config.whole(f"{section}.stage") or 0
    if stage > 3:
        draft.lost.append(f"{section}.stage = {stage}: zero = 3 is written")
    draft.set("parallel.zero", str(min(3, stage)))
    devices = {
        part: config.text(f"{section}.{name}.device", "none")
        for part, name in (("optimizer", "offload_optimizer"), ("params", "offload_param"))
    }
    if config.flag(f"{section}.cpu_offload"):
        devices["optimizer"] = "cpu"
    parts = [part for part, device in devices.items() if device in ("cpu", "nvme")]
    kinds = {devices[part] for part in parts}
    if len(kinds) > 1:
        draft.lost.append("optimizer and params on different devices: cpu is written")
    if parts:
        device = "cpu" if "cpu" in kinds else "nvme"
        draft.set("parallel.offload", f"{device}({', '.join(parts)})")
    if (shard := config.whole("zero_optimization.mics_shard_size")) and shard > 0:
        draft.set("parallel.shard", str(shard))
    path = f"{section}.overlap_comm"
    # Left out, it is on in the third stage alone.
    overlaps = config.flag(path, stage == 3)
    if stage or config.has(path):
        draft.set("parallel.overlap", switch(overlaps))
