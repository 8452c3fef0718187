"""What the configuration does not hold and the training script has to set, a line a thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parlay.compiler.backends.accelerate.settings import engine_of
from parlay.compiler.backends.complete import steps_of
from parlay.compiler.backends.places import plain
from parlay.compiler.layout import Layout
from parlay.compiler.ledger.recipe import microbatches
from parlay.compiler.spec.blocks import Model, Train
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.compiler.spec.schema import Setting


def left_to_the_script(phase: Phase, layout: Layout) -> Iterator[str]:
    """The lines, plain enough for a comment."""
    spec = phase.spec
    model, train = spec.model, spec.train
    assert model is not None and train is not None
    engine = engine_of(phase, layout)
    yield _model(phase, model, train)
    yield (
        f"batch: {train.micro_batch} sequence{'s' * (train.micro_batch > 1)} of {train.seq} tokens "
        f"a rank, global batch {train.global_batch}"
    )
    yield from _accumulation(microbatches(spec), engine)
    if spec.parallel.tp > 1:
        yield f'tp: from_pretrained(…, tp_plan="auto") on the mesh of {spec.parallel.tp} ranks'
    yield f"optimizer: {setting(train.optimizer)}"
    yield f"learning rate: {setting(train.lr_schedule)}"
    if train.clip and engine != "deepspeed":
        yield f"clip: accelerator.clip_grad_norm_(…, {number(train.clip)})"
    yield f"steps: {steps_of(phase) or 'as many as are wanted'}, seed {train.seed}"
    if engine != "fsdp" and train.recompute.name != "none":
        yield f"recompute: {setting(train.recompute)} (gradient_checkpointing_enable)"
    yield f"attention: {train.attention}"
    if train.lora is not None:
        yield f"adapters: {setting(train.lora)}"
    if train.weights is not None:
        yield f"weights: from_pretrained({plain(train.weights)!r})"
    yield from _surroundings(phase)


def _model(phase: Phase, model: Model, train: Train) -> str:
    origin = phase.origins.get("model.layers")
    preset = origin.words if origin and origin.kind is Kind.PRESET else ""
    name = plain(phase.model_name or preset) or "a decoder"
    shape = f"{model.layers} layers, hidden {model.hidden}"
    held = "bf16 throughout" if train.precision == "bf16" and train.master == "none" else ""
    multiple = phase.spec.parallel.vocab_multiple * phase.spec.parallel.tp
    padded = f"vocabulary a multiple of {multiple}" if multiple > 1 else ""
    parts = [part for part in (shape, held, padded) if part]
    return f"model: {name}: {', '.join(parts)}"


def _accumulation(steps: int, engine: str) -> Iterator[str]:
    if engine == "deepspeed":
        return
    if steps > 1 and engine == "fsdp":
        # Else whole gradients are kept until the last microbatch.
        how = f"GradientAccumulationPlugin(num_steps={steps}, sync_each_batch=True)"
        yield f"microbatches: {how}"
    elif steps > 1:
        yield f"microbatches: Accelerator(gradient_accumulation_steps={steps})"


def _surroundings(phase: Phase) -> Iterator[str]:
    data, checkpoint = phase.spec.data, phase.spec.checkpoint
    if data.path is not None:
        yield f"data: {plain(data.path)} ({data.format})"
    if checkpoint.path is not None or checkpoint.every is not None:
        every = f" every {checkpoint.every} steps" if checkpoint.every else ""
        keep = f", {checkpoint.keep} kept" if checkpoint.keep else ""
        where = plain(checkpoint.path or "a folder")
        yield f"saves: {where}{every}{keep}"


def setting(value: Setting) -> str:
    """A variant as the language writes it."""
    options = (
        f"{name} = {shown(each)}" for name, each in value.options.items() if each is not None
    )
    inside = ", ".join((*value.flags, *options))
    return plain(f"{value.name}({inside})" if inside else value.name)


def shown(value: Any) -> str:
    """An option's value as the language writes it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    return number(value) if isinstance(value, int | float) else str(value)


def number(value: float) -> str:
    """A number, whole ones without a point."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
