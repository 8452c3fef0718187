"""Data: the same global batches for any layout, every window once an epoch, and clear refusals."""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from parlay.runtime import data, streams  # noqa: E402
from parlay.runtime.data import DataError, Loader  # noqa: E402
from parlay.runtime.order import permuted  # noqa: E402
from parlay.runtime.plan import Plan  # noqa: E402
from parlay.runtime.tokens import write_tokens  # noqa: E402


def plan(
    *,
    format: str = "text",
    path: Path | None = None,
    vocab: int = 257,
    seq: int = 16,
    micro_batch: int = 2,
    global_batch: int = 8,
    seed: int = 1,
) -> Plan:
    return Plan.of(
        {
            "version": 1,
            "model": {"vocab": vocab},
            "batch": {"seq": seq, "micro_batch": micro_batch, "global_batch": global_batch},
            "data": {"format": format, "path": None if path is None else str(path)},
            "seed": seed,
        }
    )


def raw(path: Path, tokens: Sequence[int], *, dtype: str = "uint16", **facts: Any) -> Path:
    np.array(tokens, dtype=dtype).tofile(path)
    facts = {"dtype": dtype, "vocab": 100, "end": 99, "pad": None, **facts}
    path.with_suffix(".json").write_text(json.dumps(facts))
    return path


def megatron(stem: Path, sequences: list[list[int]], *, dtype: str = "uint16") -> Path:
    code, width = {"uint16": (8, 2), "int32": (4, 4)}[dtype]
    lengths = [len(sequence) for sequence in sequences]
    offsets = [width * sum(lengths[:i]) for i in range(len(lengths))]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1)
    index += np.array(lengths, dtype="<i4").tobytes()
    index += np.array(offsets, dtype="<i8").tobytes()
    index += np.arange(len(lengths) + 1, dtype="<i8").tobytes()
    Path(f"{stem}.idx").write_bytes(index)
    Path(f"{stem}.bin").write_bytes(b"".join(np.array(s, dtype).tobytes() for s in sequences))
    return stem


# ── The order of samples ──────────────────────────────────────────────────────


@given(size=st.integers(1, 700), key=st.integers(0, 2**64 - 1))
def test_permutation_is_one(size: int, key: int) -> None:
    assert sorted(permuted(i, size=size, key=key) for i in range(size)) == list(range(size))


def test_permutation_of_more_than_memory_holds() -> None:
    size = 10**15
    found = {permuted(i, size=size, key=3) for i in range(1000)}
    assert len(found) == 1000
    assert max(found) > size // 2 > min(found)


def test_permutation_looks_random() -> None:
    """Neighbours part, and no place is preferred over many keys."""
    steps = Counter(
        permuted(i + 1, size=1000, key=5) - permuted(i, size=1000, key=5) for i in range(999)
    )
    assert max(steps.values()) < 12
    first = Counter(permuted(0, size=10, key=key) for key in range(5000))
    assert all(400 < count < 600 for count in first.values())


def test_order_is_fixed_for_good() -> None:
    """What a checkpoint of an older version counts on: (seed, i) means the same window."""
    loader = Loader(plan(seed=1234), rank=0, ranks=1)
    loader.windows = 29060
    assert [loader.window(i) for i in range(4)] == FIXED


FIXED = [1541, 4738, 11086, 28950]


def test_each_epoch_has_every_window_once_in_another_order(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", [i % 99 for i in range(16 * 11 + 1)])
    loader = Loader(plan(format="tokens", path=path, vocab=100), rank=0, ranks=1)
    assert loader.windows == 11
    first, second = ([loader.window(epoch * 11 + i) for i in range(11)] for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(11))
    assert first != second


def test_without_shuffling_samples_stand_as_in_the_file(tmp_path: Path) -> None:
    told = plan(format="tokens", path=raw(tmp_path / "t.bin", range(97)), vocab=100).to_dict()
    told["data"]["shuffle"] = False
    loader = Loader(Plan.of(told), rank=0, ranks=1)
    starts = [int(tokens[0, 0]) for step in range(2) for tokens, _ in loader.batch(step)]
    assert loader.windows == 6
    # Microbatches of two; the second epoch begins within the first step, in the same order.
    assert starts == [0, 32, 64, 0, 32, 64, 0, 32]


def held(path: Path, *, share: float, batches: int = 8, ranks: int = 1) -> list[Loader]:
    told = plan(format="tokens", path=path, vocab=1000).to_dict()
    told["data"]["validation"] = {"share": share, "batches": batches, "every": None}
    return [Loader(Plan.of(told), rank=rank, ranks=ranks) for rank in range(ranks)]


def test_what_is_held_out_is_never_trained_on(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(641), vocab=1000)  # 40 windows of 16
    [loader] = held(path, share=0.25)
    assert loader.windows == 30
    trained = {int(tokens[0, 0]) // 16 for step in range(9) for tokens, _ in loader.batch(step)}
    assert trained <= set(range(30))
    # Ten are held out, of which one global batch of eight is whole.
    assert [int(one[0, 0]) // 16 for one, _ in loader.held()] == [30, 32, 34, 36]
    parts = [one.held() for one in held(path, share=0.25, ranks=2)]
    assert [[int(one[0, 0]) // 16 for one, _ in part] for part in parts] == [[30, 34], [32, 36]]
    [few] = held(path, share=0.8, batches=2)
    assert len(few.held()) == 2 * 4


def test_too_little_to_hold_out(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(641), vocab=1000)
    with pytest.raises(DataError, match=r"0\.1 of the 40 windows .* is 4; .* takes 8"):
        held(path, share=0.1)


def test_seeds_differ() -> None:
    one, other = (Loader(plan(seed=seed), rank=0, ranks=1) for seed in (1, 2))
    assert [one.window(i) for i in range(20)] != [other.window(i) for i in range(20)]


@pytest.mark.parametrize(("micro_batch", "ranks"), [(1, 1), (1, 8), (2, 2), (2, 4), (4, 1), (8, 1)])
def test_any_layout_reads_the_same_global_batches(micro_batch: int, ranks: int) -> None:
    job = plan(micro_batch=micro_batch)
    loaders = [Loader(job, rank=rank, ranks=ranks) for rank in range(ranks)]
    plain = Loader(plan(micro_batch=8), rank=0, ranks=1)
    for step in (0, 3):
        shares = [loader.batch(step) for loader in loaders]
        # Microbatch k of rank d is piece k * ranks + d of the global batch.
        pieces = [share[k] for k in range(len(shares[0])) for share in shares]
        assert all(tokens.shape == (micro_batch, 16) for tokens, _ in pieces)
        ((tokens, labels),) = plain.batch(step)
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), tokens)
        assert torch.equal(torch.cat([piece[1] for piece in pieces]), labels)


def test_labels_are_the_next_tokens(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(65))
    for tokens, labels in Loader(
        plan(format="tokens", path=path, vocab=100), rank=0, ranks=1
    ).batch(0):
        assert tokens.dtype == labels.dtype == torch.int64
        assert torch.equal(labels, tokens + 1)


# ── Formats ───────────────────────────────────────────────────────────────────


def test_text_that_python_carries() -> None:
    loader = Loader(plan(), rank=0, ranks=1)
    tokens = loader.stream.tokens
    text = bytes(tokens[tokens < 256].astype("uint8")).decode()
    assert 'The "assert" statement' in text
    assert tokens.max() == 256
    assert len(tokens) > 400_000


def test_text_falls_back_to_the_source_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pydoc_data.topics", None)
    tokens = Loader(plan(), rank=0, ranks=1).stream.tokens
    assert b"class ZipImportError(" in bytes(tokens[tokens < 256].astype("uint8"))


def test_text_file_is_bytes_and_an_end(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("naïve ".encode() * 10)
    tokens = Loader(plan(path=tmp_path / "t.txt"), rank=0, ranks=1).stream.tokens
    assert bytes(tokens[:7].astype("uint8")) == "naïve ".encode()
    assert (len(tokens), tokens[-1]) == (71, 256)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_tokens(tmp_path: Path, dtype: str) -> None:
    path = raw(tmp_path / "t.bin", range(70), dtype=dtype)
    loader = Loader(plan(format="tokens", path=path, vocab=100), rank=0, ranks=1)
    assert isinstance(loader.stream.tokens, np.memmap)
    assert (loader.windows, loader.stream.end) == (4, 99)


def test_padding_does_not_count(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", [1, 2, 7, 3, 7] * 20, pad=7)
    for tokens, labels in Loader(
        plan(format="tokens", path=path, vocab=100), rank=0, ranks=1
    ).batch(0):
        assert (tokens == 7).any()
        assert torch.equal(labels[:, :-1] == -100, tokens[:, 1:] == 7)
        assert not (labels == 7).any()


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_megatron(tmp_path: Path, dtype: str, ending: str) -> None:
    sequences = [list(range(i, i + 12)) for i in range(9)]
    stem = megatron(tmp_path / "corpus.v2_text", sequences, dtype=dtype)
    job = plan(format="megatron", path=Path(f"{stem}{ending}"), vocab=100)
    loader = Loader(job, rank=0, ranks=1)
    assert loader.stream.tokens.tolist() == list(chain(*sequences))
    assert loader.windows == 6


def test_megatron_byte_by_byte(tmp_path: Path) -> None:
    """As `IndexedDatasetBuilder` writes [[5, 6, 7], [8, 9]] in int32, one document each."""
    index = bytes.fromhex(
        "4d4d49444944580000" "0100000000000000" "04" "0200000000000000" "0300000000000000"
        "03000000" "02000000" "0000000000000000" "0c00000000000000"
        "0000000000000000" "0100000000000000" "0200000000000000"
    )  # fmt: skip
    (tmp_path / "d.idx").write_bytes(index)
    (tmp_path / "d.bin").write_bytes(np.array([5, 6, 7, 8, 9], dtype="<i4").tobytes())
    job = plan(format="megatron", path=tmp_path / "d", vocab=100, seq=4)
    assert Loader(job, rank=0, ranks=1).stream.tokens.tolist() == [5, 6, 7, 8, 9]


def test_data_set_of_the_proof(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.bin"
    write_tokens(path, vocab=50, seq=16, windows=32)
    assert hashlib.sha256(path.read_bytes()).hexdigest()[:16] == WRITTEN
    job = plan(format="tokens", path=path, vocab=50)
    loaders = [Loader(job, rank=rank, ranks=2) for rank in range(2)]
    for step in range(3):
        counts = [
            [int((labels != -100).sum()) for _, labels in loader.batch(step)] for loader in loaders
        ]
        assert len({sum(share) for share in counts}) == 2  # unequal among ranks
        assert all(len(set(share)) == 2 for share in counts)  # and among microbatches


WRITTEN = "f0f13fdfed3301c5"


def test_microbatches_are_read_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """And on a GPU's host into memory that it takes them from while the CPU goes on."""
    monkeypatch.setattr(data, "own_device", lambda: torch.device("cuda", 0))
    pinned: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: pinned.append(x) or x)
    batch = Loader(plan(), rank=0, ranks=1).batch(0)
    assert len(batch) == len(list(batch)) and not pinned
    tokens, labels = batch[0]
    assert tokens is batch[0][0] and labels is batch[0][1]
    assert [id(one) for one in pinned] == [id(tokens), id(labels)]


# ── Refusals ──────────────────────────────────────────────────────────────────


def refused(said: str, **fields: Any) -> None:
    with pytest.raises(DataError, match=said):
        Loader(plan(**fields), rank=0, ranks=1)


def test_vocabulary_too_small_for_bytes() -> None:
    refused("text is written with a vocabulary of 257 tokens; the model's has 256", vocab=256)


def test_token_outside_of_the_vocabulary(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", [*range(60), 100, *range(10)])
    said = r"t\.bin holds the token 100; a vocabulary of 100 ends at 99"
    refused(said, format="tokens", path=path, vocab=100)


def test_token_that_the_first_look_skipped(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(65))
    loader = Loader(plan(format="tokens", path=path, vocab=100), rank=0, ranks=1)
    loader.vocab = 50
    with pytest.raises(DataError, match="a vocabulary of 50 ends at 49"):
        loader.batch(0)[0][0]


def test_each_rank_looks_at_its_share_of_the_tokens(tmp_path: Path) -> None:
    tokens = np.zeros((1 << 20) + 100, dtype=np.uint16)
    tokens[-1] = 100
    path = tmp_path / "t.bin"
    tokens.tofile(path)
    path.with_suffix(".json").write_text('{"dtype": "uint16", "vocab": 100}')
    asked = plan(format="tokens", path=str(path), vocab=100)
    Loader(asked, rank=0, ranks=2)
    with pytest.raises(DataError, match="holds the token 100"):
        Loader(asked, rank=1, ranks=2)


def test_shorter_than_a_window(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(16))
    refused("holds 16 tokens; one sample needs 17", format="tokens", path=path, vocab=100)
    assert Loader(
        plan(format="tokens", path=raw(path, range(17)), vocab=100), rank=0, ranks=1
    ).batch(0)


def test_batch_that_does_not_divide() -> None:
    refused("a global batch of 8 does not divide into microbatches of 3", micro_batch=3)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    refused("no file .*missing.txt", path=tmp_path / "missing.txt")
    refused("no file .*missing.json", format="tokens", path=tmp_path / "missing.bin")
    refused("no file .*missing.idx", format="megatron", path=tmp_path / "missing")
    refused("`tokens` needs a path", format="tokens")
    refused("unknown data format `parquet`", format="parquet", path=tmp_path)


def test_sidecar(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(65))
    sidecar = path.with_suffix(".json")
    for text in ("{", "[]", '{"dtype": "uint16"}'):
        sidecar.write_text(text)
        refused("states dtype, vocab, end and pad", format="tokens", path=path, vocab=100)
    sidecar.write_text('{"dtype": "int8", "vocab": 3}')
    refused("dtype is uint16 or uint32, not int8", format="tokens", path=path, vocab=100)


def test_file_cut_within_a_token(tmp_path: Path) -> None:
    path = raw(tmp_path / "t.bin", range(65))
    path.write_bytes(path.read_bytes()[:-1])
    refused("129 bytes, not a whole number of uint16", format="tokens", path=path, vocab=100)


def test_megatron_pairs_that_do_not_fit(tmp_path: Path) -> None:
    stem = megatron(tmp_path / "d", [[1] * 20, [2] * 20])
    fields: dict[str, Any] = {"format": "megatron", "path": stem, "vocab": 100}
    tokens, index = Path(f"{stem}.bin"), Path(f"{stem}.idx")
    whole, facts = tokens.read_bytes(), index.read_bytes()
    tokens.write_bytes(whole[:-2])
    refused("has 78 bytes; the sequences of d.idx take 80", **fields)
    tokens.write_bytes(whole)
    index.write_bytes(facts[:-8])
    refused("d.idx is cut short", **fields)
    index.write_bytes(b"x" + facts[1:])
    refused("does not begin with MMIDIDX", **fields)
    index.write_bytes(facts[:17] + b"\x07" + facts[18:])
    refused("version 1, dtype code 7 cannot be read", **fields)
    index.write_bytes(facts[:42] + struct.pack("<q", 2) + facts[50:])
    refused("do not follow one another", **fields)


@pytest.mark.parametrize("sequence", [0, 2, 3, 4])
def test_a_megatron_index_is_looked_through_piece_by_piece(
    sequence: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "INDEXED", 2)
    stem = megatron(tmp_path / "d", [[1] * 20] * 5)
    fields: dict[str, Any] = {"format": "megatron", "path": stem, "vocab": 100}
    Loader(plan(**fields), rank=0, ranks=1)
    index = Path(f"{stem}.idx")
    facts, at = index.read_bytes(), 34 + 5 * 4 + sequence * 8
    index.write_bytes(facts[:at] + struct.pack("<q", 40 * sequence + 2) + facts[at + 8 :])
    refused("do not follow one another", **fields)
