"""What the weight table says of names, layers, stages and ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from parlay.compiler.catalog import names
from parlay.compiler.ledger.parameters import (
    KINDS,
    Parameters,
    active,
    by_kind,
    layer_parameters,
    matrix_parameters,
    padded_vocab,
    padding,
    stage_parameters,
    total,
    weights,
)
from parlay.compiler.spec.blocks import Model

Build = Callable[..., Model]


def stages(model: Model, parts: int, **ranks: int) -> list[Parameters]:
    size = model.layers // parts
    return [
        stage_parameters(
            model,
            range(part * size, model.layers if part == parts - 1 else (part + 1) * size),
            embedding=part == 0,
            head=part == parts - 1,
            **ranks,
        )
        for part in range(parts)
    ]


# ── The table ─────────────────────────────────────────────────────────────────


def test_llama_has_the_names_of_the_contract(preset_model: Build) -> None:
    model = preset_model("llama3-8b", layers=1)
    rows = {row.name: (row.shape, row.cut) for row in weights(model, vocab_rows=128_512)}
    assert rows == {
        "embedding.weight": ((128_512, 4096), 0),
        "layers.0.attention_norm.weight": ((4096,), None),
        "layers.0.attention.q.weight": ((4096, 4096), 0),
        "layers.0.attention.k.weight": ((1024, 4096), 0),
        "layers.0.attention.v.weight": ((1024, 4096), 0),
        "layers.0.attention.o.weight": ((4096, 4096), 1),
        "layers.0.mlp_norm.weight": ((4096,), None),
        "layers.0.mlp.gate.weight": ((14336, 4096), 0),
        "layers.0.mlp.up.weight": ((14336, 4096), 0),
        "layers.0.mlp.down.weight": ((4096, 14336), 1),
        "norm.weight": ((4096,), None),
        "head.weight": ((128_512, 4096), 0),
    }


@pytest.mark.parametrize("name", names("model"))
def test_the_listing_adds_up(name: str, preset_model: Build) -> None:
    model = preset_model(name, mtp_layers=1)
    listing = list(weights(model))
    assert sum(row.numel for row in listing) == total(model) == sum(by_kind(model).values())
    assert max(Counter(row.name for row in listing).values()) == 1
    assert {row.kind for row in listing} <= set(KINDS)
    assert [row.layer for row in listing if row.layer is not None] == sorted(
        row.layer for row in listing if row.layer is not None
    )
    assert active(model) <= total(model)
    assert all(row.name.split(".")[0] != "layers" or row.layer is not None for row in listing)


def test_gpt_has_biases_with_the_cut_of_their_rows(preset_model: Build) -> None:
    rows = {row.name: row for row in weights(preset_model("gpt2-xl"))}
    assert rows["position.weight"].shape == (1024, 1600)
    assert rows["layers.0.attention.q.bias"].cut == 0
    assert rows["layers.0.attention.o.bias"].cut is None
    assert rows["layers.47.mlp.up.bias"].shape == (6400,)
    assert rows["norm.bias"].kind == "norm"
    assert "head.weight" not in rows
    assert "layers.0.mlp.gate.weight" not in rows


def test_latent_attention(preset_model: Build) -> None:
    rows = {row.name: row for row in weights(preset_model("deepseek-v3"))}
    shapes = {
        "q_down": (1536, 7168),
        "q_up": (128 * 192, 1536),
        "kv_down": (576, 7168),
        "kv_up": (128 * 256, 512),
        "o": (7168, 128 * 128),
    }
    for name, shape in shapes.items():
        assert rows[f"layers.0.attention.{name}.weight"].shape == shape
    assert rows["layers.0.attention.q_down.weight"].cut is None
    assert rows["layers.3.mlp.experts.up.weight"].count == 256
    assert rows["layers.3.mlp.router.correction"].shape == (256,)
    assert "layers.2.mlp.router.weight" not in rows
    assert "layers.0.attention.q.weight" in {
        row.name for row in weights(preset_model("deepseek-v2-lite"))
    }


def test_every_second_layer_has_experts(preset_model: Build) -> None:
    table = weights(preset_model("llama4-maverick"))
    assert [table.kind_of(layer).experts for layer in range(4)] == [False, True, False, True]
    assert [kind.count for kind in table.kinds] == [24, 24]


@pytest.mark.parametrize(
    ("placement", "shared", "expected"),
    [
        ("before", False, ["attention_norm", "mlp_norm"]),
        ("after", False, ["attention_post_norm", "mlp_post_norm"]),
        (
            "both",
            False,
            ["attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm"],
        ),
        ("before", True, ["attention_norm"]),
    ],
)
def test_norms(placement: str, shared: bool, expected: list[str], preset_model: Build) -> None:
    model = preset_model(
        "llama2-7b", norm_placement=placement, parallel_blocks=shared, shared_norm=shared
    )
    rows = [row.name.split(".")[2] for row in weights(model).layer(0)]
    assert [name for name in rows if name.endswith("norm")] == expected


# ── Totals ────────────────────────────────────────────────────────────────────


def test_params_alone_is_a_total() -> None:
    model = Model(params=7_500_000_000)
    assert total(model) == active(model) == 7_500_000_000


def test_matrices_count_the_head_and_not_the_embedding(preset_model: Build) -> None:
    tied, untied = preset_model("llama3.2-1b"), preset_model("llama3-8b")
    vectors = (2 * 16 + 1) * 2048
    assert matrix_parameters(tied) == total(tied) - vectors
    vectors = (2 * 32 + 1) * 4096
    assert matrix_parameters(untied) == total(untied) - vectors - 128_256 * 4096


def test_a_thousand_layers_have_no_more_rows(preset_model: Build) -> None:
    few, many = preset_model("llama2-7b"), preset_model("llama2-7b", layers=10_000)
    assert len(list(weights(few).groups())) == len(list(weights(many).groups()))
    layer = layer_parameters(few, 0).total
    assert total(many) - total(few) == (10_000 - 32) * layer


def test_padding_is_said_apart(preset_model: Build) -> None:
    model = preset_model("llama3-8b")
    rows = padded_vocab(model.vocab, multiple=128, tp=8)
    assert rows == 129_024
    assert padding(model, rows) == 2 * (rows - model.vocab) * model.hidden
    assert padding(preset_model("gpt2-xl"), 50_304) == 47 * 1600
    assert padded_vocab(257, multiple=1, tp=2) == 258


# ── Stages and ranks ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", names("model"))
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_stages_add_up_but_for_a_second_embedding(
    name: str, parts: int, preset_model: Build
) -> None:
    model = preset_model(name)
    copy = model.vocab * model.hidden if model.tied_embeddings and parts > 1 else 0
    whole = sum(stage.total for stage in stages(model, parts))
    assert whole == total(model) + copy


def test_experts_are_told_apart(preset_model: Build) -> None:
    model = preset_model("mixtral-8x7b")
    held = stage_parameters(model, range(32), embedding=True, head=True)
    assert held.expert == by_kind(model)["experts"] == 32 * 8 * 3 * 4096 * 14336
    split = stage_parameters(model, range(32), embedding=True, head=True, ep=4, etp=2)
    assert split == Parameters(held.dense, held.expert // 8)


def test_a_second_token_needs_the_embedding_on_the_last_stage(preset_model: Build) -> None:
    model = preset_model("deepseek-v3")
    further = preset_model("deepseek-v3", mtp_layers=1)
    last, with_further = (
        stage_parameters(each, range(50, 61), embedding=False, head=True).total
        for each in (model, further)
    )
    copy = model.vocab * model.hidden
    assert with_further - last == by_kind(further)["mtp"] + copy


def test_tp_divides_matrices_and_not_vectors(preset_model: Build) -> None:
    model = preset_model("llama3-70b")
    whole, cut = layer_parameters(model, 0).dense, layer_parameters(model, 0, tp=8).dense
    vectors = 2 * model.hidden
    assert cut == (whole - vectors) // 8 + vectors


def test_tp_beyond_the_key_value_heads_repeats_them(preset_model: Build) -> None:
    model = preset_model("llama3-70b")
    at = {tp: layer_parameters(model, 0, tp=tp).dense for tp in (8, 16)}
    group = 2 * model.head_dim * model.hidden  # one key and one value head
    vectors = 2 * model.hidden
    assert at[16] - vectors - group == (at[8] - vectors - group) // 2


def test_an_uneven_cut_is_the_fullest_rank(preset_model: Build) -> None:
    rows = {row.name: row for row in weights(preset_model("gpt2-xl"))}
    assert rows["layers.0.attention.q.weight"].on_rank(tp=8) == 4 * 64 * 1600
    assert rows["embedding.weight"].on_rank(tp=8) == 6283 * 1600
