"""Tokenizes the text of a job once: `python -m parlay.runtime.prepare CODE`.

CODE is an emitted folder whose plan.json names a tokenizer. After: the tokens of its corpus stand
beside it, in the format `tokens`, where training looks for them (`corpus.prepared`). A document has
what the tokenizer puts before and behind a text, then the token that ends it, unless that is its
last one already.

Pieces of files are tokenized by as many processes as there are cores, each written to a file of its
own; a run that was cut off goes on with those that are not there yet. The tokens do not depend on
how many processes there were. What is there and whole is left alone.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from parlay.runtime import corpus
from parlay.runtime.committed import sync_folder
from parlay.runtime.corpus import CorpusError, Piece
from parlay.runtime.plan import Plan
from parlay.runtime.tokenizing import Tokens

TOLD_S: Final = 10.0
"""Seconds between two words on how far it is."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """Tokens of a corpus on disk."""

    path: Path
    documents: int
    tokens: int
    already: bool = False


def prepare(text: Path, tokenizer: Path, *, vocab: int, workers: int | None = None) -> Made:
    """Tokenizes the corpus `text` for a model of `vocab` tokens, unless that was done."""
    tokenizer = corpus.tokenizer_file(tokenizer)
    whole, files = corpus.prepared(text, tokenizer), corpus.files(text)
    sidecar = whole.with_suffix(".json")
    stamps = {file.name: file.changed for file in files}
    if (made := _there(whole, sidecar, stamps)) is not None:
        return made
    with _working(whole.with_suffix(".work")) as folder:
        if (made := _there(whole, sidecar, stamps)) is not None:
            return made
        facts = Tokens.of(tokenizer).facts(vocab)
        folder = folder / _stamp(stamps)
        folder.mkdir(exist_ok=True)
        pieces = [piece for file in files for piece in corpus.pieces(file)]
        counts = _tokenized(pieces, tokenizer, folder, facts["dtype"], workers or _cores())
        sidecar.unlink(missing_ok=True)
        documents, tokens = sum(each[0] for each in counts), sum(each[1] for each in counts)
        _joined([folder / f"{number:08}.bin" for number in range(len(pieces))], whole)
        _write(
            sidecar,
            {**facts, "documents": documents, "tokens": tokens, "changed": stamps},
        )
        return Made(path=whole, documents=documents, tokens=tokens)


def _there(whole: Path, sidecar: Path, stamps: dict[str, int]) -> Made | None:
    """What was made of files that have not changed since."""
    try:
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
        documents, tokens = int(facts["documents"]), int(facts["tokens"])
        size = tokens * np.dtype(facts["dtype"]).itemsize
        same = facts["changed"] == stamps and whole.stat().st_size == size
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Made(path=whole, documents=documents, tokens=tokens, already=True) if same else None


def _stamp(stamps: dict[str, int]) -> str:
    """A folder's name that is another where files have changed since."""
    return hashlib.sha256(json.dumps(stamps, sort_keys=True).encode()).hexdigest()[:12]


@contextmanager
def _working(folder: Path) -> Iterator[Path]:
    """A folder for pieces, of this process alone; it goes where all of it was done."""
    try:
        folder.mkdir(exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        why = error.strerror or str(error)
        raise CorpusError(f"{folder} cannot be written beside the text: {why}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CorpusError(f"another process is preparing {folder}") from error
        yield folder
        shutil.rmtree(folder)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


# ── One process ───────────────────────────────────────────────────────────────


_own: Tokens | None = None


def _begin(tokenizer: Path) -> None:
    """Once in each process."""
    global _own
    # Processes are what it runs in parallel by.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _own = Tokens.of(tokenizer)


def _one(piece: Piece, to: Path, dtype: str) -> tuple[int, int]:
    """Tokenizes a piece; how many documents end in it, and its tokens."""
    assert _own is not None
    documents = tokens = 0
    staged = to.with_name(f"{to.stem}.tmp-{uuid.uuid4().hex[:8]}")
    with staged.open("wb") as file:
        for part in corpus.parts(piece):
            row = _own.row(part)
            file.write(np.array(row).astype(np.dtype(dtype).newbyteorder("<")).tobytes())
            documents, tokens = documents + part.last, tokens + len(row)
        file.flush()
        os.fsync(file.fileno())
    staged.rename(to)
    _write(to.with_suffix(".json"), {"documents": documents, "tokens": tokens})
    return documents, tokens


# ── All of them ───────────────────────────────────────────────────────────────


def _tokenized(
    pieces: Sequence[Piece], tokenizer: Path, folder: Path, dtype: str, workers: int
) -> list[tuple[int, int]]:
    """Documents and tokens of each piece; after: each has a file in `folder`."""
    counts = {number: found for number in range(len(pieces)) if (found := _done(folder, number))}
    left = [number for number in range(len(pieces)) if number not in counts]
    if not left:
        return [counts[number] for number in range(len(pieces))]
    # Processes that are started anew: the library's threads do not outlive a fork.
    pool = ProcessPoolExecutor(
        min(workers, len(left)), get_context("spawn"), initializer=_begin, initargs=(tokenizer,)
    )
    told = time.monotonic()
    try:
        running: dict[Future[tuple[int, int]], int] = {
            pool.submit(_one, pieces[number], folder / f"{number:08}.bin", dtype): number
            for number in left
        }
        while running:
            ended, _ = wait(running, timeout=TOLD_S, return_when=FIRST_COMPLETED)
            counts |= {running.pop(each): each.result() for each in ended}
            if time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                print(f"{len(counts)} of {len(pieces)} pieces", file=sys.stderr)
    except BrokenProcessPool as error:
        raise CorpusError("a process that tokenizes was ended; what is done is kept") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [counts[number] for number in range(len(pieces))]


def _done(folder: Path, number: int) -> tuple[int, int] | None:
    """What a piece that is on disk already has."""
    try:
        facts = json.loads((folder / f"{number:08}.json").read_text(encoding="utf-8"))
        return int(facts["documents"]), int(facts["tokens"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _joined(files: Sequence[Path], whole: Path) -> None:
    """After: `whole` is these files, one after the other, and on disk."""
    staged = whole.with_name(f"{whole.name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        with staged.open("wb") as out:
            for file in files:
                with file.open("rb") as piece:
                    shutil.copyfileobj(piece, out, 1 << 22)
            out.flush()
            os.fsync(out.fileno())
        staged.rename(whole)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(whole.parent)


def _write(path: Path, facts: dict[str, Any]) -> None:
    """After: `path` has these facts, whole and on disk."""
    staged = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex[:8]}")
    with staged.open("w", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
    sync_folder(path.parent)


# ── Command line ──────────────────────────────────────────────────────────────


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m parlay.runtime.prepare",
        description="Tokenizes the text that plan.json names, once, beside it.",
    )
    parser.add_argument("code", type=Path, help="an emitted folder")
    parser.add_argument("--workers", type=_at_least_one, help="processes (all cores)")
    asked = parser.parse_args(argv)
    try:
        plan = Plan.load(asked.code / "plan.json")
        if "tokenizer" not in plan.data:
            raise CorpusError("plan.json names no tokenizer: there is nothing to prepare")
        made = prepare(
            Path(plan.data.path),
            Path(plan.data.tokenizer),
            vocab=plan.model.vocab,
            workers=asked.workers,
        )
    except (CorpusError, OSError, ValueError) as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    counted = f"{made.documents} documents, {made.tokens} tokens"
    print(f"{counted}{' there already' if made.already else ''}: {made.path}")
    return 0


if __name__ == "__main__":
    # By its own name: as `__main__` its functions have no name in other processes.
    from parlay.runtime import prepare as named

    sys.exit(named.main())
