"""The keys of the JSON documents, which only ever grow, over several examples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = [
    "mixtral-8x22b/mixtral-8x22b.par",
    "llama-405b-phases/llama-405b-phases.par",
    "deepseek-v3/deepseek-v3.par",
]


class Keys(dict[str, Any]):
    """An object with these keys at least; a value of None may be anything."""


def keys(words: str, **below: Any) -> Keys:
    return Keys({**dict.fromkeys(words.split()), **below})


PLACE = keys("line column end_line end_column")
CHECK = keys(
    "version",
    files=[
        keys(
            "file",
            diagnostics=[
                keys(
                    "code severity message file notes help",
                    **PLACE,
                    labels=[keys("file text", **PLACE)],
                    fixes=[keys("title", edits=[keys("file start end text")])],
                )
            ],
        )
    ],
    summary=keys("errors warnings"),
)
AXES = [keys("name size stride")]
LAYOUT = keys(
    "version",
    phases=[
        keys(
            "name world groups",
            axes=AXES,
            expert_axes=AXES,
            stages=[keys("stage chunk layers embedding head")],
        )
    ],
)
CATEGORIES = keys(
    "weights gradients optimizer activations logits gathered buffers temporaries reserve"
)
LEDGER = keys(
    "version",
    files=[
        keys(
            "file",
            phases=[
                keys(
                    "name world goodput inference",
                    parameters=keys("total active by_kind"),
                    memory=keys(
                        "budget_bytes peak_bytes host_bytes_per_node",
                        rank_classes=[
                            keys("stage ranks peak_bytes moment formula", categories=CATEGORIES)
                        ],
                    ),
                    communication=[
                        keys(
                            "group collective dtype bytes_per_call wire_bytes_per_call "
                            "calls_per_step link seconds exposed_seconds formula"
                        )
                    ],
                    time=keys(
                        "step_seconds compute_seconds exposed_communication_seconds bubble "
                        "bubble_over_ideal tokens_per_second tokens_per_second_per_gpu mfu hfu "
                        "flops_convention formula"
                    ),
                    run=keys("days gpu_hours cost"),
                    asserts=[keys("text value holds")],
                    scaling=[keys("nodes step_seconds efficiency")],
                )
            ],
        )
    ],
)


def lacking(found: Any, wanted: Any, at: str = "") -> Iterator[str]:
    """The paths of `wanted` that `found` has not; of a list every item is asked."""
    if isinstance(wanted, list):
        assert isinstance(found, list), at
        for item in found:
            yield from lacking(item, wanted[0], f"{at}[]")
    elif isinstance(wanted, Keys) and found is not None:
        assert isinstance(found, Mapping), at
        for name, below in wanted.items():
            if name not in found:
                yield f"{at}.{name}"
            else:
                yield from lacking(found[name], below, f"{at}.{name}")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("command", "options", "wanted"),
    [
        ("check", (), CHECK),
        ("layout", ("--groups",), LAYOUT),
        ("ledger", ("--formulas", "--nodes", "1,2"), LEDGER),
    ],
)
def test_the_keys(
    parlay: Any, name: str, command: str, options: tuple[str, ...], wanted: Keys
) -> None:
    if command == "layout" and "405b" in name:
        options = ()  # 16,384 ranks
        wanted = Keys({**wanted, "phases": [Keys(_without(wanted["phases"][0], "groups"))]})
    document = json.loads(parlay(command, EXAMPLES / name, "--json", *options).out)
    assert document["version"] == 1
    assert sorted(set(lacking(document, wanted))) == []


def _without(shape: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if key != name}


def test_a_missing_key_is_found() -> None:
    assert list(lacking({"a": [{"b": 1}, {}]}, keys("c", a=[keys("b")]))) == [".c", ".a[].b"]
