"""Folders of saves on disk: which one counts, and what its manifest says. No torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "committed.json"
VERSION: Final = 1
NAME: Final = re.compile(r"step-\d{8,}")
FILE: Final = re.compile(r"__\d+_\d+\.distcp|\.metadata")
FIELDS: Final = {"step": int, "seed": int, "samples": int, "spec": str, "files": dict}


class Damaged(ValueError):
    """A save is not what was committed."""


def committed(folder: Path) -> bool:
    """Whether `folder` is a whole save."""
    return NAME.fullmatch(folder.name) is not None and (folder / MANIFEST).is_file()


def last_of(folder: Path) -> Path | None:
    """The newest whole save in `folder`."""
    found = [path for path in folder.glob("step-*") if committed(path)]
    return max(found, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a save, its fields checked."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise Damaged(f"{path} is not of version {VERSION}")
    for name, kind in FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise Damaged(f"{path} has no {name}")
    for name in found["files"]:
        if not FILE.fullmatch(name):
            raise Damaged(f"{path} names {name!r}, which is no file of a save")
    return found


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """The last file of a save; after: it and the folder are on disk."""
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        file.write(json.dumps(manifest, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """After: the names in `folder` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
