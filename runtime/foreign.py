"""Files of a checkpoint: written plainly, and read without trust, so that they can run no code.

`torch.distributed.checkpoint` keeps an index, `.metadata`, as a pickle, and reads it by
`pickle.load`. Here the few classes that such an index is made of are all that is let in.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

INDEX: Final = ".metadata"

_METADATA: Final = "torch.distributed.checkpoint.metadata"
ALLOWED: Final = frozenset(
    {
        (_METADATA, "Metadata"),
        (_METADATA, "MetadataIndex"),
        (_METADATA, "TensorStorageMetadata"),
        (_METADATA, "TensorProperties"),
        (_METADATA, "ChunkStorageMetadata"),
        (_METADATA, "StorageMeta"),
        (_METADATA, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        *(("torch", name) for name in ("float64", "float32", "bfloat16")),
    }
)


class ForeignError(ValueError):
    """The files are not what Parlay saves."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise ForeignError(f"it names {module}.{name}, which no index needs")
        return super().find_class(module, name)


def read_index(path: Path) -> Metadata:
    """The index at `path`, if it is one of tensors alone."""
    try:
        with path.open("rb") as file:
            found = _Unpickler(file).load()
    except ForeignError:
        raise
    except Exception as error:  # whatever a pickle of any content may end in
        raise ForeignError(f"it cannot be read: {error!r}") from error
    if not isinstance(found, Metadata):
        raise ForeignError("it is no index of a checkpoint")
    kinds = found.state_dict_metadata
    if not isinstance(kinds, dict) or not all(
        isinstance(kind, TensorStorageMetadata) for kind in kinds.values()
    ):
        raise ForeignError("it holds something other than tensors")
    return found


class Reader(FileSystemReader):
    """Reads the checkpoint in the folder `path`, of which `files` are a part, and nothing else."""

    def __init__(self, path: Path, *, files: Collection[str]) -> None:
        super().__init__(path)
        self.files = files

    def read_metadata(self) -> Metadata:
        """The index; without keywords, so that no index of a single rank is looked for."""
        path = Path(self.path) / INDEX
        found = read_index(path)
        for info in (found.storage_data or {}).values():
            if not isinstance(info, _StorageInfo) or info.relative_path not in self.files:
                raise ForeignError(f"{path} points outside of its folder")
            if info.transform_descriptors:
                raise ForeignError(f"{path} asks for the extensions {info.transform_descriptors}")
        found.storage_meta = StorageMeta(load_id=self.load_id)
        return found


class Writer(FileSystemWriter):
    """Writes a checkpoint into the new folder `path`, synced, with an index that names no path."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync_files=True, overwrite=False)

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(save_id=self.save_id)
