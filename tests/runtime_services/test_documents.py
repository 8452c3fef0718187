"""A document a sequence: every token is learned once from the one before it in its document."""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from parlay.runtime.data import DataError, Loader  # noqa: E402
from parlay.runtime.documents import Documents, by_end  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402

SEQ, END = 4, 99
DOCUMENTS = [[1, 2, 3, END], [END], [*range(10, 21), END], [30, END], [*range(40, 48), END]]


def loader(path: Path, *, format: str = "tokens", packing: bool = False) -> Loader:
    fields: dict[str, Any] = {
        "version": 1,
        "model": {"vocab": 100},
        "batch": {"seq": SEQ, "micro_batch": 1, "global_batch": 1},
        "data": {"format": format, "path": str(path), "packing": packing},
        "seed": 7,
    }
    return Loader(Plan.of(fields), rank=0, ranks=1)


def tokens(folder: Path, *, end: int | None = END) -> Path:
    path = folder / "d.bin"
    np.concatenate(DOCUMENTS).astype("<u2").tofile(path)
    facts = {"dtype": "uint16", "vocab": 100, "end": end, "pad": None}
    path.with_suffix(".json").write_text(json.dumps(facts))
    return path


def megatron(folder: Path, firsts: list[int]) -> Path:
    """The documents as sequences, of which `firsts` begin one."""
    lengths = [len(document) for document in DOCUMENTS]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(firsts))
    index += np.array(lengths, dtype="<i4").tobytes()
    index += np.array([2 * sum(lengths[:n]) for n in range(5)], dtype="<i8").tobytes()
    index += np.array(firsts, dtype="<i8").tobytes()
    (folder / "m.idx").write_bytes(index)
    np.concatenate(DOCUMENTS).astype("<u2").tofile(folder / "m.bin")
    return folder / "m"


def learned(of: Loader) -> Counter[tuple[int, ...]]:
    """What each token that counts is learned from, over an epoch."""
    found: Counter[tuple[int, ...]] = Counter()
    for step in range(of.windows):
        [(inputs, labels)] = of.batch(step)
        for at, label in enumerate(labels[0].tolist()):
            if label != -100:
                found[(*inputs[0, : at + 1].tolist(), label)] += 1
    return found


def expected(documents: list[list[int]]) -> Counter[tuple[int, ...]]:
    """By hand: from the start of the document, or of its window."""
    found: Counter[tuple[int, ...]] = Counter()
    for document in documents:
        for at in range(1, len(document)):
            found[tuple(document[(at - 1) // SEQ * SEQ : at + 1])] += 1
    return found


def test_each_token_once_from_its_own_document(tmp_path: Path) -> None:
    assert learned(loader(tokens(tmp_path))) == expected(DOCUMENTS)
    assert learned(loader(megatron(tmp_path, [0, 1, 2, 3, 4, 5]), format="megatron")) == expected(
        DOCUMENTS
    )


def test_documents_of_several_sequences(tmp_path: Path) -> None:
    joined = [DOCUMENTS[0] + DOCUMENTS[1], DOCUMENTS[2] + DOCUMENTS[3], DOCUMENTS[4]]
    found = loader(megatron(tmp_path, [0, 2, 4, 5]), format="megatron")
    assert learned(found) == expected(joined)


def test_packed_windows_go_over_borders(tmp_path: Path) -> None:
    [(inputs, labels)] = loader(tokens(tmp_path), packing=True).batch(0)
    assert -100 not in labels and inputs.shape == (1, SEQ)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 9))
def test_windows_tile_every_document(lengths: list[int], seq: int) -> None:
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    found = Documents(bounds, seq=seq)
    spans = [found.span(window) for window in range(found.windows)]
    assert all(2 <= stop - start <= seq + 1 for start, stop in spans)
    labels = [at for start, stop in spans for at in range(start + 1, stop)]
    inside = [at for at in range(sum(lengths)) if at not in set(bounds.tolist())]
    assert labels == inside


def test_ends_are_found_wherever_they_stand() -> None:
    assert by_end(np.array([5, 9, 9, 5, 9]), 9).tolist() == [0, 2, 3, 5]
    assert by_end(np.array([9, 5]), 9).tolist() == [0, 1, 2]


def test_ends_that_nobody_states(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not say where documents end"):
        loader(tokens(tmp_path, end=None))
    with pytest.raises(DataError, match="does not say where documents end"):
        loader(megatron(tmp_path, [0, 3, 1, 5]), format="megatron")
