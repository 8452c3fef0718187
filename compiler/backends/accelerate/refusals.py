"""What Accelerate's configuration cannot express, told at the field that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from parlay.compiler.backends.accelerate.options import (
    ENGINES,
    FREE,
    GOVERNED,
    NEWEST,
    PLACE,
    TOP,
    VERSIONS,
    given,
    section_of,
)
from parlay.compiler.backends.accelerate.settings import METHODS, configuration, engine_of
from parlay.compiler.layout import Layout
from parlay.compiler.layout.orders import dense_grid
from parlay.compiler.spec.blocks import Parallel, Spec, Train
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error, note, warning
from parlay.dsl.nearest import nearest

CODE: Final = "B370"
VERSION: Final = "B371"
UNKNOWN: Final = "B372"
CONTRADICTS: Final = "B373"
NOT_APPLIED: Final = "B374"
THE_SCRIPTS: Final = "B375"

HEAD: Final = "the head of accelerate.yaml lists what the script has to set"
NAMES: Final = {"fsdp": "FSDP2", "deepspeed": "DeepSpeed", "ddp": "plain replicas", "single": ""}


def refusals_of(phase: Phase, layout: Layout) -> Iterator[Diagnostic]:
    """One diagnostic for each field whose value cannot be expressed; the phase is whole."""
    spec = phase.spec
    train = spec.train
    assert train is not None
    target = phase.targets.get("accelerate")
    written = (target.version if target else None) or NEWEST
    if written not in VERSIONS:
        span = phase.origins.span("target.accelerate.version")
        known = ", ".join(f'"{version}"' for version in VERSIONS)
        said = f'Accelerate "{written}" is not known'
        yield error(VERSION, said, span, "another version", help=[f"known are {known}"])
        return
    engine = engine_of(phase, layout)
    told = [
        *_axes(phase, spec, layout),
        *_recipe(phase, train, engine),
        *ENGINE_RULES[engine](phase, spec.parallel),
        *_offload(phase, spec.parallel, engine),
        *_options(phase, layout, engine),
    ]
    yield from told
    otherwise = list(_not_applied(phase, train, engine))
    yield from otherwise
    if not told and not otherwise:
        yield note(
            THE_SCRIPTS,
            "the configuration says nothing of model, data and optimizer",
            phase.origins.block("train"),
            "the training script's to carry",
            help=[HEAD],
        )


def told(
    phase: Phase, path: str, what: str, *, words: str = "not expressed", help: str = ""
) -> Diagnostic:
    """The error at a field that asks for what Accelerate lacks."""
    place, label = phase.origins.label(path, words)
    said = f"target accelerate cannot express {what}"
    return error(CODE, said, place, label, help=[help] if help else [])


# ── Every engine ──────────────────────────────────────────────────────────────


def _axes(phase: Phase, spec: Spec, layout: Layout) -> Iterator[Diagnostic]:
    parallel, cluster = spec.parallel, spec.cluster
    assert cluster is not None
    for axis, what in (("pp", "a pipeline"), ("ep", "experts over ranks"), ("etp", "cut experts")):
        if getattr(parallel, axis) > 1:
            help = "the targets torchtitan and megatron do"
            yield told(phase, f"parallel.{axis}", what, words="no such degree", help=help)
    if parallel.tp > 1 and parallel.sequence_parallel:
        words = "the plan of the model's class leaves them whole"
        what, help = "norms cut along the sequence over tp", "`sequence_parallel = off`"
        yield told(phase, "parallel.sequence_parallel", what, words=words, help=help)
    if parallel.pp == 1 and not _in_order(parallel, layout):
        words, help = "its ranks stand in tp, cp, dp", "`order = [tp, cp, dp, pp]`"
        yield told(phase, "parallel.order", "this order", words=words, help=help)
    link = cluster.node.link
    if link is not None and link.kind == "shared_memory":
        what = "ranks without a GPU"
        yield told(phase, "cluster.node.link.kind", what, words="processes of one machine")


def _in_order(parallel: Parallel, layout: Layout) -> bool:
    theirs = dense_grid(replace(parallel, order=("tp", "cp", "ep", "dp", "pp")))
    ours = layout.dense
    return all(
        ours.stride(axis) == theirs.stride(axis) for axis in ours.axes if ours.size(axis) > 1
    )


def _recipe(phase: Phase, train: Train, engine: str) -> Iterator[Diagnostic]:
    precision, master = train.precision, train.master
    if precision not in ("fp32", "fp16", "bf16"):
        help = "`bf16`: a script that chooses a library for narrower products can be started by it"
        yield told(phase, "train.precision", f"`precision = {precision}`", help=help)
    elif precision == "fp32" and master == "fp32":
        yield told(phase, "train.master", "a second copy of fp32", words="the weights are fp32")
    elif master == "none" and (
        precision == "fp16" or (precision == "bf16" and engine == "deepspeed")
    ):
        what = f"`master = none` with {precision}"
        yield told(phase, "train.master", what, words="updated in fp32", help="`master = fp32`")
    if engine == "ddp" and train.gradients == "bf16" and precision != "fp32" and master == "fp32":
        what = "`gradients = bf16` of fp32 weights"
        yield told(phase, "train.gradients", what, words="gradients have the weights' dtype")
    recompute = train.recompute
    if engine == "fsdp" and recompute.name != "none":
        whole = recompute.get("first") is None and recompute.get("every") in (None, 1)
        if recompute.name == "selective" or not whole:
            what, help = f"`{recompute.name}` of a part", "it has `none` and `full`"
            yield told(phase, "train.recompute", what, words="every layer, or none", help=help)


# ── Each engine ───────────────────────────────────────────────────────────────


def _fsdp(phase: Phase, parallel: Parallel) -> Iterator[Diagnostic]:
    cp, shard = parallel.cp, parallel.shard
    if parallel.zero < 2:
        what = f"`zero = {parallel.zero}` by FSDP2"
        help = "`zero = 2` keeps gathered weights until the backward, `zero = 3` does not"
        yield told(phase, "parallel.zero", what, words="weights are always cut", help=help)
        return
    if cp > 1 and parallel.cp_method.name not in METHODS:
        what, known = f"`cp_method = {parallel.cp_method.name}` by FSDP2", "`ring` or `allgather`"
        yield told(phase, "parallel.cp_method", what, help=known)
    if shard == 1:
        yield told(phase, "parallel.zero", "sharding over one rank", words="nothing is cut")
    elif shard % cp or shard < cp:
        words, what = "cp is inside of every part", f"`shard = {shard}` with cp = {cp}"
        yield told(phase, "parallel.shard", what, words=words)
    elif shard == cp < parallel.dp * cp:
        words = "dp is cut too, or it is 1"
        what = f"`shard = {shard}`, which cuts weights over cp alone"
        yield told(phase, "parallel.shard", what, words=words)


def _deepspeed(phase: Phase, parallel: Parallel) -> Iterator[Diagnostic]:
    if parallel.tp > 1:
        yield told(
            phase, "parallel.tp", f"`tp = {parallel.tp}` with DeepSpeed", words="no such key"
        )
    if parallel.cp > 1 and parallel.cp_method.name != "ulysses":
        what = f"`cp_method = {parallel.cp_method.name}` with DeepSpeed"
        yield told(phase, "parallel.cp_method", what, help="`ulysses`")
    if parallel.zero and parallel.shard != parallel.dp * parallel.cp:
        what = f"`shard = {parallel.shard}` with DeepSpeed"
        yield told(phase, "parallel.shard", what, words="every rank holds a part")


def _ddp(phase: Phase, parallel: Parallel) -> Iterator[Diagnostic]:
    if parallel.zero:
        what = f"`zero = {parallel.zero}` by plain replicas"
        help = "without `distributed_type` the engine follows from `zero`"
        yield told(phase, "parallel.zero", what, words="nothing is cut", help=help)
    elif parallel.cp > 1:
        words, help = "weights are sharded over cp at least", "`zero = 3`"
        yield told(phase, "parallel.zero", "cp without sharding", words=words, help=help)
    elif parallel.tp > 1 and parallel.dp > 1:
        words, help = "with tp they are sharded", "`zero = 2` or `zero = 3`"
        yield told(phase, "parallel.zero", "plain replicas with tp", words=words, help=help)


ENGINE_RULES: Final[dict[str, Any]] = {
    "fsdp": _fsdp,
    "deepspeed": _deepspeed,
    "ddp": _ddp,
    "single": _ddp,
}


def _offload(phase: Phase, parallel: Parallel, engine: str) -> Iterator[Diagnostic]:
    offload, path = parallel.offload, "parallel.offload"
    if offload.name == "none":
        return
    parts = set(offload.flags)
    if not parts:
        what, help = f"`{offload.name}` of nothing", "`cpu(optimizer)`, `cpu(optimizer, params)`"
        yield told(phase, path, what, words="of which part", help=help)
    elif offload.name == "nvme":
        words, help = "its launcher drops the path", "`cpu(…)`, or the target deepspeed"
        yield told(phase, path, "offloading to disks", words=words, help=help)
    elif engine == "fsdp" and parts != {"optimizer", "params"}:
        yield told(phase, path, "a part offloaded by FSDP2", help="`cpu(optimizer, params)`")
    elif engine == "deepspeed":
        least = 3 if "params" in parts else 1
        if parallel.zero < least:
            words = f"from zero = {least} on"
            yield told(phase, path, f"this offloading at zero = {parallel.zero}", words=words)
    elif engine in ("ddp", "single"):
        yield told(phase, path, "offloading by plain replicas", words="nothing is owned by a rank")


def _not_applied(phase: Phase, train: Train, engine: str) -> Iterator[Diagnostic]:
    """Warnings at fields that the engine reads otherwise, and that no key changes."""
    mixed = train.precision in ("bf16", "fp16") and train.master == "fp32"
    place = phase.origins.label("train.gradients", "not applied")
    if mixed and train.gradients == "fp32" and engine == "fsdp":
        said = f"FSDP2 sums gradients over ranks in {train.precision}, over microbatches in fp32"
        help = "the script: `FullyShardedDataParallelPlugin(mixed_precision_policy=…)`"
        yield warning(NOT_APPLIED, said, *place, help=[help, HEAD])
    if mixed and train.gradients == "fp32" and engine == "deepspeed":
        said = f"DeepSpeed sums gradients in {train.precision} unless its own file says otherwise"
        help = "`communication_data_type` and `grad_accum_dtype`: the target deepspeed writes them"
        yield warning(NOT_APPLIED, said, *place, help=[help, HEAD])
    overlaps = phase.spec.parallel.overlap
    written = phase.origins.kind("parallel.overlap") is not Kind.DEFAULT
    if (engine == "deepspeed" and written) or (engine in ("fsdp", "ddp") and not overlaps):
        said = f"{NAMES[engine]} overlaps traffic as it does by default"
        place = phase.origins.label("parallel.overlap", "not applied")
        yield warning(NOT_APPLIED, said, *place, help=["the field may go", HEAD])


# ── Options ───────────────────────────────────────────────────────────────────


def _options(phase: Phase, layout: Layout, engine: str) -> Iterator[Diagnostic]:
    own = {"fsdp": "fsdp_config", "deepspeed": "deepspeed_config"}.get(engine)
    keys = [key for table in (FREE, GOVERNED) for names in table.values() for key in names]
    for name, value in given(phase).items():
        span = phase.origins.span(PLACE + name)
        place = section_of(name)
        if name == "distributed_type":
            if value not in ENGINES:
                said = f"Accelerate is not asked for `{name}` of this kind"
                help = [f"there are {', '.join(ENGINES)}"]
                yield error(UNKNOWN, said, span, "not known", help=help)
        elif place is None:
            meant = [f"`{each}`" for each in nearest(name, keys)]
            help = [f"did you mean {meant[0]}?"] if meant else []
            yield error(UNKNOWN, f"Accelerate has no key {name}", span, "not known", help=help)
        elif not place[1]:
            made = configuration(phase, layout)
            wanted = (made if place[0] == TOP else made.get(place[0], {})).get(name)
            if wanted != (list(value) if isinstance(value, tuple) else value):
                said = f"`{name}` contradicts the file"
                notes = [f"by the file's fields it is {_written(wanted)}"]
                yield error(
                    CONTRADICTS, said, span, "a field decides it", notes=notes, help=["it may go"]
                )
        elif place[0] in ("fsdp_config", "deepspeed_config") and place[0] != own:
            said = f"`{name}` is a key of another engine than {NAMES[engine] or 'one rank'}"
            yield error(CONTRADICTS, said, span, "not read", help=["`zero` chooses the engine"])
        elif place[0] == "dynamo_config" and phase.spec.train and not phase.spec.train.compile:
            said = f"`{name}` without `compile = on`"
            yield error(CONTRADICTS, said, span, "not read", help=["`compile = on`"])


def _written(value: Any) -> str:
    """A value of the configuration as the language writes it."""
    if value is None:
        return "not set"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
