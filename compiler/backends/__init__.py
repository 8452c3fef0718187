"""The back ends: what each can express, and its files from a checked phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

from parlay.compiler.backends.emission import Emission
from parlay.compiler.layout import Layout
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, Severity
from parlay.dsl.source import Source


@dataclass(frozen=True, slots=True)
class Target:
    """A back end by name: `module` has `emit(phase, layout, sources)` and `refusals(phase)`."""

    module: str
    says: str


TARGETS: Final[Mapping[str, Target]] = {
    "torch": Target(
        "parlay.compiler.backends.torch",
        "PyTorch training code for dense decoders, latent attention and mixtures of experts: tp, "
        "pp by every schedule, cp by every method, ep and etp, dp with ZeRO 0 to 3 "
        "and HSDP; fp32, bf16 and fp16; adapters, recompute, offloading; saves, and runs that go "
        "on from them; launch and batch scripts",
    ),
    "deepspeed": Target(
        "parlay.compiler.backends.deepspeed",
        "a configuration and a training script for DeepSpeed 0.19: dense decoders, dp with ZeRO 0 "
        "to 3 and offloading, pp by its 1F1B, cp by ulysses",
    ),
    "torchtitan": Target(
        "parlay.compiler.backends.torchtitan",
        "a configuration for torchtitan 0.3: tp, pp by PyTorch's schedules, cp, ep, dp with FSDP "
        "and HSDP; the Llama family and its mixtures of experts",
    ),
    "megatron": Target(
        "parlay.compiler.backends.megatron",
        "arguments and launch script for Megatron-LM, core 0.16 to 0.20: tp, pp by one_f_one_b "
        "and interleaved, cp, ep, etp, dp with ZeRO, latent attention and experts",
    ),
    "accelerate": Target(
        "parlay.compiler.backends.accelerate",
        "a configuration for Accelerate 1.15, the training script being yours: dp by FSDP2 (ZeRO "
        "2 and 3, HSDP) with tp and cp, by DeepSpeed (ZeRO 1 to 3, parts on the host), or whole",
    ),
    "slurm": Target(
        "parlay.compiler.backends.slurm",
        "a batch script that starts the code of the target torch, megatron or deepspeed asked for "
        "beside it, or of `entry`: rendezvous, logs, NCCL by fabric, a save before the time limit",
    ),
    "kubernetes": Target(
        "parlay.compiler.backends.kubernetes",
        "a TrainJob for Kubeflow Trainer 2.2 to 2.4, with the code of the target torch, megatron "
        "or deepspeed asked for beside it, or of `entry`, in a ConfigMap",
    ),
}

STARTS_OTHERS: Final = ("slurm", "kubernetes")
"""Targets whose files start the code of another one, asked for beside them or named by the file."""

Emitter = Callable[[Phase, Layout, Mapping[str, Source]], Emission]


def emitter(target: str, beside: Sequence[str] = ()) -> Emitter:
    """The emitting function of a known target; `beside` are the targets asked for with it."""
    found: Any = import_module(TARGETS[target].module)
    if target in STARTS_OTHERS:
        return partial(found.emit, beside=beside)
    return found.emit  # type: ignore[no-any-return]


def refusals(target: str, phase: Phase, beside: Sequence[str] = ()) -> Iterator[Diagnostic]:
    """What the rules of a target find, and every field that it cannot express.

    `beside` are the targets asked for with it, which tell their own.
    """
    from parlay.compiler.backends.rules import found

    told = list(found(target, phase))
    yield from told
    # What a rule calls an error is not told again by what cannot be emitted.
    places = {each.span for each in told if each.severity is Severity.ERROR}
    module: Any = import_module(TARGETS[target].module)
    of_code = module.refusals(phase, *([beside] if target in STARTS_OTHERS else []))
    for each in _as_far_as_known(phase, of_code):
        if each.span not in places and each not in told:
            yield each


def _as_far_as_known(phase: Phase, told: Iterator[Diagnostic]) -> Iterator[Diagnostic]:
    """What refusals tell until they come to a field in error, whose value is None.

    Such a field is told by itself, and which others a refusal reads it alone knows: it is not to
    ask of each whether it is there.
    """
    try:
        yield from told
    except (TypeError, AttributeError):
        if not phase.origins.broken:
            raise
