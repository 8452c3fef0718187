"""What the PyTorch back end cannot express yet, told at the field that asks for it.

Nothing is dropped in silence: whatever a file may say is either emitted or refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from parlay.compiler.backends.complete import missing
from parlay.compiler.backends.slurm.options import refusals_of_options
from parlay.compiler.backends.torch import hugging_face
from parlay.compiler.backends.torch.refusals_context import context_refusals
from parlay.compiler.backends.torch.refusals_data import data_refusals
from parlay.compiler.backends.torch.refusals_experts import expert_refusals
from parlay.compiler.backends.torch.refusals_model import CODE, adapter_refusals, model_refusals
from parlay.compiler.layout.stages import SPLITTING
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error

EXPRESSED: Final[dict[str, tuple[Any, ...]]] = {
    "model.dropout": (0.0,),
    "model.mtp_layers": (0,),
    "parallel.zero": (0, 1, 2, 3),
    "parallel.schedule": (
        "gpipe",
        "one_f_one_b",
        "interleaved",
        "zero_bubble",
        "zbv",
        "dualpipe_v",
        "dualpipe",
    ),
    "parallel.offload": ("none", "cpu"),
    "train.precision": ("fp32", "fp16", "bf16"),
    "train.gradients": ("fp32", "bf16"),
    "train.optimizer": ("adamw", "sgd"),
    "train.optimizer.states": ("fp32", "bf16"),
    "train.optimizer.kahan": (False, True),
    "train.lr_schedule": ("constant", "cosine", "linear", "wsd"),
    "train.recompute": ("none", "selective", "full"),
    "train.attention": ("flash", "math"),
    "train.compile": (False, True),
    "data.packing": (True, False),
}
"""The values of each field that emitted code can have; a field that is not here is a size."""

HELP: Final = {
    "model.dropout": "`dropout = 0`: masks that each rank draws make every layout another run, "
    "which no proof can compare",
}
"""Why, or what instead, where the values that are expressed do not say it."""


def refusals(phase: Phase) -> Iterator[Diagnostic]:
    """One diagnostic for each field whose value the back end cannot express."""
    spec = phase.spec
    yield from refusals_of_options(phase)  # of Slurm's, which job.sbatch is made by
    yield from missing(phase, "torch", CODE)
    if spec.model is None or spec.train is None or spec.model.params is not None:
        return
    for path, values in EXPRESSED.items():
        value = value_at(spec, path)
        if value is not None and value not in values:
            yield _refused(phase, path, values)
    yield from model_refusals(phase, spec.model, spec.train, spec.parallel)
    yield from context_refusals(phase, spec.train, spec.parallel)
    yield from expert_refusals(phase, spec.model, spec.train, spec.parallel)
    yield from adapter_refusals(phase, spec.model, spec.train, spec.parallel)
    yield from data_refusals(phase, spec.model, spec.data)
    yield from _mirrored(phase)
    yield from _weights(phase)
    yield from _master(phase)
    yield from _recompute(phase)
    yield from _compile(phase)
    yield from _offload(phase)
    if spec.train.steps is None and spec.train.tokens is None:
        yield error(
            CODE,
            "training needs an end",
            phase.origins.block("train"),
            "neither `steps` nor `tokens` is given",
            help=["`steps = 1000` ends after so many steps, `tokens = 1T` by a token budget"],
        )


def _mirrored(phase: Phase) -> Iterator[Diagnostic]:
    """Copies of stages whose gradients are sent with each microbatch."""
    parallel = phase.spec.parallel
    known = None not in (parallel.zero, parallel.dp, parallel.cp, parallel.pp, parallel.schedule)
    if not known or parallel.pp == 1 or parallel.schedule.name != "dualpipe":
        return
    if parallel.zero > 1 and parallel.dp * parallel.cp > 1:
        place, words = phase.origins.label("parallel.zero", "sent with each microbatch")
        said = f"target torch cannot express `zero = {parallel.zero}` beside `dualpipe` yet"
        help = "`zero = 1`: the two copies are summed once a step; or `schedule = dualpipe_v`"
        yield error(CODE, said, place, words, help=[help])


def _weights(phase: Phase) -> Iterator[Diagnostic]:
    """Weights that have no names here, or that adapters would be trained on."""
    model, train = phase.spec.model, phase.spec.train
    assert model is not None and train is not None
    if train.weights is None:
        return
    place, words = phase.origins.label("train.weights", "a Hugging Face folder")
    if train.lora is not None:
        said = "target torch reads the weights under adapters from their `base`"
        help = '`lora(base = "…")` takes such a folder too, in place of `weights`'
        yield error(CODE, said, place, words, help=[help])
    elif (unnamed := hugging_face.unnamed(model)) is not None:
        yield error(
            CODE,
            "target torch knows no family of Hugging Face models with this structure",
            place,
            words,
            also=[phase.origins.label(unnamed.path, str(unnamed))],
            help=["without `weights`, initial ones are drawn"],
        )


def value_at(spec: Spec, path: str) -> Any:
    """The value of a field by its path; a setting's own name for a variant."""
    value: Any = spec
    for name in path.split("."):
        if value is None:
            return None
        value = value.get(name) if hasattr(value, "options") else getattr(value, name, None)
    return value.name if hasattr(value, "options") else value


def _refused(phase: Phase, path: str, values: tuple[Any, ...]) -> Diagnostic:
    origin = phase.origins.get(path)
    shown = origin.shown if origin else str(value_at(phase.spec, path))
    owner, _, name = path.rpartition(".")
    place, words = phase.origins.label(path, "not expressed by this target")
    known = ", ".join(f"`{_shown(value)}`" for value in values)
    setting = value_at(phase.spec, owner) if owner.count(".") == 1 else None
    asked = f"{setting}({name} = {shown})" if isinstance(setting, str) else f"{name} = {shown}"
    return error(
        CODE,
        f"target torch cannot express `{asked}` yet",
        place,
        words,
        help=[HELP.get(path) or f"it expresses {known}"] if known else [],
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "absent"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value == () else str(value)


RECOMPUTED: Final = ("core_attention", "mlp", "norm", "activation", "experts")
"""The parts of a layer that are computed again on their own."""


def _recompute(phase: Phase) -> Iterator[Diagnostic]:
    assert phase.spec.train is not None
    asked = phase.spec.train.recompute  # None where it is in error or open
    known = ", ".join(f"`{part}`" for part in RECOMPUTED)
    for part in asked.flags if asked is not None else ():
        if part not in RECOMPUTED:
            place, words = phase.origins.label("train.recompute", "not expressed by this target")
            yield error(
                CODE,
                f"target torch cannot express `recompute = selective({part})` yet",
                place,
                words,
                help=[f"it expresses {known}, and `full` layers"],
            )
    if asked is not None and "norm" in asked.flags:
        yield from _norms_again(phase)


def _norms_again(phase: Phase) -> Iterator[Diagnostic]:
    """Where the output of a norm is not the input of one sublayer, or is needed once more late."""
    model, parallel = phase.spec.model, phase.spec.parallel
    assert model is not None
    beside = {
        "norm_placement": model.norm_placement == "after",
        "shared_norm": model.shared_norm,
        "experts": model.experts is not None,
        "mla": model.mla is not None,
        "schedule": parallel.pp > 1 and parallel.schedule.name in SPLITTING,
    }
    for name in (name for name, there in beside.items() if there):
        place, words = phase.origins.label("train.recompute", "norms before plain sublayers alone")
        what = f"`recompute = selective(norm)` beside `{name}` yet"
        yield error(CODE, f"target torch cannot express {what}", place, words)
        return


def _compile(phase: Phase) -> Iterator[Diagnostic]:
    """Layers that a graph cannot hold as a whole: those that send, or are gathered for it."""
    model, train, parallel = phase.spec.model, phase.spec.train, phase.spec.parallel
    assert model is not None and train is not None
    if not train.compile:
        return
    # A degree in error is None.
    tp, cp, dp, pp = (each or 1 for each in (parallel.tp, parallel.cp, parallel.dp, parallel.pp))
    splits = parallel.schedule is not None and parallel.schedule.name in SPLITTING
    beside = {
        "parallel.tp": tp > 1,
        "parallel.cp": cp > 1,
        "parallel.zero": parallel.zero == 3 and dp > 1,
        "parallel.schedule": pp > 1 and splits,
        "model.experts": model.experts is not None,
        "model.mla": model.mla is not None,
        "model.window": model.window is not None,
        "model.softcap": model.softcap is not None and model.softcap["attention"] > 0,
        "model.position": model.position == "alibi",
        "model.sinks": model.sinks,
        "model.activation": model.activation == "quick_geglu",
        "train.lora": train.lora is not None,
        "train.recompute": train.recompute is not None and "norm" in train.recompute.flags,
    }
    for path in (path for path, there in beside.items() if there):
        place, words = phase.origins.label("train.compile", "layers of plain products alone")
        name = path.rpartition(".")[2]
        yield error(
            CODE,
            f"target torch cannot express `compile = on` beside `{name}` yet",
            place,
            words,
            help=["`compile = off`"],
        )
        return


def _offload(phase: Phase) -> Iterator[Diagnostic]:
    """What goes to the host: masters and moments, where there are masters, and no gradients."""
    train, parallel = phase.spec.train, phase.spec.parallel
    assert train is not None
    offload = parallel.offload
    if offload is None or offload.name != "cpu":
        return
    told: tuple[str, str] | None = None
    if "params" in offload.flags:
        told = "`offload = cpu(params)` yet", "it expresses `cpu(optimizer)`"
    elif (parallel.zero or 0) > 1 and (parallel.dp or 1) > 1:
        told = (
            f"`offload` beside `zero = {parallel.zero}` yet",
            "`zero = 1`, under which gradients stay where they are summed",
        )
    elif train.master != "fp32":
        told = (
            "`offload` without masters",
            "`master = fp32`: the host updates masters, and brings back weights",
        )
    if told is not None:
        place, words = phase.origins.label("parallel.offload", "masters and moments alone")
        yield error(CODE, f"target torch cannot express {told[0]}", place, words, help=[told[1]])


def _master(phase: Phase) -> Iterator[Diagnostic]:
    train = phase.spec.train
    assert train is not None
    if train.precision == "fp32" and train.master == "fp32":
        place, words = phase.origins.label("train.master", "fp32 weights need no second copy")
        yield error(CODE, "target torch keeps no master copy of fp32 weights", place, words)
