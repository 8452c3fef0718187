"""A ledger at a speed that is stated, not predicted: `parlay ledger --at 430TFLOP/s`.

What was measured (or published) takes the place of the predicted step; days, cost, MFU and the
useful share follow from it by the ledger's own arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from parlay.compiler.layout import Layout
from parlay.compiler.ledger import flops, parameters
from parlay.compiler.ledger.pipelining import pipelining
from parlay.compiler.ledger.recipe import microbatches
from parlay.compiler.ledger.time import TimeLine
from parlay.compiler.ledger.time.lines import Told
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase
from parlay.dsl import syntax
from parlay.dsl.diagnostics import Diagnostic, error
from parlay.dsl.parse import parse
from parlay.dsl.source import Source
from parlay.dsl.units import Dimension, Quantity, quantity, show

if TYPE_CHECKING:
    from parlay.compiler.ledger.document import Ledger

FORMS: Final = "430TFLOP/s (model FLOPs a GPU), 46.2% (MFU), 2.5s (a step) or 950 (tokens/s/GPU)"
SHAPELESS: Final = "6 x parameters"


def speed(text: str) -> Quantity | None:
    """The quantity that `--at` was given; None where it is none of `FORMS`."""
    file, told = parse(Source("--at", f"let speed = {text}"))
    if told or len(file.statements) != 1:
        return None
    let = file.statements[0]
    if not isinstance(let, syntax.Let) or not isinstance(let.value, syntax.Number):
        return None
    found = quantity(let.value, None)
    wanted = (Dimension.COMPUTE, Dimension.SHARE, Dimension.TIME, Dimension.COUNT)
    good = isinstance(found, Quantity) and found.dimension in wanted and found.value > 0
    return found if isinstance(found, Quantity) and good else None


def at_speed(
    spec: Spec, layout: Layout, time: TimeLine | None, stated: Quantity
) -> TimeLine | None:
    """The step at the stated speed; None without a recipe, or for a share of an unknown peak.

    Predicted parts of the step are stretched alike; a model without a shape has no parts.
    """
    train, cluster = spec.train, spec.cluster
    if train is None or cluster is None:
        return None
    tokens, gpus = train.global_batch * train.seq, layout.world
    before = time or _shapeless(spec)
    work = before.flops_per_token * tokens / gpus
    value = float(stated.value)
    match stated.dimension:
        case Dimension.COMPUTE:
            seconds, formula = work / value, f"{work:.6g} FLOP / {value:.6g} FLOP/s"
        case Dimension.SHARE:
            if not before.peak_flops:
                return None
            seconds = work / (value * before.peak_flops)
            formula = f"{work:.6g} FLOP / ({value:.6g} x {before.peak_flops:.6g} FLOP/s)"
        case Dimension.TIME:
            seconds, formula = value, f"{value:.6g} s, stated"
        case _:
            seconds = tokens / gpus / value
            formula = f"{tokens} tokens / {gpus} GPUs / {value:.6g} tokens/s"
    return _stretched(before, seconds, tokens, gpus, formula)


def beyond_peak(phase: Phase, ledger: Ledger) -> Diagnostic | None:
    """What is wrong with a ledger whose step is faster than the GPU; None where it is not."""
    time = ledger.time
    if time is None or time.mfu is None or time.mfu <= 1 or not time.peak_flops:
        return None
    train, peak = ledger.spec.train, show(Fraction(time.peak_flops), Dimension.COMPUTE)
    assert train is not None
    rate = show(Fraction(time.peak_flops * time.mfu), Dimension.COMPUTE)
    return error(
        "W280",
        f"{rate} a GPU is an MFU of {time.mfu:.1%} at {train.precision}",
        phase.origins.span("train.precision"),
        f"the dense peak of {train.precision} is {peak}",
        notes=[f"{rate} / {peak} = {time.mfu:.4g}", f"mfu = {time.formulas['mfu']}"],
        help=["a speed reached at another precision belongs over that precision's peak"],
    )


def _stretched(before: TimeLine, seconds: float, tokens: int, gpus: int, formula: str) -> TimeLine:
    times = seconds / before.step_seconds if before.step_seconds else 1.0
    peak = before.peak_flops
    mfu = before.flops_per_token * tokens / gpus / seconds / peak if peak else None
    extra = before.hfu / before.mfu if before.hfu and before.mfu else 1.0
    causal = before.mfu_causal / before.mfu if before.mfu_causal and before.mfu else 1.0
    exposed = before.exposed_communication_seconds * times
    each = f"{tokens} / {seconds:.6g} s"
    shares = tuple(share._replace(seconds=share.seconds * times) for share in before.shares)
    formulas = {
        **before.formulas,
        "step_seconds": formula,
        "tokens_per_second": each,
        "tokens_per_second_per_gpu": f"{each} / {gpus}",
        "mfu": f"{before.flops_per_token:.6g} FLOPs x {each} / {gpus} / {peak}",
    }
    return replace(
        before,
        step_seconds=seconds,
        compute_seconds=seconds - exposed,
        exposed_communication_seconds=exposed,
        tokens_per_second=tokens / seconds,
        tokens_per_second_per_gpu=tokens / seconds / gpus,
        mfu=mfu,
        hfu=None if mfu is None else mfu * extra,
        mfu_causal=None if mfu is None else mfu * causal,
        band=0.0,
        tell=lambda: Told(shares, formulas),
    )


def _shapeless(spec: Spec) -> TimeLine:
    """What is known of the step of a model given by `params`: its work, and the even bubble."""
    assert spec.model is not None and spec.train is not None and spec.cluster is not None
    shape = pipelining(spec.parallel, max(1, microbatches(spec)))
    words = ("compute_seconds", "exposed_communication_seconds", "bubble", "bubble_over_ideal")
    return TimeLine(
        step_seconds=0.0,
        compute_seconds=0.0,
        exposed_communication_seconds=0.0,
        bubble=shape.bubble,
        bubble_over_ideal=shape.bubble_over_ideal,
        tokens_per_second=0.0,
        tokens_per_second_per_gpu=0.0,
        mfu=None,
        hfu=None,
        mfu_causal=None,
        peak_flops=flops.peak(spec.cluster.node.gpu, spec.train.precision),
        flops_per_token=6.0 * parameters.active(spec.model),
        flops_convention=SHAPELESS,
        band=0.0,
        tell=lambda: Told((), {**dict.fromkeys(words, shape.formula), "hfu": "as mfu"}),
    )
