"""A folder in place of a file: what was looked for in it, and what is there instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WANTED = {
    "hf": "config.json",
    "megatron": "pretrain.sh and no arguments.txt",
    "deepspeed": "ds_config.json and no other file with keys of DeepSpeed",
    "torchtitan": "parlay_config.py",
}


@pytest.mark.parametrize("format", WANTED)
def test_what_is_there(format: str, parlay: Callable[..., Any], tmp_path: Path) -> None:
    lacks = f"parlay: {tmp_path} gives no job: the folder has no {WANTED[format]}"
    ended = parlay("import", format, tmp_path)
    assert (ended.status, ended.out, ended.err) == (1, "", f"{lacks}; it is empty\n")
    (tmp_path / ".hidden").touch()
    (tmp_path / "model.safetensors").touch()
    assert parlay("import", format, tmp_path).err == f"{lacks}; it holds model.safetensors\n"
    (tmp_path / "a").mkdir()
    assert parlay("import", format, tmp_path).err.endswith("; it holds a/ and model.safetensors\n")
    for number in range(5):
        (tmp_path / f"b\x1b[31m{number}").touch()
    told = parlay("import", format, tmp_path).err
    assert told.endswith(" and 2 more\n") and "\x1b" not in told


def test_a_folder_of_the_hubs_cache(parlay: Callable[..., Any], tmp_path: Path) -> None:
    snapshot = tmp_path / "models--x" / "snapshots" / "0a1b"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    told = parlay("import", "hf", tmp_path / "models--x").err
    assert "no config.json, but snapshots/0a1b/config.json: name one of its folders" in told
    assert "but 0a1b/config.json" in parlay("import", "hf", snapshot.parent).err


def test_the_folder_of_a_model(parlay: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1}')
    (tmp_path / "weights").mkdir()
    ended = parlay("import", "deepspeed", config, "--model", tmp_path / "weights")
    assert (ended.status, "has no config.json; it is empty" in ended.err) == (1, True)
