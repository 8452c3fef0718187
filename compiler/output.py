"""Writing emitted files: all of them or none, and never over what somebody else wrote.

Each emitted folder carries a manifest with the hash of every file; a page stands alone and carries
its own in its last line. A file without one, or that has changed since, belongs to a person. A JSON
document names the command that made it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

MANIFEST: Final = ".parlay.json"
EXECUTABLE: Final = (".sh",)
SEAL: Final = "<!-- parlay sha256:"
MADE_BY: Final = "made_by"
"""The key under which a JSON document names the command that made it."""
NEAR: Final = 4096
"""`MADE_BY` stands within so many bytes of the start or the end."""
LARGEST: Final = 64 * 2**20
"""Bytes beyond which a file is no page of Parlay's."""


def write_folder(folder: Path, files: Mapping[str, str], *, force: bool = False) -> list[str]:
    """As `write_folders`, of one folder: the paths in it that a person wrote or edited."""
    return write_folders({folder: files}, force=force).get(folder, [])


def write_folders(
    folders: Mapping[Path, Mapping[str, str]], *, force: bool = False
) -> dict[Path, list[str]]:
    """Puts files (path inside the folder -> text) into each folder; what stood there goes.

    Returns the paths that a person wrote or edited, by their folders, in which case nothing is
    changed unless `force`. Raises `OSError`, nothing changed and nothing left behind, where one of
    the folders cannot be written or something that is never replaced stands in its place: a link,
    or a file for a folder or the reverse.
    """
    for folder, files in folders.items():
        _clear_way(folder, files)
    before = {folder: _manifest(folder) for folder in folders}
    foreign = {
        folder: _foreign_in(folder, files, before[folder]) for folder, files in folders.items()
    }
    foreign = {folder: names for folder, names in foreign.items() if names}
    if foreign and not force:
        return foreign
    made: list[Path] = []
    staged: dict[Path, Path] = {}
    try:
        for folder, files in folders.items():
            _make(folder.parent, made)
            staged[folder] = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            _fill(staged[folder], files)
            for name in files if folder.exists() else ():
                _make((folder / name).parent, made)
        # All that takes room is there: what follows moves it.
        for folder, files in folders.items():
            _move(staged[folder], folder, files, before[folder])
        made.clear()
    finally:
        for each in staged.values():
            shutil.rmtree(each, ignore_errors=True)
        _unmake(made)
    return {}


def _foreign_in(folder: Path, files: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """What of a folder's files, those of now and those of before, is not as Parlay wrote it."""
    found = [name for name in sorted(files) if _foreign(folder / name, before.get(name))]
    gone = [name for name in sorted(before) if name not in files]
    return found + [name for name in gone if _edited(folder / name, before[name])]


def _move(staged: Path, folder: Path, files: Mapping[str, str], before: Mapping[str, str]) -> None:
    if not folder.exists():
        staged.chmod(0o755)
        staged.rename(folder)
        return
    for name in (*sorted(files), MANIFEST):
        (staged / name).replace(folder / name)
    for name in before:
        if name not in files and not (folder / name).is_dir():
            (folder / name).unlink(missing_ok=True)


def _make(folder: Path, made: list[Path]) -> None:
    """Makes a folder and those above it; each that was not there is added to `made`."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        made.append(each)


def _unmake(made: Sequence[Path]) -> None:
    """Takes away the folders that were made, the last first, where nothing came into them."""
    for each in reversed(made):
        with suppress(OSError):
            each.rmdir()


def sealed(text: str) -> bytes:
    """A page as it is written: its last line is the hash of all before it."""
    data = text.encode()
    return data + f"{SEAL}{_hash(data)} -->\n".encode()


def write_page(path: Path, text: str, *, force: bool = False) -> bool:
    """Puts a page at `path`, by way of a file beside it that is moved into place.

    False, nothing changed, where a person wrote or edited what stands there, unless `force`. Raises
    `OSError`, nothing changed, where it cannot be written, or where something stands there that is
    never replaced: a folder, a link, a device.
    """
    _clear_place(path)
    if path.exists() and not force and not _is_sealed(path):
        return False
    _put(path, sealed(text))
    return True


def write_document(path: Path, text: str, *, by: str, force: bool = False) -> bool:
    """Puts a JSON document at `path`, by way of a file beside it that is moved into place.

    False, nothing changed, where what stands there is no document that `MADE_BY` says was made by
    `by`, unless `force`. Raises `OSError` as `write_page` does.
    """
    _clear_place(path)
    if path.exists() and not force and not _is_made(path, by):
        return False
    _put(path, text.encode())
    return True


def _clear_place(path: Path) -> None:
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{parent} is a file, not a folder")
    if path.is_symlink():
        raise FileExistsError(errno.EEXIST, f"{path} is a symbolic link")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"{path} is a folder, not a file")
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, f"{path} is no plain file")


def _put(path: Path, data: bytes) -> None:
    made: list[Path] = []
    staged = None
    try:
        _make(path.parent, made)
        number, name = tempfile.mkstemp(prefix=".parlay-", dir=path.parent)
        staged = Path(name)
        with os.fdopen(number, "wb") as file:
            file.write(data)
        staged.chmod(0o644)
        staged.replace(path)
        made.clear()
    finally:
        if staged is not None:
            staged.unlink(missing_ok=True)
        _unmake(made)


def _is_made(path: Path, by: str) -> bool:
    """Whether the document at `path` names `by`, near its start or its end."""
    mark = f'"{MADE_BY}": "{by}"'.encode()
    with path.open("rb") as file:
        if mark in file.read(NEAR):
            return True
        file.seek(max(0, path.stat().st_size - NEAR))
        return mark in file.read(NEAR)


def _is_sealed(path: Path) -> bool:
    """Whether Parlay wrote the page at `path` as it stands."""
    if path.stat().st_size > LARGEST:
        return False
    data = path.read_bytes()
    before, mark, _ = data.rpartition(SEAL.encode())
    return bool(mark) and data == before + f"{SEAL}{_hash(before)} -->\n".encode()


def _clear_way(folder: Path, files: Mapping[str, str]) -> None:
    parents = {parent for name in files for parent in (folder / name).parents}
    for path in sorted(path for path in parents if path.is_relative_to(folder)):
        if path.is_symlink():
            raise FileExistsError(errno.EEXIST, f"{path} is a symbolic link")
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file, not a folder")
    for name in (*files, MANIFEST):
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise IsADirectoryError(errno.EISDIR, f"{folder / name} is a folder, not a file")


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    hashes = {}
    for name, text in sorted(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        path.write_bytes(data)
        path.chmod(0o755 if path.suffix in EXECUTABLE else 0o644)
        hashes[name] = _hash(data)
    manifest = json.dumps({"version": 1, "files": hashes}, indent=1, sort_keys=True)
    (folder / MANIFEST).write_text(manifest + "\n")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _manifest(folder: Path) -> dict[str, str]:
    """The hashes of what was written last; empty where no manifest can be read."""
    path = folder / MANIFEST
    try:
        files = json.loads(path.read_bytes())["files"]
        return {
            str(name): str(digest)
            for name, digest in files.items()
            if ".." not in Path(name).parts and not Path(name).is_absolute()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _foreign(path: Path, digest: str | None) -> bool:
    """Whether something stands at `path` that Parlay did not write as it stands."""
    if path.is_symlink():
        return True
    return path.exists() and (digest is None or _edited(path, digest))


def _edited(path: Path, digest: str) -> bool:
    if path.is_symlink() or path.is_dir():
        return True
    try:
        return _hash(path.read_bytes()) != digest
    except FileNotFoundError:
        return False
