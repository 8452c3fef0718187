"""Before the first layer and after the last: embedding, final norm, logits and loss."""

from __future__ import annotations

from collections.abc import Iterator

from parlay.compiler.layout import Stage
from parlay.compiler.ledger.memory.chunk import Layers
from parlay.compiler.ledger.memory.record import TRANSFORMER, Line
from parlay.compiler.ledger.memory.sizes import Sizes


def end_lines(
    layers: Layers, chunk: Stage, in_flight: int, *, before_layers: bool = True
) -> tuple[Line, ...]:
    """Activations of the ends of a chunk for the microbatches in flight, logits not among them.

    The first stage keeps token ids (int64) and the mask of the embedding's dropout (neither, where
    adapters alone are trained), the last one
    the input and the output of the final norm (2·s·b·h each), and labels. One microbatch has left
    the final norm behind where the backward is in its layers, not `before_layers`.
    """
    sizes, model = layers.sizes, layers.sizes.model
    normed = in_flight if before_layers else in_flight - 1
    lines: list[Line] = []
    times = f"{in_flight} x " if in_flight > 1 else ""
    if chunk.embedding and sizes.train.lora is not None:
        lines += unasked(sizes, in_flight)
    elif chunk.embedding:
        if model.dropout:
            value, formula = sizes.stream(1)
            lines.append(_line("embedding dropout mask", in_flight * value, times + formula))
        if model.embedding_norm:
            value, formula = sizes.stream()
            lines.append(_line("embedding norm input", in_flight * value, times + formula))
    if sizes.stack.traced and model.position == "rope":
        turned = rotary(sizes)
        seen = sizes.seq // sizes.parallel.cp
        tables = 2 if model.window_theta is None else 4  # of each base
        value = tables * sizes.width * seen * turned * in_flight
        formula = f"{times}{tables} x {sizes.width} x {seen} x {turned}"
        lines.append(_line("cosines and sines", value, formula))
    if chunk.head and sizes.stack.final_norm and model.final_norm:
        value, formula = sizes.stream()
        # A frozen head asks for no gradient of its weight, and keeps no input.
        both = 2 if sizes.train.lora is None else 1
        formula = f"{both * normed} x {formula}"
        name = "final norm input" + " and output" * (both - 1)
        lines.append(_line(name, both * normed * value, formula))
    if chunk.head and model.mtp_layers:
        experts = model.experts is not None and model.experts.holds(model.layers - 1)
        one = (layers.mixed if experts else layers.dense).kept_bytes + 4 * sizes.stream()[0]
        value = model.mtp_layers * in_flight * one
        formula = f"{model.mtp_layers} layers x {times}{one}"
        lines.append(_line("layers of further tokens", value, formula))
    return tuple(lines)


def unasked(sizes: Sizes, in_flight: int) -> Iterator[Line]:
    """Less than other layers the first one keeps under adapters: nothing before its norm asks for a
    gradient, nor does the norm, whose input and statistics are not kept."""
    model, recompute = sizes.model, sizes.train.recompute
    if not sizes.stack.traced or model.norm_placement not in ("before", "both"):
        return
    if recompute.name == "full" and recompute.get("first") != 0:
        return  # what is computed again is kept whoever asks for it
    if recompute.name == "selective" and "norm" in recompute.flags:
        return
    value, formula = sizes.stream()
    norms = 2 if model.parallel_blocks and not model.shared_norm else 1
    each = norms * (4 if model.norm == "rmsnorm" else 8) * (sizes.tokens // sizes.residual)
    times = f"{in_flight} x " if in_flight > 1 else ""
    name, words = "first norm, which nothing asks for", f"-{times}({formula} + {each})"
    yield _line(name, -in_flight * (value + each), words)


def loss_lines(sizes: Sizes, in_flight: int) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """What the loss keeps of the microbatches in flight, and what it holds while it runs.

    Each logit: fp32 probabilities (4 bytes) are kept, a 16-bit copy (2 bytes) lives beside them in
    the loss and in its backward: 6 in all. Alone on tp the emitted code runs log-softmax on fp32
    logits: its output (4) is kept, two fp32 gradients (8) live beside it in the backward. A soft
    cap keeps its tanh (2) as well.
    """
    stack = sizes.stack
    logits = sizes.tokens * sizes.vocab
    heads = 1 + sizes.model.mtp_layers
    each = max(stack.loss_saved, sizes.width)
    keep = each * logits * in_flight * heads
    formula = f"{each} x {sizes.tokens} tokens x {sizes.vocab}"
    if in_flight * heads > 1:
        formula += f" x {in_flight * heads}"
    passing = stack.loss_transient_alone if sizes.tp == 1 else stack.loss_transient
    if stack.traced and sizes.tp > 1:
        passing = sizes.width  # the logits themselves, while the loss is made of a copy
    transient = passing * logits
    saved = [Line("logits", "probabilities of the loss", keep, formula, stack.source)]
    softcap = sizes.model.softcap
    if softcap is not None and softcap["logits"]:
        capped = formula.replace(str(each), str(sizes.width), 1)
        name = "tanh of the capped logits"
        saved.append(Line("logits", name, keep // each * sizes.width, capped, stack.source))
    return (
        tuple(saved),
        (
            Line(
                "logits",
                "logits while the loss runs",
                transient,
                f"{passing} x {sizes.tokens} tokens x {sizes.vocab}",
                stack.source,
            ),
        ),
    )


def rotary(sizes: Sizes) -> int:
    """The features of a head that positions turn."""
    model = sizes.model
    if model.mla is not None:
        return model.mla.rope_dim
    share = model.rope["partial"] if model.rope is not None else 1.0
    return 2 * int(model.head_dim * share / 2)


def messages(sizes: Sizes) -> tuple[Line, ...]:
    """Between stages, the activation or gradient that is received while another one is used."""
    if not sizes.stack.traced or sizes.parallel.pp == 1:
        return ()
    value, formula = sizes.stream()
    return (Line("buffers", "received from another stage", value, formula, sizes.stack.source),)


def _line(name: str, value: int, formula: str) -> Line:
    return Line("activations", name, value, formula, TRANSFORMER)
