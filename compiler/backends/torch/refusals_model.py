"""What the PyTorch back end cannot express of a model where two fields meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from parlay.compiler.backends.torch.plan_model import rotary_dim
from parlay.compiler.layout.stages import SPLITTING
from parlay.compiler.spec.blocks import Model, Parallel, Train
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.compiler.spec.schema import Setting
from parlay.dsl.diagnostics import Diagnostic, error

CODE: Final = "B301"


def model_refusals(
    phase: Phase,
    model: Model,
    train: Train,
    parallel: Parallel,
    *,
    target: str = "torch",
    code: str = CODE,
) -> Iterator[Diagnostic]:
    """One diagnostic for each pair of fields that cannot be expressed together.

    `target` is the back end that prints the model's code, and `code` its own.
    """

    def refused(path: str, what: str, *, words: str, help: str = "") -> Diagnostic:
        place, label = phase.origins.label(path, words)
        said = f"target {target} cannot express {what}"
        return error(code, said, place, label, help=[help] if help else [])

    if model.norm == "rmsnorm" and model.norm_bias:
        yield refused(
            "model.norm_bias",
            "rmsnorm with a bias",
            words="an RMS norm has a weight alone",
            help="`norm_bias = off`, or `norm = layernorm`",
        )
    if model.qk_norm == "full" and model.norm == "layernorm" and parallel.tp > 1:
        yield refused(
            "model.qk_norm",
            "layer norms of all heads together under tp yet",
            words="a mean over heads of other ranks",
            help="`norm = rmsnorm`, or `qk_norm = per_head`",
        )
    if model.shared_norm and not model.parallel_blocks:
        yield refused(
            "model.shared_norm",
            "a shared norm of blocks one after the other",
            words="they read different inputs",
            help="`parallel_blocks = on`, or `shared_norm = off`",
        )
    if model.shared_norm and model.parallel_blocks and model.norm_placement != "before":
        yield refused(
            "model.norm_placement",
            "a shared norm of outputs",
            words="one norm serves inputs alone",
            help="`norm_placement = before`, or `shared_norm = off`",
        )
    told = [name for name in ("glu_clamp", "glu_offset") if getattr(model, name)]
    if told and model.activation != "quick_geglu":
        yield refused(
            f"model.{told[0]}",
            f"`{told[0]}` with `activation = {model.activation}`",
            words="`quick_geglu` alone is clamped and moved",
            help="`activation = quick_geglu`",
        )
    if model.position == "learned" and model.context is None:
        yield refused(
            "model.position",
            "learned positions without `context`",
            words="a table without a number of rows",
            help="`context` says how many positions there are",
        )
    if model.mla is not None:
        yield from latent_refusals(model, refused)
        dims = (model.mla.nope_dim, model.mla.rope_dim)  # None in error
        width = model.head_dim if None in dims else sum(dims)
        if phase.origins.kind("model.head_dim") is Kind.FILE and model.head_dim != width:
            yield refused(
                "model.head_dim",
                f"heads of {model.head_dim} features under latent attention",
                words=f"`nope_dim` and `rope_dim` come to {width}",
                help="leave `head_dim` out",
            )
    known = None not in (model.head_dim, train.seq)  # a value in error is None
    if known and model.position == "rope" and model.rope is not None and model.mla is None:
        turning = int(model.head_dim * model.rope["partial"])
        if turning < 2 or turning % 2:
            yield refused(
                "model.rope.partial",
                f"{turning} rotated features of a head",
                words="features turn in pairs",
            )
    if model.rope_scaling is not None:
        yield from _stretched(model, model.rope_scaling, refused)
    if model.window is not None and model.window.get("theta") is not None:
        yield from _two_bases(model, model.window, refused)


Refused = Callable[..., Diagnostic]


def _stretched(model: Model, asked: Setting, refused: Refused) -> Iterator[Diagnostic]:
    """What rotary positions cannot be stretched by."""
    path = "model.rope_scaling"
    if model.position != "rope":
        yield refused(
            path,
            "`rope_scaling` without rotary positions",
            words=f"`position = {model.position}` turns nothing",
            help="`position = rope`, or without `rope_scaling`",
        )
    if model.rope is not None and model.rope["scaling"] != 1:
        yield refused(
            path,
            "positions that are stretched twice",
            words=f"`rope(scaling = {model.rope['scaling']:g})` stretches all of them",
            help="one of both",
        )
    if asked.name == "llama3" and asked["low_freq"] >= asked["high_freq"]:
        yield refused(
            f"{path}.low_freq",
            "bands without anything between them",
            words=f"at or above `high_freq = {asked['high_freq']:g}`",
            help="`low_freq` below `high_freq`",
        )
    if asked.name == "dynamic" and model.context is None:
        yield refused(
            path,
            "`dynamic` without `context`",
            words="the base grows with what lies beyond it",
            help="`context` says how many positions the model was made for",
        )
    if asked.name == "dynamic" and model.head_dim is not None and rotary_dim(model) == 2:
        yield refused(path, "`dynamic` of two features", words="one wave length has no others")
    if asked.name == "longrope":
        yield from _long(model, asked, refused)
    if asked.name == "yarn" and model.rope is not None and model.rope["theta"] <= 1:
        yield refused(
            "model.rope.theta",
            f"`yarn` of theta = {model.rope['theta']:g}",
            words="wave lengths that do not grow",
        )


def _long(model: Model, asked: Setting, refused: Refused) -> Iterator[Diagnostic]:
    """Factors that are not one for each pair of features that turns."""
    if asked["original"] < 2 and asked["attention_factor"] is None:
        yield refused(
            "model.rope_scaling.original",
            "`longrope` of an original context of 1",
            words="whose logarithm is 0",
        )
    turning = None if model.head_dim is None else rotary_dim(model)
    for name in ("short", "long"):
        count = len(asked[name])
        if turning is not None and count != turning // 2:
            yield refused(
                f"model.rope_scaling.{name}",
                f"{count} factors of {turning // 2} pairs of features",
                words=f"{turning} features of a head turn",
            )


def _two_bases(model: Model, window: Setting, refused: Refused) -> Iterator[Diagnostic]:
    """What windowed layers cannot have a base of their own with."""
    path = "model.window.theta"
    if model.position != "rope":
        yield refused(
            path,
            "a base of windowed layers without rotary positions",
            words=f"`position = {model.position}` turns nothing",
            help="`position = rope`, or `window` without `theta`",
        )
    elif window["every"] == 1:
        yield refused(
            path,
            "a base of windowed layers beside no other",
            words="every layer has a window",
            help="`rope(theta = …)` is the base of all layers",
        )
    if model.mla is not None:
        yield refused(
            path,
            "a base of windowed layers under latent attention yet",
            words="its latents turn by one base",
            help="`window` without `theta`",
        )


def latent_refusals(model: Model, refused: Refused) -> Iterator[Diagnostic]:
    """What multi-head latent attention cannot be joined with."""
    mla = model.mla
    assert mla is not None
    if model.position != "rope":
        yield refused(
            "model.position",
            "latent attention without rotary positions",
            words="a part of each key is rotated",
            help="`position = rope`",
        )
    elif model.rope is not None and model.rope["partial"] != 1:
        yield refused(
            "model.rope.partial",
            "a partial rotation of latent attention",
            words="`mla.rope_dim` says what turns",
            help="`partial = 1`",
        )
    if mla.rope_dim is not None and mla.rope_dim % 2:
        yield refused(
            "model.mla.rope_dim",
            f"{mla.rope_dim} rotated features of a head",
            words="features turn in pairs",
        )
    if model.qk_norm != "none":
        yield refused(
            "model.qk_norm",
            "norms of queries and keys under latent attention",
            words="its latents have norms of their own",
            help="`qk_norm = none`",
        )
    if model.kv_heads != model.heads:
        yield refused(
            "model.kv_heads",
            "grouped heads under latent attention",
            words="each query head has its own key and value",
            help="leave `kv_heads` out",
        )


def adapter_refusals(
    phase: Phase, model: Model, train: Train, parallel: Parallel
) -> Iterator[Diagnostic]:
    """What adapters on frozen weights cannot be joined with."""
    if train.lora is None:
        return
    met = (
        (
            model.mla is not None and parallel.tp is not None and parallel.tp > 1,
            "model.mla",
            "what adapters make of latents is on one rank alone: tp = 1",
        ),
        (
            parallel.schedule.name in SPLITTING,
            "parallel.schedule",
            "frozen weights have no gradients to put off",
        ),
    )
    for refused, path, words in met:
        if refused:
            place, label = phase.origins.label(path, words)
            what = f"`{path.rpartition('.')[2]}`"
            said = f"target torch cannot express adapters with {what} yet"
            yield error(CODE, said, place, label)
