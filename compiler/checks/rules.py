"""The rules by their codes: an explicit table, each module imported when it is first asked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Final, Protocol, cast

from parlay.compiler.checks.subject import Subject
from parlay.dsl.diagnostics import Diagnostic


class Rule(Protocol):
    """One rule: a module of this room whose docstring is the page that `explain` prints.

    `READS` are the paths it reads; it is not asked where one of them is missing, in error or
    open. `ALLOWED` says whether `allow CODE "reason"` may turn its errors into warnings.
    """

    CODE: str
    TITLE: str
    READS: tuple[str, ...]
    ALLOWED: bool
    __doc__: str | None

    @staticmethod
    def check(subject: Subject, /) -> Iterable[Diagnostic]: ...


MODULES: Final = {
    # layout arithmetic
    "L201": "l201_world",
    "L202": "l202_heads",
    "L203": "l203_kv_heads",
    "L204": "l204_ffn",
    "L205": "l205_head_dim",
    "L206": "l206_layers",
    "L207": "l207_stage_count",
    "L208": "l208_stage_sum",
    "L209": "l209_empty_stage",
    "L210": "l210_batch",
    "L211": "l211_sequence_tp",
    "L212": "l212_sequence_cp",
    "L213": "l213_sequence_both",
    "L214": "l214_sequence_parallel",
    "L215": "l215_top_k",
    "L216": "l216_experts",
    "L217": "l217_expert_world",
    "L218": "l218_expert_ffn",
    "L219": "l219_order_repeated",
    "L220": "l220_order_missing",
    "L221": "l221_order_pipeline",
    "L222": "l222_shard",
    "L223": "l223_zero",
    "L224": "l224_context",
    "L225": "l225_no_experts",
    "L226": "l226_vocabulary",
    "L227": "l227_ulysses",
    "L228": "l228_ulysses_ring",
    "L229": "l229_grouped_heads",
    "L230": "l230_expert_shard",
    "L231": "l231_fp8_shapes",
    "L232": "l232_experts_tp",
    "L233": "l233_no_solution",
    "L234": "l234_run_length",
    "L235": "l235_phase_weights",
    "L236": "l236_resharding",
    "L237": "l237_no_expert_layer",
    # names, types and units
    "T201": "t201_thousands",
    "T202": "t202_lowest_rate",
    "T203": "t203_betas",
    "T204": "t204_dropout",
    "T205": "t205_validation",
    "T206": "t206_params_and_shape",
    "T207": "t207_steps_of_nothing",
    # network and topology
    "N201": "n201_tp_domain",
    "N202": "n202_ep_domain",
    "N203": "n203_domain",
    "N204": "n204_card_speed",
    "N205": "n205_two_way",
    "N206": "n206_sparse_peak",
    "N207": "n207_domain_follows",
    "N208": "n208_far_gathers",
    "N209": "n209_oversubscribed",
    "N210": "n210_shared_cards",
    "N211": "n211_calibration",
    "N212": "n212_far_gradients",
    "N213": "n213_far_replicas",
    # pipeline schedule
    "S201": "s201_few_microbatches",
    "S202": "s202_interleaved",
    "S203": "s203_chunks",
    "S204": "s204_no_pipeline",
    "S205": "s205_dualpipe",
    "S206": "s206_split_backward",
    "S207": "s207_dense_stage",
    "S208": "s208_tied_stages",
    "S209": "s209_uneven",
    # warnings about speed
    "W201": "w201_zero_traffic",
    "W202": "w202_nothing_sharded",
    "W203": "w203_flash_selective",
    "W204": "w204_token_budget",
    "W205": "w205_few_rows",
    "W206": "w206_narrow",
    "W207": "w207_warmup",
    "W208": "w208_full_precision",
    "W209": "w209_dropout",
    "W210": "w210_no_units",
    "W211": "w211_narrow_sums",
    "W212": "w212_nothing_offloaded",
    "W213": "w213_no_master",
    "W214": "w214_frozen_moment",
    "W215": "w215_nothing_recomputed",
    # memory: last, for it takes longest
    "M201": "m201_state",
    "M202": "m202_shown_memory",
    "M203": "m203_host_memory",
    "M204": "m204_peak",
    "M205": "m205_no_room",
    # `allow` itself
    "T290": "t290_unknown",
    "T291": "t291_not_allowed",
    "W290": "w290_needless",
}


@cache
def rule(code: str) -> Rule | None:
    """The rule with that code."""
    name = MODULES.get(code)
    return cast(Rule, import_module(f"{__package__}.{name}")) if name else None


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every general rule, in the order of the table."""
    return tuple(found for code in MODULES if (found := rule(code)) is not None)
