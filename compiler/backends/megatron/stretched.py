"""Rotary positions of which features are stretched apart, as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from parlay.compiler.backends.megatron.argument import Piece, chosen, field, given, refused
from parlay.compiler.backends.megatron.options import table
from parlay.compiler.spec.blocks import Model
from parlay.compiler.spec.resolve import Phase
from parlay.compiler.spec.schema import Setting

PATH: Final = "model.rope_scaling"
LLAMA3: Final = {"low_freq": 1.0, "high_freq": 4.0, "original": 8192}
"""What no option says (RotaryEmbedding._apply_scaling)."""
LATENT: Final = {"original": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""What no option says of latent attention (MLATransformerConfig)."""


def by_yarn(model: Model) -> bool:
    """Whether YaRN stretches the positions of a model."""
    return model.rope_scaling is not None and model.rope_scaling.name == "yarn"


def stretched(phase: Phase, model: Model, *, version: str) -> Iterator[Piece]:
    """What stretches rotary positions besides a factor of all of them."""
    asked = model.rope_scaling
    if model.mla is not None:
        # Left out, it would be yarn.
        kind = "yarn" if by_yarn(model) else "rope"
        yield (given if asked else chosen)(
            "--rope-type", kind, path=PATH if asked else "model.rope"
        )
    if asked is None:
        return
    if model.rope is not None and model.rope["scaling"] != 1:
        words = "`rope(scaling = …)` stretches them too"
        yield refused(phase, PATH, "positions that are stretched twice", words=words)
    match asked.name:
        case "llama3":
            yield from _llama3(phase, model, asked)
        case "yarn":
            yield from _yarn(phase, model, asked, version=version)
        case _:
            help = ["it expresses `llama3` and `yarn`"]
            yield refused(phase, PATH, field(phase, PATH), help=help)


def _llama3(phase: Phase, model: Model, asked: Setting) -> Iterator[Piece]:
    yield from _fixed(phase, asked, LLAMA3)
    if model.mla is not None:
        yield refused(phase, PATH, "`llama3` with `mla`", words="latents know `yarn` alone")
    yield given("--use-rope-scaling", path=PATH)
    yield given("--rope-scaling-factor", asked["factor"], path=PATH)


def _yarn(phase: Phase, model: Model, asked: Setting, *, version: str) -> Iterator[Piece]:
    if model.mla is not None:
        yield from _fixed(phase, asked, LATENT)
    elif "--yarn-beta-fast" not in table(version):
        words = f"core {version} stretches latent attention alone"
        help = ['`target "megatron" { version = "0.19" }` has its options']
        yield refused(phase, PATH, "`yarn` without `mla`", words=words, help=help)
    else:
        yield given("--yarn-original-max-position-embeddings", asked["original"], path=PATH)
        yield given("--yarn-beta-fast", asked["beta_fast"], path=PATH)
        yield given("--yarn-beta-slow", asked["beta_slow"], path=PATH)
        rounds = "" if asked["truncate"] else "no-"
        yield given(f"--{rounds}yarn-correction-range-round-to-int", path=PATH)
        if model.rope is not None and model.rope["partial"] != 1:
            words = "yarn turns whole heads"
            yield refused(phase, "model.rope.partial", "`partial` with `yarn`", words=words)
    if asked["attention_factor"] is not None:
        words = "it follows from `mscale` and `mscale_all_dim`"
        yield refused(phase, f"{PATH}.attention_factor", "`attention_factor`", words=words)
    yield given("--rotary-scaling-factor", asked["factor"], path=PATH)
    yield given("--mscale", asked["mscale"], path=PATH)
    yield given("--mscale-all-dim", asked["mscale_all_dim"], path=PATH)


def _fixed(phase: Phase, asked: Setting, usual: Mapping[str, object]) -> Iterator[Piece]:
    """Options that the file may say, and no argument."""
    for name, value in usual.items():
        if asked[name] != value:
            shown = "on" if value is True else f"{value:g}"
            words = f"always {shown}"
            path = f"{PATH}.{name}"
            yield refused(phase, path, field(phase, path), words=words)
