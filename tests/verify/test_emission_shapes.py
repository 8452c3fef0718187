"""The emitted text of every shape in every layout: formatted, and only what the shape needs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from .proving import emitted, par
from .shapes import SHAPES, model
from .test_emission import ruff

pytestmark = pytest.mark.slow

LAYOUTS = {
    f"tp {tp} {sequence}, pp {pp}": (
        f"tp = {tp}, pp = {pp}" + (f", sequence_parallel = {sequence}" if tp > 1 else ""),
        tp * pp,
    )
    for tp, sequence, pp in itertools.product((1, 4), ("on", "off"), (1, 2))
    if tp > 1 or sequence == "on"
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    found = {}
    for shape, (layout, (parallel, gpus)) in itertools.product(SHAPES, LAYOUTS.items()):
        folder = tmp_path_factory.mktemp("emitted")
        _, files = emitted(par(parallel, gpus=gpus, model=model(shape)), folder)
        for name, body in files.items():
            (folder / name).write_text(body)
        found[shape, layout] = folder
    return found


def test_every_folder_is_formatted(folders: dict[tuple[str, str], Path]) -> None:
    done = ruff("format", "--check", *map(str, folders.values()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_name_is_unknown_or_unused(folders: dict[tuple[str, str], Path]) -> None:
    done = ruff("check", "--select", "F,E,W,B,UP", *map(str, folders.values()))
    assert done.returncode == 0, done.stdout


def test_only_what_the_shape_needs(folders: dict[tuple[str, str], Path]) -> None:
    for (shape, layout), folder in folders.items():
        at, says = (shape, layout), SHAPES[shape]
        text = (folder / "model.py").read_text()
        train = (folder / "train.py").read_text()
        mesh = (folder / "mesh.py").read_text() if (folder / "mesh.py").exists() else ""
        tp, pp = "tp 4" in layout, "pp 2" in layout
        few = tp and any(f"kv_heads = {n}," in f"{says}," for n in (1, 2))
        tied = pp and "tied" in says
        assert ("rotate(" in text) == ("position" not in says), at
        assert ("self.gate" in text) == ("activation = geglu" in says or "activation" not in says)
        assert ("nn.LayerNorm" in text) == ("layernorm" in says), at
        assert bool(re.search(r"self\.head\b", text)) == ("tied" not in says or "head]" in says), at
        biased = ", bias = " in f", {says}"
        # A bias is named where it is added apart from its linear.
        apart = biased and (tp or shape == "odd")
        assert bool(re.search(r"self\.\w+\.bias", text)) == apart, at
        assert ("torch.tanh" in text) == ("softcap" in says), at
        hides = "window(size = 16" in says
        assert ("self.window" in text) == ("window=" in text) == hides, at
        assert ("number=i" in text) == ("number + 1" in text) == ("every = " in says), at
        assert ("self.cap" in text) == ("attention = " in says), at
        assert ("sinks" in text) == ("sinks" in says), at
        assert ("slopes" in text) == ("alibi" in says), at
        asks = hides or any(word in says for word in ("attention = ", "sinks", "alibi"))
        assert ("attention.fused" in text) == asks != ("F.scaled_dot" in text), at
        assert ("KV" in text) == ("KV" in train) == ('name="kv"' in mesh) == few, at
        assert ("TIED" in text) == ("TIED" in train) == ("mesh.ends" in mesh) == tied, at
        within = tp and "off" in layout and "per_head" in says
        assert ("HEAD_NORMS" in text) == ("HEAD_NORMS" in train) == within, at
