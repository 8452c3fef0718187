"""Text that tokens are made of: held against the tokenizers package, asked for whole documents."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from parlay.runtime import corpus, prepare
from parlay.runtime.corpus import CorpusError
from parlay.runtime.streams import DataError, open_stream
from parlay.runtime.tokenizing import Tokens
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers

END, START = "<|endoftext|>", "<|start|>"
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3, Qwen and others cut text into words; GPT-2's is the package's own."""
TEXTS = (
    'The ring "passes" its keys:\n\n\n  1. on  and on;\n2. back.\n\tAnd so 12345 on\nit goes.\n',
    "Größe, 漢字。\n次の行\u3000は\n続く  \n",
    " a  b \n c\r\nd e f g h. i j\n\nk l m ",
)


def made(folder: Path, *, words: str, around: bool = False, vocab: int = 400) -> Tokenizer:
    """A tokenizer of bytes, in `folder`."""
    tokenizer = Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words == "gpt2")
    tokenizer.pre_tokenizer = bytes_
    if words != "gpt2":
        split = pre_tokenizers.Split(Regex(LLAMA), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END, START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=1,
    )
    tokenizer.train_from_iterator([*TEXTS, "\n\n\n \n\n  \n. \n" * 9], trainer)
    if around:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{START} $A", special_tokens=[(START, 1)]
        )
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def cut(monkeypatch: pytest.MonkeyPatch, part: int, piece: int = 1, read: int = 7) -> None:
    monkeypatch.setattr(corpus, "PART", part)
    monkeypatch.setattr(corpus, "PIECE", part * piece)
    monkeypatch.setattr(corpus, "READ", read)


def parts_of(path: Path) -> list[corpus.Part]:
    pieces = [piece for file in corpus.files(path) for piece in corpus.pieces(file)]
    return [part for piece in pieces for part in corpus.parts(piece)]


def rows_of(path: Path, folder: Path) -> list[int]:
    tokens = Tokens.of(folder / "tokenizer.json")
    return [token for part in parts_of(path) for token in tokens.row(part)]


# ── Where a text is cut ───────────────────────────────────────────────────────


@pytest.mark.parametrize("words", ["gpt2", "llama"])
@pytest.mark.parametrize("part", [1, 3, 8, 1 << 20])
def test_parts_make_the_tokens_of_the_whole(
    words: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = made(tmp_path / "tokenizer", words=words, around=True)
    (tmp_path / "a.txt").write_bytes("".join(TEXTS).encode())
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": t}) + "\n\n" for t in TEXTS))
    cut(monkeypatch, part)
    documents = {"a.txt": ["".join(TEXTS)], "b.jsonl": list(TEXTS)}
    for name, texts in documents.items():
        whole = [token for text in texts for token in [*tokenizer.encode(text).ids, 0]]
        assert rows_of(tmp_path / name, tmp_path / "tokenizer") == whole
    if part == 1:
        assert len(parts_of(tmp_path / "a.txt")) > 10


@given(
    text=st.text(st.sampled_from("ab .\n\r\t漢\u3000é"), max_size=60),
    part=st.sampled_from([1, 2, 5, 16]),
    piece=st.sampled_from([1, 2, 7]),
    read=st.sampled_from([1, 3, 11, 4096]),
)
def test_pieces_are_cut_where_parts_are(text: str, part: int, piece: int, read: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, part, piece, read)
        folder = Path(tempfile.mkdtemp())
        path = folder / "a.txt"
        path.write_bytes(text.encode())
        pieces = parts_of(path)
        patch.setattr(corpus, "PIECE", part << 40)
        assert parts_of(path) == pieces
        assert "".join(each.text for each in pieces) == text
        assert [each.first for each in pieces] == [at == 0 for at in range(len(pieces))]
        assert [each.last for each in pieces[::-1]] == [at == 0 for at in range(len(pieces))]
        shutil.rmtree(folder)
    at = [len("".join(each.text for each in pieces[:n])) for n in range(1, len(pieces))]
    assert at == list(places(text, part))


def places(text: str, part: int) -> Iterator[int]:
    """Character by character: where a text is cut."""
    last = 0
    for at in range(1, len(text)):
        here, start = len(text[:at].encode()), len(text[:last].encode())
        before, behind = text[max(0, at - 2) : at], text[at : at + 2]
        word = re.fullmatch("[a-z] [a-z]", before[-1] + behind) is not None
        around = [*before[:-1], *behind[:1]]
        line = before[-1] == "\n" and len(before) == 2 and not any(map(str.isspace, around))
        if here // part > start // part and (word or line):
            yield at
            last = at


# ── On disk ───────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_any_number_of_processes_and_a_run_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = made(tmp_path / "tokenizer", words="gpt2")
    text = tmp_path / "text"
    (text / "deep").mkdir(parents=True)
    (text / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS * 40))
    (text / "deep" / "b.txt").write_text(TEXTS[0] * 40)
    (text / "README.md").write_text("no part of it")
    monkeypatch.setattr(corpus, "PIECE", 1 << 10)
    with pytest.raises(DataError, match=r"has not been tokenized by .*parlay\.runtime\.prepare"):
        open_stream("text", str(text), tokenizer=str(tmp_path / "tokenizer"))
    made_of = {"text": text, "tokenizer": tmp_path / "tokenizer", "vocab": 400}

    done: list[int] = []
    whole = prepare._one

    def one(piece: Any, to: Path, dtype: str) -> tuple[int, int]:
        if len(done) == 3:
            raise CorpusError("cut off")
        done.append(piece.start)
        return whole(piece, to, dtype)

    class Pool:
        """Here, one after the other: what `one` counts is seen."""

        def __init__(self, workers: int, context: object, initializer: Any, initargs: Any) -> None:
            initializer(*initargs)

        def submit(self, call: Any, *arguments: Any) -> Any:
            future = prepare.Future()
            try:
                future.set_result(call(*arguments))
            except CorpusError as error:
                future.set_exception(error)
            return future

        def shutdown(self, **_: Any) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "ProcessPoolExecutor", Pool)
        patch.setattr(prepare, "_one", one)
        with pytest.raises(CorpusError, match="cut off"):
            prepare.prepare(**made_of)
    assert not list(tmp_path.glob("*.bin"))

    class Counted(prepare.ProcessPoolExecutor):
        def submit(self, call: Any, *arguments: Any) -> Any:
            done.append(arguments[0].start)
            return super().submit(call, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "ProcessPoolExecutor", Counted)
        first = prepare.prepare(**made_of, workers=2)
    pieces = [piece for file in corpus.files(text) for piece in corpus.pieces(file)]
    assert sorted(done) == sorted(piece.start for piece in pieces)
    wanted = [token for t in TEXTS * 40 for token in [*tokenizer.encode(t).ids, 0]]
    wanted += [*tokenizer.encode(TEXTS[0] * 40).ids, 0]
    stream = open_stream("text", str(text), tokenizer=str(tmp_path / "tokenizer"))
    assert stream.tokens.tolist() == wanted and stream.end == 0
    assert (first.documents, first.tokens, first.already) == (121, len(wanted), False)
    facts = json.loads(first.path.with_suffix(".json").read_text())
    vocab = tokenizer.get_vocab_size()
    assert {name: facts[name] for name in ("dtype", "vocab", "end", "pad")} == {
        "dtype": "uint16",
        "vocab": vocab,
        "end": 0,
        "pad": None,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["text", "tokenizer", first.path.name, first.path.with_suffix(".json").name]
    )
    # Once more: nothing is done; of what has changed all is.
    assert prepare.prepare(**made_of).already
    kept = (text / "a.jsonl").stat()
    (text / "a.jsonl").write_text((text / "a.jsonl").read_text().replace("ring", "king"))
    assert (text / "a.jsonl").stat().st_size == kept.st_size
    again = prepare.prepare(**made_of, workers=1)
    assert again.path == first.path and not again.already
    assert np.fromfile(again.path, dtype="<u2").tolist() != wanted


def test_two_at_once_are_told(tmp_path: Path) -> None:
    with (
        prepare._working(tmp_path / "a.work"),
        pytest.raises(CorpusError, match="another process"),
        prepare._working(tmp_path / "a.work"),
    ):
        pass


# ── What is refused ───────────────────────────────────────────────────────────

BROKEN = {
    b'{"text": "a"}\n{"text": 1}\n': 'the line at byte 14 has no text under "text"',
    b'{"text": "a"}\nno\n': "the line at byte 14 is no JSON",
}


@pytest.mark.parametrize("lines", BROKEN)
def test_lines_that_are_no_documents(lines: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines)
    with pytest.raises(CorpusError, match=BROKEN[lines]):
        parts_of(tmp_path / "a.jsonl")


def test_other_encodings_halves_and_marks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"plain \xff\xfe")
    with pytest.raises(CorpusError, match="is not UTF-8 at byte 6"):
        parts_of(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfplain")
    (tmp_path / "c.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "x\\ud800y \\ud83d\\ude00"}')
    assert [part.text for part in parts_of(tmp_path / "b.txt")] == ["plain"]
    assert [part.text for part in parts_of(tmp_path / "c.jsonl")] == ["x\ufffdy 😀"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"no file that ends in \.txt or \.jsonl"):
        corpus.files(tmp_path / "empty")


def test_what_ends_a_document(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    tokenizer = made(folder, words="gpt2")
    assert Tokens.of(folder / "tokenizer.json").end == 0  # the only one that is known
    name = corpus.prepared(folder / "tokenizer.json", folder / "tokenizer.json")
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": {"content": START}}))
    assert Tokens.of(folder / "tokenizer.json").end == 1
    assert corpus.prepared(folder / "tokenizer.json", folder / "tokenizer.json") != name
    config.write_text(json.dumps({"eos_token": "<gone>"}))
    with pytest.raises(CorpusError, match="has no token '<gone>'"):
        Tokens.of(folder / "tokenizer.json")
    config.unlink()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(CorpusError, match="nothing says which token ends a document"):
        Tokens.of(folder / "tokenizer.json")


def test_more_tokens_than_the_model_has(tmp_path: Path) -> None:
    tokenizer = made(tmp_path / "tokenizer", words="gpt2")
    (tmp_path / "a.txt").write_text("text")
    vocab = tokenizer.get_vocab_size()
    said = f"the tokenizer has {vocab} tokens; the model's vocabulary has {vocab - 1}"
    with pytest.raises(CorpusError, match=said):
        prepare.prepare(tmp_path / "a.txt", tmp_path / "tokenizer", vocab=vocab - 1)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "tokenizer", words="gpt2")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(CorpusError, match=r"pip install 'parlay\[tokenizers\]'"):
        Tokens.of(tmp_path / "tokenizer" / "tokenizer.json")
