"""What torchtitan cannot express, told at the field that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from parlay.compiler.backends.complete import steps_of
from parlay.compiler.backends.torchtitan.options import NEWEST, VERSIONS, place_of, version_of
from parlay.compiler.backends.torchtitan.options import sections as known_sections
from parlay.compiler.backends.torchtitan.settings import SCHEDULES, passed, sections
from parlay.compiler.layout import Layout
from parlay.compiler.layout.orders import dense_grid, expert_grid
from parlay.compiler.spec.blocks import Model, Spec, Train
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.nearest import nearest
from parlay.runtime.axes import Grid

CODE: Final = "B330"
VERSION: Final = "B331"
UNKNOWN: Final = "B332"
CONTRADICTS: Final = "B333"
PLACE: Final = "target.torchtitan.options."

EXPRESSED: Final[dict[str, tuple[Any, ...]]] = {
    "model.activation": ("swiglu",),
    "model.norm": ("rmsnorm",),
    "model.norm_bias": (False,),
    "model.norm_placement": ("before",),
    "model.embedding_norm": (False,),
    "model.final_norm": (True,),
    "model.position": ("rope",),
    "model.rope.partial": (1.0,),
    "model.rope.scaling": (1.0,),
    "model.rope_scaling": (None, "llama3"),
    "model.bias": ((),),
    "model.dropout": (0.0,),
    "model.qk_norm": ("none", "per_head"),
    "model.sinks": (False,),
    "model.window": (None,),
    "model.softcap": (None,),
    "model.parallel_blocks": (False,),
    "model.shared_norm": (False,),
    "model.mtp_layers": (0,),
    "model.mla": (None,),
    "model.experts.aux_loss": (0.0,),
    "model.experts.z_loss": (0.0,),
    "model.experts.shared_gate": (False,),
    "model.experts.capacity": (None,),
    "model.experts.node_limit": (None,),
    "parallel.etp": (1,),
    "parallel.zero": (0, 2, 3),
    "parallel.overlap": (True,),
    "train.precision": ("fp32", "bf16"),
    "train.gradients": ("fp32",),
    "train.optimizer": ("adamw",),
    "train.optimizer.states": ("fp32",),
    "train.optimizer.kahan": (False,),
    "train.recompute": ("none", "full"),
    "train.recompute.first": (None,),
    "train.recompute.every": (None, 1),
    "train.attention": ("flash",),
    "train.lora": (None,),
    "train.weights": (None,),
    "data.format": ("text",),
    "data.validation": (0.0,),
    "data.packing": (True,),
}
"""The values of each field that a configuration can have; a field that is not here is a size."""


def refusals_of(phase: Phase, layout: Layout) -> Iterator[Diagnostic]:
    """One diagnostic for each field whose value cannot be expressed; the phase is whole."""
    spec = phase.spec
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    target = phase.targets.get("torchtitan")
    written = (target.version if target else None) or NEWEST
    if version_of(written) is None:
        known = ", ".join(f'"{version}"' for version in VERSIONS)
        span = phase.origins.span("target.torchtitan.version")
        said = f'torchtitan "{written}" is not known'
        yield error(VERSION, said, span, "another version", help=[f"known are {known}"])
        return
    for path, values in EXPRESSED.items():
        value = value_at(spec, path)
        if value is not _ABSENT and value not in values:
            yield _refused(phase, path, values)
    yield from _model(phase, model, train)
    yield from _layout(phase, spec, layout)
    yield from _surroundings(phase, spec, train)
    if steps_of(phase) is not None:
        yield from _options(phase)


_ABSENT: Final = object()


def value_at(spec: Spec, path: str) -> Any:
    """The value of a field by its path, a variant's name; `_ABSENT` below what is not there."""
    value: Any = spec
    *above, name = path.split(".")
    for part in above:
        value = getattr(value, part, None)
        if value is None:
            return _ABSENT
    if hasattr(value, "options"):
        return value.options.get(name, _ABSENT)
    value = getattr(value, name, None)
    return value.name if hasattr(value, "options") else value


def _refused(phase: Phase, path: str, values: tuple[Any, ...]) -> Diagnostic:
    origin = phase.origins.get(path)
    name = path.rpartition(".")[2]
    what = f"`{name} = {origin.shown}`" if origin else f"`{name}`"
    known = ", ".join(f"`{shown}`" for value in values if (shown := _shown(value)))
    return told(phase, path, what, help=f"it expresses {known}" if known else "")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value == () else "" if value is None else str(value)


def told(
    phase: Phase, path: str, what: str, *, words: str = "not expressed", help: str = ""
) -> Diagnostic:
    """The error at a field that asks for what torchtitan lacks."""
    place, label = phase.origins.label(path, words)
    said = f"target torchtitan cannot express {what}"
    return error(CODE, said, place, label, help=[help] if help else [])


def family_of(model: Model) -> str:
    """The model of torchtitan whose blocks the configuration is made of."""
    return "llama3" if model.experts is None and model.qk_norm == "none" else "qwen3"


def _model(phase: Phase, model: Model, train: Train) -> Iterator[Diagnostic]:
    scaled = model.rope_scaling is not None and model.rope_scaling.name == "llama3"
    if scaled and family_of(model) != "llama3":
        words = "its pairs of neighbours alone are stretched by bands"
        shown = "`llama3` beside experts or norms of queries"
        yield told(phase, "model.rope_scaling", shown, words=words)
    if model.rope is not None and model.head_dim % 2:
        yield told(phase, "model.head_dim", "an odd width of a head", words="turned in pairs")
    if train.seq > (model.context or train.seq):
        yield told(phase, "train.seq", "sequences beyond `context`", words="beyond the positions")
    if (train.master == "fp32") == (train.precision == "fp32"):
        words = "no second copy of fp32" if train.precision == "fp32" else "fp32 beside bf16"
        shown = f"`master = {train.master}` with {train.precision}"
        yield told(phase, "train.master", shown, words=words)


def _layout(phase: Phase, spec: Spec, layout: Layout) -> Iterator[Diagnostic]:
    parallel = spec.parallel
    if parallel.pp > 1 and parallel.schedule.name not in SCHEDULES:
        shown, known = parallel.schedule.name, ", ".join(f"`{name}`" for name in SCHEDULES)
        yield told(phase, "parallel.schedule", f"`{shown}`", help=f"it expresses {known}")
    if parallel.pp == 1 and parallel.schedule.name in ("interleaved", "zbv", "dualpipe_v"):
        yield told(phase, "parallel.schedule", "chunks at pp = 1", words="they need a pipeline")
    if spec.model is not None and spec.model.tied_embeddings and parallel.pp > 1:
        shown = "tied embeddings in a pipeline"
        yield told(phase, "model.tied_embeddings", shown, words="held by both ends")
    grids = [(layout.dense, dense_grid(_with_order(parallel)))]
    expert = expert_grid(_with_order(parallel), world=layout.world)
    if layout.expert is not None and expert is not None and parallel.ep > 1:
        grids.append((layout.expert, expert))
    if not all(_equal(ours, theirs) for ours, theirs in grids):
        words = "its ranks stand in tp, cp, dp, pp"
        help = "`order = [tp, cp, dp, pp]`"
        yield told(phase, "parallel.order", "this order", words=words, help=help)
    if parallel.zero and (parallel.shard % parallel.cp or parallel.shard < parallel.cp):
        words = "cp is inside of every part"
        shown = f"`shard = {parallel.shard}` with cp = {parallel.cp}"
        yield told(phase, "parallel.shard", shown, words=words)
    if parallel.zero == 0 and parallel.cp > 1:
        words = "weights are sharded over cp at least"
        yield told(phase, "parallel.zero", "cp without sharding", words=words, help="`zero = 3`")
    offload = parallel.offload
    if offload.name == "nvme" or (
        offload.name == "cpu"
        and (set(offload.flags) != {"optimizer", "params"} or not parallel.zero)
    ):
        help = "`cpu(optimizer, params)` with `zero = 3`"
        yield told(phase, "parallel.offload", f"`{offload.name}` of a part", help=help)


def _with_order(parallel: Any) -> Any:
    from dataclasses import replace

    return replace(parallel, order=("tp", "cp", "ep", "dp", "pp"))


def _equal(ours: Grid, theirs: Grid) -> bool:
    return all(
        ours.stride(axis) == theirs.stride(axis) for axis in ours.axes if ours.size(axis) > 1
    )


def _surroundings(phase: Phase, spec: Spec, train: Train) -> Iterator[Diagnostic]:
    if steps_of(phase) is None:
        words = "neither `steps` nor `tokens`"
        yield told(phase, "train.steps", "training without an end", words=words)
        return
    schedule, steps = train.lr_schedule, steps_of(phase) or 0
    if schedule["warmup"] > steps:
        shown, words = f"a warm-up of {schedule['warmup']} in {steps} steps", "cut to the steps"
        yield told(phase, "train.lr_schedule.warmup", shown, words=words)
    elif schedule.name == "wsd" and schedule["warmup"] + schedule["decay"] > steps:
        shown = f"{schedule['warmup']} + {schedule['decay']} steps of warm-up and decay in {steps}"
        yield told(phase, "train.lr_schedule.decay", shown, words="cut to what is left")
    if schedule.name != "constant" and schedule["min_lr"] > train.optimizer["lr"]:
        words = "no more than the peak"
        yield told(phase, "train.lr_schedule.min_lr", "a rise to `min_lr`", words=words)
    if spec.data.path is None:
        help = '`data { path = "…", tokenizer = "…" }`, folders as Hugging Face has them'
        yield told(phase, "data.path", "training without data", words="no `path`", help=help)
    elif spec.data.tokenizer is None:
        yield told(phase, "data.tokenizer", "text without a tokenizer", words="no `tokenizer`")
    checkpoint = spec.checkpoint
    if checkpoint.path is None and checkpoint.every is not None:
        yield told(phase, "checkpoint.path", "saves without `path`", words="no folder")
    if checkpoint.keep == 1:
        yield told(phase, "checkpoint.keep", "`keep = 1`", words="two at least", help="`keep = 2`")
    if len(train.optimizer.get("betas", (0, 0))) != 2:
        yield told(phase, "train.optimizer.betas", "other than two betas", words="two moments")


def _options(phase: Phase) -> Iterator[Diagnostic]:
    target = phase.targets.get("torchtitan")
    if spec_unfit(phase):
        return
    ours = sections(phase)
    options = (target.options if target else None) or {}
    for name, value in options.items():
        span = phase.origins.span(PLACE + name)
        place = place_of(name, NEWEST)
        if place is None:
            said = f"torchtitan has no setting {name} in one section"
            help = _near(name) or ["`section_name` where several sections have it"]
            yield error(UNKNOWN, said, span, "not known", help=help)
            continue
        given = passed(phase)[place]
        if ours[place[0]][place[1]] != given:
            said = f"`{name} = {_shown(value)}` contradicts the file"
            notes = [f"by the file's fields it is {_shown(ours[place[0]][place[1]]) or 'not set'}"]
            yield error(
                CONTRADICTS, said, span, "a field decides it", notes=notes, help=["it may go"]
            )


def _near(name: str) -> list[str]:
    """The settings that a name of none may stand for, each as an option is written."""
    settings = [each for names in known_sections(NEWEST).values() for each in names]
    close = [each for each in nearest(name, settings) if place_of(each, NEWEST)]
    return [f"nearest: {', '.join(f'`{each}`' for each in close)}"] if close else []


def spec_unfit(phase: Phase) -> bool:
    """Whether the sections cannot be made at all, for a reason already told."""
    parallel = phase.spec.parallel
    return (parallel.pp > 1 and parallel.schedule.name not in SCHEDULES) or bool(
        parallel.zero and (parallel.shard % parallel.cp or parallel.shard < parallel.cp)
    )
