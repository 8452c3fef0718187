"""Folders of Hugging Face weights by hand: what is wrong with one is told before anything is read,
and nothing is left of an export that fails."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
library = pytest.importorskip("safetensors.torch")

from parlay.runtime.boxes import Box, Boxes  # noqa: E402
from parlay.runtime.hf_folder import WeightsFolder  # noqa: E402
from parlay.runtime.merge import boxed  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.pretrained import read_weights  # noqa: E402
from parlay.runtime.saved import CheckpointError, Saved  # noqa: E402

pytestmark = pytest.mark.slow  # by what is imported

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 6,
    "vocab_size": 5,
    "hidden_act": "silu",
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
PLAN = {
    "version": 1,
    "model": {"layers": 1, "hidden": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "vocab": 5},
    "dtypes": {"compute": "float32"},
    "hugging_face": CONFIG,
}
AT = "model.layers.0."
SHAPES = {
    "embedding.weight": ("model.embed_tokens.weight", (5, 8)),
    "layers.0.attention_norm.weight": (f"{AT}input_layernorm.weight", (8,)),
    "layers.0.attention.q.weight": (f"{AT}self_attn.q_proj.weight", (8, 8)),
    "layers.0.attention.k.weight": (f"{AT}self_attn.k_proj.weight", (4, 8)),
    "layers.0.attention.v.weight": (f"{AT}self_attn.v_proj.weight", (4, 8)),
    "layers.0.attention.o.weight": (f"{AT}self_attn.o_proj.weight", (8, 8)),
    "layers.0.mlp_norm.weight": (f"{AT}post_attention_layernorm.weight", (8,)),
    "layers.0.mlp.gate.weight": (f"{AT}mlp.gate_proj.weight", (6, 8)),
    "layers.0.mlp.up.weight": (f"{AT}mlp.up_proj.weight", (6, 8)),
    "layers.0.mlp.down.weight": (f"{AT}mlp.down_proj.weight", (8, 6)),
    "norm.weight": ("model.norm.weight", (8,)),
    "head.weight": ("lm_head.weight", (5, 8)),
}
QUERY = SHAPES["layers.0.attention.q.weight"][0]


def tensors() -> dict[str, Any]:
    torch.manual_seed(3)
    return {theirs: torch.randn(shape) for theirs, shape in SHAPES.values()}


def written(folder: Path, found: dict[str, Any], *, files: int = 1, **config: Any) -> Path:
    """The folder of these tensors, with an index where they are in several files."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    names = [f"model-{n}.safetensors" for n in range(files)] if files > 1 else ["model.safetensors"]
    placed = {name: names[at % files] for at, name in enumerate(found)}
    for file in names:
        library.save_file(
            {n: found[n] for n, there in placed.items() if there == file}, folder / file
        )
    if files > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    return folder


def read(folder: Path) -> dict[str, Any]:
    plan = Plan.of(PLAN)
    found = {name: torch.full(shape, torch.nan) for name, (_, shape) in SHAPES.items()}
    read_weights(plan, Saved(plan), folder, {n: boxed(tensor) for n, tensor in found.items()})
    return found


@pytest.mark.parametrize("files", [1, 3])
def test_read(files: int, tmp_path: Path) -> None:
    theirs = tensors()
    ours = read(written(tmp_path / "there", theirs, files=files))
    assert all(torch.equal(ours[name], theirs[named]) for name, (named, _) in SHAPES.items())


def test_a_rank_reads_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 2 to 5 of one weight, columns 3 to 5 of another: as many numbers are read, no more."""
    theirs, plan = tensors(), Plan.of(PLAN)
    folder = written(tmp_path / "there", theirs)
    held = {
        "layers.0.attention.q.weight": ((8, 8), (2, 0), torch.full((4, 8), torch.nan)),
        "layers.0.mlp.down.weight": ((8, 6), (0, 3), torch.full((8, 3), torch.nan)),
    }
    counted: list[int] = []
    plain = WeightsFolder.read

    def read_counted(self: Any, name: str, *ranges: tuple[int, int]) -> Any:
        found = plain(self, name, *ranges)
        counted.append(found.numel())
        return found

    monkeypatch.setattr(WeightsFolder, "read", read_counted)
    monkeypatch.setattr("parlay.runtime.pretrained._nothing_left", lambda *_: None)
    state = {
        name: Boxes(shape=torch.Size(shape), boxes=(Box(offsets, tensor),))
        for name, (shape, offsets, tensor) in held.items()
    }
    read_weights(plan, Saved(plan), folder, state)
    query, down = (tensor for _, _, tensor in held.values())
    assert torch.equal(query, theirs[QUERY][2:6])
    assert torch.equal(down, theirs[f"{AT}mlp.down_proj.weight"][:, 3:])
    assert counted == [32, 24]


def test_words_of_a_file_are_shown(tmp_path: Path) -> None:
    folder = written(tmp_path / "there", tensors(), hidden_act="\x1b[2Jsilu\n")
    with pytest.raises(CheckpointError) as told:
        read(folder)
    assert "hidden_act is ?[2Jsilu?, the job has silu" in str(told.value)


def test_a_cache_of_links_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "there", tensors())
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to("../blob")
    assert torch.equal(read(folder)["norm.weight"], tensors()["model.norm.weight"])


def test_a_model_saved_without_its_head(tmp_path: Path) -> None:
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors().items()}
    ours = read(written(tmp_path / "there", bare))
    assert torch.equal(ours["layers.0.mlp.up.weight"], tensors()[f"{AT}mlp.up_proj.weight"])
    assert torch.equal(ours["head.weight"], tensors()["lm_head.weight"])


def one_file(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        found = tensors()
        change(found)
        written(folder, found)

    return make


def index_of(**places: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        written(folder, tensors(), files=2)
        path = folder / "model.safetensors.index.json"
        files = json.loads(path.read_text())["weight_map"]
        path.write_text(json.dumps({"weight_map": files | {QUERY: places["at"]}}))

    return make


def truncated(folder: Path) -> None:
    path = written(folder, tensors()) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])


def header_alone(folder: Path) -> None:
    (written(folder, tensors()) / "model.safetensors").write_bytes(b"\xff" * 7)


def pickled(folder: Path) -> None:
    (written(folder, tensors()) / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(os.getpid))


def config_of(**changed: Any) -> Callable[[Path], None]:
    return lambda folder: written(folder, tensors(), **changed) and None


def pipe(folder: Path) -> None:
    path = written(folder, tensors()) / "model.safetensors"
    path.unlink()
    os.mkfifo(path)


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (one_file(lambda found: found.pop(QUERY)), f"{QUERY} is missing"),
    "shape": (
        one_file(lambda found: found.update({QUERY: torch.zeros(8, 4)})),
        f"{QUERY} is [8, 4], here [8, 8]",
    ),
    "whole numbers": (
        one_file(lambda found: found.update({QUERY: torch.zeros(8, 8, dtype=torch.int8)})),
        f"{QUERY} is in I8",
    ),
    "scaled": (
        one_file(lambda found: found.update({QUERY: found[QUERY].to(torch.float8_e4m3fn)})),
        f"{QUERY} is in F8_E4M3, of which scales are kept elsewhere",
    ),
    "no number": (
        one_file(lambda found: found[QUERY].fill_(torch.inf)),
        f"{QUERY} has numbers that are none",
    ),
    "one of many": (
        one_file(lambda found: found[QUERY][3, 5].fill_(torch.nan)),
        f"{QUERY} has numbers that are none",
    ),
    "left over": (
        one_file(lambda found: found.update({f"{AT}self_attn.q_proj.bias": torch.zeros(8)})),
        "self_attn.q_proj.bias', which this model has no place for",
    ),
    "truncated": (truncated, "model.safetensors cannot be read"),
    "no header": (header_alone, "model.safetensors cannot be read"),
    "pickles": (pickled, "only pickles, which can run code"),
    "a pipe": (pipe, "model.safetensors is no file"),
    "above": (index_of(at="../model-0.safetensors"), "'../model-0.safetensors', which is no"),
    "absolute": (index_of(at="/etc/passwd"), "'/etc/passwd', which is no safetensors file"),
    "no such file": (index_of(at="model-9.safetensors"), "model-9.safetensors is missing"),
    "another file": (index_of(at="model-1.safetensors"), f"{QUERY} is missing"),
    "a base": (config_of(rope_theta=1e4), "rope_theta is 10000.0, the job has 500000.0"),
    "a newer base": (
        config_of(rope_theta=None, rope_parameters={"rope_theta": 1e4, "rope_type": "default"}),
        "rope_theta is 10000.0, the job has 500000.0",
    ),
    "stretched": (
        config_of(rope_scaling={"type": "linear", "factor": 4.0}),
        "rope_type is linear, the job has default",
    ),
    "a window": (config_of(sliding_window=3), "sliding_window is 3, the job has None"),
    "tied": (config_of(tie_word_embeddings=True), "tie_word_embeddings is True"),
    "heads": (config_of(num_attention_heads=4), "num_attention_heads is 4, the job has 2"),
    "a family": (config_of(model_type="gemma"), "model_type is 'gemma', the job's model is one of"),
    "no family": (config_of(model_type=["llama"]), "model_type is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str, tmp_path: Path) -> None:
    make, words = WRONG[name]
    make(tmp_path / "there")
    with pytest.raises(CheckpointError) as told:
        read(tmp_path / "there")
    assert words in str(told.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not there: a folder with config"):
        read(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("[" * 100_000)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        read(tmp_path)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "there", tensors())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(CheckpointError, match="pip install safetensors"):
        read(folder)
