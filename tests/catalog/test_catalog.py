"""Every fact file is found, is whole, and speaks the language of the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import catalog
from parlay.compiler.spec.blocks import Gpu, Model, Node
from parlay.compiler.spec.resolve import resolve
from parlay.compiler.spec.schema import (
    REQUIRED,
    Choice,
    FieldType,
    ListOf,
    Nested,
    Quantity,
    Switch,
    Variant,
    field_of,
    fields_of,
)
from parlay.dsl.parse import parse
from parlay.dsl.source import Source
from parlay.dsl.units import Dimension, units_of

BLOCKS = {"model": Model, "gpu": Gpu, "node": Node}
ENTRIES = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]


def preset(kind: str, name: str) -> catalog.Preset:
    found = catalog.load(kind, name)
    assert found is not None
    return found


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_an_entry_is_whole(kind: str, name: str) -> None:
    entry = preset(kind, name)
    assert (entry.kind, entry.name) == (kind, name)
    assert entry.source.strip()
    assert entry.note is None or entry.note.endswith(".")
    assert list(entry.values) == [kind]
    check_block(BLOCKS[kind], entry.values[kind])


def check_block(block: type[Any], values: Mapping[str, Any]) -> None:
    """Every key is a field, every value has its type, nothing that is required is missing."""
    for key, value in values.items():
        if key == "from":
            continue
        schema = field_of(block, key)
        assert schema is not None, f"{block.__name__} has no field {key}"
        assert any(fits(kind, value) for kind in schema.types), f"{key} = {value!r}"
    for schema in fields_of(block):
        if schema.default is REQUIRED:
            assert schema.name in values or "from" in values, schema.name


def fits(kind: FieldType, value: Any) -> bool:
    match kind:
        case Nested():
            if "from" in value:
                assert kind.preset is not None
                assert value["from"] in catalog.names(kind.preset)
            check_block(kind.block, value)
            return True
        case Switch():
            return isinstance(value, bool)
        case Choice():
            return value in kind.values
        case ListOf():
            return isinstance(value, list) and all(fits(kind.item, item) for item in value)
        case Variant():
            return fits_variant(kind, value)
        case Quantity() if isinstance(value, int) and not isinstance(value, bool):
            return kind.dimension is Dimension.COUNT and (kind.minimum or 0) <= value
        case Quantity():
            number = re.fullmatch(r"[0-9][0-9._]*(?:e-?[0-9]+)?(.*)", value)
            bare = kind.dimension in (Dimension.COUNT, Dimension.SHARE)
            units = (*units_of(kind.dimension), *([""] if bare else []))
            return number is not None and number[1] in units
    return False


def fits_variant(kind: Variant, value: str) -> bool:
    call = re.fullmatch(r"(\w+)\((.*)\)", value)
    case = kind.case(call[1]) if call else None
    if call is None or case is None:
        return False
    options = {option.name: option.types[0] for option in case.options}
    given = dict(part.strip().split(" = ") for part in call[2].split(","))
    switches = {"on": True, "off": False}
    return all(fits(options[name], switches.get(said, said)) for name, said in given.items())


OPENINGS = {
    "model": 'model from "{}"',
    "gpu": 'cluster {{ node {{ gpus = 8, gpu from "{}" }} }}',
    "node": 'cluster {{ node from "{}" }}',
}


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_an_entry_resolves_without_a_word(kind: str, name: str) -> None:
    file, told = parse(Source("entry.par", OPENINGS[kind].format(name)))
    phases, more = resolve(file, lambda _: (None, ()))
    assert not told
    assert not more
    spec = phases[0].spec
    assert (spec.model if kind == "model" else spec.cluster) is not None


# ── Names ─────────────────────────────────────────────────────────────────────


def test_names_are_the_files() -> None:
    folder = Path(catalog.__file__).parent
    found = {(path.parent.name, path.stem) for path in folder.glob("*/*.toml")}
    assert found == {(f"{kind}s", name) for kind, name in ENTRIES}
    assert catalog.names("model") == tuple(sorted(catalog.names("model")))
    assert len(catalog.names("model")) == 69


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../gpus/b200",
        "gpt2-xl.toml",
        "GPT2-XL",
        "models/gpt2-xl",
        "/etc/passwd",
        "\0",
    ],
)
def test_only_names_of_the_listing_are_opened(name: str) -> None:
    assert catalog.load("model", name) is None


def test_an_unknown_kind_has_nothing() -> None:
    assert catalog.names("../models") == ()
    assert catalog.load("models", "gpt2-xl") is None


def test_the_nodes_of_the_language() -> None:
    wanted = "dgx-a100 dgx-h100 dgx-h200 dgx-b200 gb200-nvl72 a100-pcie-pairs laptop"
    assert set(wanted.split()) <= set(catalog.names("node"))


# ── Facts that are usually mistaken ───────────────────────────────────────────


@pytest.mark.parametrize(
    ("gpu", "memory"),
    [("h100-sxm-80gb", "81559MiB"), ("h200-sxm", "143771MiB"), ("a100-sxm-80gb", "81920MiB")],
)
def test_memory_is_what_the_driver_shows(gpu: str, memory: str) -> None:
    assert preset("gpu", gpu).values["gpu"]["memory"] == memory


def test_a_v100_has_no_bf16_and_a_laptop_no_peak() -> None:
    for name in catalog.names("gpu"):
        assert name.startswith(("v100", "h100-sxm-96gb")) != (
            "bf16" in preset("gpu", name).values["gpu"]
        )
    assert set(preset("node", "laptop").values["node"]["gpu"]) == {"memory"}


def test_a_domain_is_no_larger_than_its_node_but_in_a_rack() -> None:
    for name in catalog.names("node"):
        node = preset("node", name).values["node"]
        assert node["link"]["domain"] <= node["gpus"] or name.endswith("nvl72")
