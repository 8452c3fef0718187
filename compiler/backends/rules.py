"""The rules of one back end alone: asked with `--target`, imported when they are asked.

Each is a file of the form that a general rule has, in `TARGET/rules/`; its page names the version
whose sources it was read in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Final, cast

from parlay.compiler.checks import Page, Rule, page_of, subject_of
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic

MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "megatron": {
        "B401": "b401_two_ranks",
        "B402": "b402_schedule",
        "B403": "b403_expert_bias",
        "B404": "b404_single_expert",
        "B405": "b405_router_bias",
        "B406": "b406_dispatcher",
        "B407": "b407_dispatcher_network",
        "B408": "b408_recompute",
        "B409": "b409_offload",
        "B410": "b410_order",
        "B411": "b411_sinks",
        "B412": "b412_further_tokens",
        "B413": "b413_expert_gradients",
        "B414": "b414_tied",
        "B416": "b416_torch_fsdp",
        "B417": "b417_tp_overlap",
        "B418": "b418_ep_overlap",
        "B419": "b419_latent_groups",
        "B420": "b420_decay",
        "B421": "b421_saved_activations",
        "B422": "b422_expert_tp",
        "B423": "b423_param_gather",
        "B424": "b424_dispatcher_node",
        "B425": "b425_window_ring",
        "B426": "b426_dispatcher_eight",
        "B427": "b427_padded_experts",
        "B428": "b428_aware_optimizer",
        "B429": "b429_sinks_clip",
    },
    "deepspeed": {
        "B501": "b501_zero_pipeline",
        "B502": "b502_zero_experts",
        "B503": "b503_leaf_modules",
        "B504": "b504_gradient_dtype",
        "B505": "b505_context",
        "B506": "b506_context_world",
        "B507": "b507_options",
        "B508": "b508_vocabulary",
        "B509": "b509_elastic",
        "B510": "b510_schedule",
        "B511": "b511_offload",
        "B512": "b512_kv_heads",
        "B513": "b513_experts_tp",
    },
    "torchtitan": {
        "B601": "b601_kv_heads",
        "B602": "b602_tied",
        "B603": "b603_cuda_graphs",
        "B604": "b604_context",
        "B605": "b605_schedule",
        "B606": "b606_expert_tp",
        "B607": "b607_zero",
        "B608": "b608_compile",
        "B609": "b609_positions",
        "B610": "b610_options",
        "B611": "b611_experts",
        "B612": "b612_few_microbatches",
        "B613": "b613_compiled_halves",
        "B614": "b614_length",
    },
}
"""Target -> code -> module."""

READ_IN: Final[Mapping[str, tuple[str, str]]] = {
    "megatron": ("Megatron-LM, core", "0.19"),
    "deepspeed": ("DeepSpeed", "0.19"),
    "torchtitan": ("torchtitan", "0.3"),
}
"""The framework by its name, and the version in whose sources its rules were read."""


@cache
def rule(code: str) -> Rule | None:
    """The rule of a back end with that code."""
    for target, modules in MODULES.items():
        if code in modules:
            return cast(Rule, import_module(f"{__package__}.{target}.rules.{modules[code]}"))
    return None


def codes() -> tuple[str, ...]:
    """The codes of all rules of all back ends."""
    return tuple(code for modules in MODULES.values() for code in modules)


def page(code: str) -> Page | None:
    """The page of a back end's rule; None for an unknown code."""
    found = rule(code)
    return None if found is None else page_of(found)


def target_of(code: str) -> str:
    """The back end that a code belongs to."""
    return next(target for target, modules in MODULES.items() if code in modules)


def found(target: str, phase: Phase) -> Iterator[Diagnostic]:
    """What the rules of `target` find in a phase, each with the version that it belongs to."""
    subject = subject_of(phase)
    for code in MODULES.get(target, ()):
        asked = rule(code)
        assert asked is not None
        if subject.has(asked.READS):
            for each in asked.check(subject):
                yield replace(each, notes=(*each.notes, _version(target, phase)))


def _version(target: str, phase: Phase) -> str:
    """Where a rule was read; the file's own version beside it where that is another."""
    name, version = READ_IN[target]
    read = f"a rule of {name} {version}"
    block = phase.targets.get(target)
    asked = block.version if block else None
    if asked is None or asked == version or asked.startswith(f"{version}."):
        return read
    return f"{read}; the file asks for {asked}, which may differ"
