"""What DeepSpeed cannot express, told at the field that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from parlay.compiler.backends.complete import steps_of
from parlay.compiler.backends.deepspeed.config import offloaded, on_cpus
from parlay.compiler.backends.deepspeed.options import NEWEST, VERSIONS, version_of
from parlay.compiler.backends.deepspeed.passed import passed
from parlay.compiler.backends.torch.plan_model import windowed
from parlay.compiler.backends.torch.refusals import EXPRESSED as OF_TORCH
from parlay.compiler.backends.torch.refusals import RECOMPUTED, value_at
from parlay.compiler.backends.torch.refusals_data import data_refusals
from parlay.compiler.backends.torch.refusals_model import model_refusals
from parlay.compiler.layout.orders import dense_grid
from parlay.compiler.layout.stages import chunks_of
from parlay.compiler.spec.blocks import Model, Parallel, Spec, Train
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error, warning

CODE: Final = "B340"
VERSION: Final = "B341"
NOT_APPLIED: Final = "B344"

EXPRESSED: Final[dict[str, tuple[Any, ...]]] = {
    # model.py is that of the target torch.
    **{path: values for path, values in OF_TORCH.items() if path.startswith("model.")},
    "model.mla": (None,),
    "model.experts": (None,),
    "parallel.tp": (1,),
    "parallel.ep": (1,),
    "parallel.etp": (1,),
    "parallel.zero": (0, 1, 2, 3),
    "parallel.offload": ("none", "cpu", "nvme"),
    "train.precision": ("fp32", "fp16", "bf16"),
    "train.optimizer": ("adamw",),
    "train.optimizer.states": ("fp32",),
    "train.optimizer.kahan": (False,),
    "train.recompute": ("none", "selective", "full"),
    "train.attention": ("flash", "math"),
    "train.compile": (False,),
    "train.lora": (None,),
    "train.weights": (None,),
    "data.validation": (0.0,),
    "data.packing": (True,),
    "checkpoint.asynchronous": (False,),
}
"""The values of each field that the emitted files can have; one that is not here is a size."""

NAMES: Final = {"checkpoint.asynchronous": "checkpoint.async"}
"""Fields whose attribute has another name than the file's."""

HELP: Final = {
    "parallel.tp": "`tp = 1` with `zero = 3`, or `--target megatron`: train.py has whole matrices",
}


def refusals_of(phase: Phase) -> Iterator[Diagnostic]:
    """One diagnostic for each field whose value cannot be expressed; the phase is whole."""
    spec = phase.spec
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    target = phase.targets.get("deepspeed")
    written = (target.version if target else None) or NEWEST
    if version_of(written) is None:
        known = ", ".join(f'"{version}"' for version in VERSIONS)
        span = phase.origins.span("target.deepspeed.version")
        said = f'DeepSpeed "{written}" is not known'
        yield error(VERSION, said, span, "another version", help=[f"known are {known}"])
        return
    for path, values in EXPRESSED.items():
        value = value_at(spec, path)
        if value not in values and (value is not None or None in values):
            yield _refused(phase, NAMES.get(path, path), values)
    yield from model_refusals(phase, model, train, spec.parallel, target="deepspeed", code=CODE)
    yield from data_refusals(phase, model, spec.data, target="deepspeed", code=CODE)
    if train.precision == "fp16" and on_cpus(spec):
        yield told(phase, "train.precision", "fp16 on CPUs", help="it has `bf16` and `fp32` there")
    else:
        yield from _numbers(phase, train, spec.parallel)
    yield from _layout(phase, spec, spec.parallel)
    yield from _recipe(phase, train)
    if train.optimizer.name == "adamw":
        yield from passed(phase).diagnostics


def _refused(phase: Phase, path: str, values: tuple[Any, ...]) -> Diagnostic:
    origin = phase.origins.get(path)
    name = path.rpartition(".")[2]
    what = f"`{name} = {origin.shown}`" if origin else f"`{name}`"
    known = ", ".join(f"`{shown}`" for value in values if (shown := _shown(value)))
    help = HELP.get(path) or (f"it expresses {known}" if known else "")
    return told(phase, path, what, help=help)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def told(
    phase: Phase, path: str, what: str, *, words: str = "not expressed", help: str = ""
) -> Diagnostic:
    """The error at a field that asks for what DeepSpeed lacks."""
    place, label = phase.origins.label(path, words)
    said = f"target deepspeed cannot express {what}"
    return error(CODE, said, place, label, help=[help] if help else [])


# ── Numbers ───────────────────────────────────────────────────────────────────


def _numbers(phase: Phase, train: Train, parallel: Parallel) -> Iterator[Diagnostic]:
    """Which sums DeepSpeed has for which weights and stage of ZeRO."""
    precision, wide, zero = train.precision, train.gradients == "fp32", parallel.zero
    if (train.master == "fp32") == (precision == "fp32"):
        has = "no second copy" if precision == "fp32" else "a master copy in fp32"
        what = f"`master = {train.master}` with {precision}"
        yield told(phase, "train.master", what, words=f"weights have {has}")
    if not wide and precision != "bf16":
        what = f"bf16 gradients with {precision}"
        yield told(phase, "train.gradients", what, words="fp32 with these weights")
    elif precision != "fp32" and wide and zero == 0:
        what = f"fp32 sums of {precision} gradients with zero = 0"
        help = "`zero = 1`" + (", or `gradients = bf16`" if precision == "bf16" else "")
        words = "summed as wide as the weights without ZeRO"
        yield told(phase, "train.gradients", what, words=words, help=help)
    elif precision == "bf16" and zero == 0 and parallel.pp > 1:
        what = "a bf16 pipeline with zero = 0"
        words = "its optimizer is always cut over dp"
        yield told(phase, "parallel.zero", what, words=words, help="`zero = 1`, `gradients = fp32`")
    elif precision == "fp16" and parallel.pp > 1:
        words = "sums of another width are lost between stages"
        yield told(phase, "train.precision", "an fp16 pipeline", words=words, help="`bf16`")


# ── Layout ────────────────────────────────────────────────────────────────────


def _layout(phase: Phase, spec: Spec, parallel: Parallel) -> Iterator[Diagnostic]:
    if parallel.pp > 1 and parallel.zero > 1:
        what, words = f"zero = {parallel.zero} in a pipeline", "its pipeline has stages 0 and 1"
        yield told(phase, "parallel.zero", what, words=words, help="`zero = 1`")
    name = parallel.schedule.name
    if parallel.pp > 1 and name != "one_f_one_b":
        yield told(phase, "parallel.schedule", f"`{name}`", help="it expresses `one_f_one_b`")
    if parallel.pp == 1 and chunks_of(parallel.schedule) > 1:
        yield told(phase, "parallel.schedule", "chunks at pp = 1", words="they need a pipeline")
    if parallel.zero and parallel.shard != parallel.dp * parallel.cp:
        words = f"ZeRO shards over all {parallel.dp} replicas"
        help = f"without `shard` it is dp · cp; `{PART}` keeps a second copy of weights alone"
        what = f"`shard = {parallel.shard}`"
        yield told(phase, "parallel.shard", what, words=words, help=help)
    if parallel.cp > 1:
        yield from _sequences(phase, spec, parallel)
    yield from _offload(phase, spec, parallel)
    yield from _overlap(phase, spec)
    model = spec.model
    assert model is not None
    if parallel.pp > 1 and model.tied_embeddings and "head" in model.bias:
        what = "a bias of the head with tied embeddings in a pipeline"
        words = "the tied layer has the embedding's weight alone"
        yield told(phase, "model.bias", what, words=words)


def _sequences(phase: Phase, spec: Spec, parallel: Parallel) -> Iterator[Diagnostic]:
    """Ulysses, of neighbouring ranks, each with the same number of heads."""
    model, train, path = spec.model, spec.train, "parallel.cp"
    assert model is not None and train is not None
    name = parallel.cp_method.name
    if name != "ulysses":
        yield told(phase, "parallel.cp_method", f"`{name}`", help="it expresses `ulysses`")
    if parallel.pp > 1:
        yield told(phase, path, "sequences cut in a pipeline", words="with pp above 1")
    narrow = train.precision == "bf16" and train.gradients == "fp32"
    if parallel.zero == 0 or (parallel.zero == 1 and narrow and parallel.offload.name == "none"):
        what = f"zero = {parallel.zero} with cp and {train.precision}"
        words = "its norm leaves out all ranks but the first of a sequence"
        yield told(phase, "parallel.zero", what, words=words, help="`zero = 2`")
    if model.kv_heads % parallel.cp or model.heads % parallel.cp:
        heads = f"{model.kv_heads} key/value heads over {parallel.cp} ranks"
        yield told(phase, path, heads, words="a whole number of heads each")
    for at, what in _beyond_causal(model, train):
        yield told(phase, at, f"{what} under cp", words="its attention takes q, k and v alone")
    if train.attention != "flash":
        yield told(phase, "train.attention", "this kernel under cp", help="`attention = flash`")
    if dense_grid(parallel).stride("cp") != 1:
        words = "neighbouring ranks share a sequence"
        yield told(phase, "parallel.order", "this order", words=words, help="cp first")


def _beyond_causal(model: Model, train: Train) -> Iterator[tuple[str, str]]:
    """What attention is told besides that it is causal: the field, and its name."""
    if windowed(model, train):
        yield "model.window.size", "a window"
    if model.softcap and model.softcap["attention"]:
        yield "model.softcap.attention", "capped scores"
    if model.position == "alibi":
        yield "model.position", "ALiBi"
    if model.sinks:
        yield "model.sinks", "sinks"


PART: Final = "options { zero_hpz_partition_size = … }"


def _offload(phase: Phase, spec: Spec, parallel: Parallel) -> Iterator[Diagnostic]:
    offload, path = parallel.offload, "parallel.offload"
    if offload.name == "none":
        return
    least = 3 if "params" in offload.flags or offload.name == "nvme" else 1
    if parallel.zero < least:
        what = f"this with zero = {parallel.zero}"
        yield told(phase, path, what, words="what a rank owns", help=f"`zero = {least}`")
    elif parallel.pp > 1:
        yield told(phase, path, "offloading from a pipeline", words="not with pp above 1")
    elif on_cpus(spec):
        yield told(phase, path, "offloading on CPUs", words="there already")
    elif offload.name == "nvme":
        target = phase.targets.get("deepspeed")
        options = (target.options if target else None) or {}
        for name in (f"{section}_nvme_path" for section in offloaded(parallel)):
            if not isinstance(options.get(name), str):
                help = f'`target "deepspeed" {{ options {{ {name} = "/local" }} }}`'
                yield told(phase, path, "disks without a folder", words="where", help=help)


def _overlap(phase: Phase, spec: Spec) -> Iterator[Diagnostic]:
    """Where `overlap = on` is written, and the engine reduces after the backward all the same."""
    parallel, train, path = spec.parallel, spec.train, "parallel.overlap"
    assert train is not None
    if not parallel.overlap or phase.origins.kind(path) is not Kind.FILE or parallel.dp == 1:
        return
    plain = parallel.zero == 1 and train.precision == "bf16" and train.gradients == "fp32"
    if parallel.pp > 1 or parallel.zero == 0 or (plain and parallel.offload.name == "none"):
        place, label = phase.origins.label(path, "not applied")
        said = "DeepSpeed reduces these gradients after the backward"
        help = "`zero = 2` and `zero = 3` without a pipeline reduce beside it"
        yield warning(NOT_APPLIED, said, place, label, help=[help])


# ── Recipe ────────────────────────────────────────────────────────────────────


def _recipe(phase: Phase, train: Train) -> Iterator[Diagnostic]:
    if steps_of(phase) is None:
        words = "neither `steps` nor `tokens`"
        yield told(phase, "train.steps", "training without an end", words=words)
    for part in train.recompute.flags:
        if part not in RECOMPUTED or part == "norm":
            what = f"`recompute = selective({part})`"
            help = (
                "it expresses `core_attention`, `mlp`, `activation` of a layer, and `full` layers"
            )
            yield told(phase, "train.recompute", what, help=help)
    if train.optimizer.name != "adamw":
        return
    if len(train.optimizer["betas"]) != 2:
        yield told(phase, "train.optimizer.betas", "other than two betas", words="two moments")
    if train.optimizer["lr"] == 0:
        what = "a peak learning rate of 0"
        yield told(phase, "train.optimizer.lr", what, words="rates are shares of the peak")
