"""The files of a Hugging Face folder that is being written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from parlay.runtime.hf_folder import INDEX, SINGLE, safetensors
from torch import Tensor

LARGEST: Final = 5_000_000_000
"""Bytes of a file, beyond which another is begun."""


class Files:
    """Tensors by files of at most `LARGEST` bytes, but for what is added at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: dict[str, Tensor] = {}
        self.bytes, self.total = 0, 0
        self.written: list[tuple[Path, list[str]]] = []

    def add(self, tensors: dict[str, Tensor]) -> None:
        size = sum(tensor.nbytes for tensor in tensors.values())
        if self.held and self.bytes + size > LARGEST:
            self._end()
        self.held |= tensors
        self.bytes += size
        self.total += size

    def _end(self) -> None:
        path = self.folder / f"model-{len(self.written) + 1}.safetensors"
        whole = {name: tensor.contiguous() for name, tensor in self.held.items()}
        safetensors().torch.save_file(whole, path, metadata={"format": "pt"})
        self.written.append((path, list(self.held)))
        self.held, self.bytes = {}, 0

    def close(self) -> None:
        """After: all is written, under the names that the library looks for."""
        self._end()
        if len(self.written) == 1:
            self.written[0][0].rename(self.folder / SINGLE)
            return
        files: dict[str, str] = {}
        for number, (path, names) in enumerate(self.written, start=1):
            name = f"model-{number:05}-of-{len(self.written):05}.safetensors"
            path.rename(self.folder / name)
            files |= dict.fromkeys(names, name)
        index = {"metadata": {"total_size": self.total}, "weight_map": dict(sorted(files.items()))}
        write_json(self.folder / INDEX, index)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
