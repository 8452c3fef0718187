"""What of a tokenizer is told where a job is compiled, and what the emitted folder has of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.torch.refusals_data import tokens_of
from parlay.compiler.backends.vendored import vendored

JOB = """
model {{ layers = 2, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 300 }}
cluster {{ node from "laptop" {{ gpus = 1 }} }}
train {{ seq = 64, micro_batch = 2, global_batch = 4, steps = 3, precision = fp32
  lr_schedule = constant }}
data {{ {data} }}
"""
TEXT = 'path = "text", tokenizer = "tokenizer"'


def job(folder: Path, data: str, target: str = "torch") -> pipeline.Job:
    (folder / "job.par").write_text(JOB.format(data=data))
    return pipeline.check(folder / "job.par", [target])


def tokenizer(folder: Path, vocab: Any, added: int = 0) -> Path:
    """A `tokenizer.json` with so many tokens added behind its vocabulary."""
    size = len(vocab)
    document = {
        "version": "1.0",
        "added_tokens": [
            {"id": size + at, "content": f"<{at}>", "special": True, **dict.fromkeys(PLAIN, False)}
            for at in range(added)
        ],
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}
        if isinstance(vocab, list)
        else {"type": "WordLevel", "unk_token": "w0", "vocab": vocab},
    }
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder / "tokenizer.json"


PLAIN = ("single_word", "lstrip", "rstrip", "normalized")
WORDS = {f"w{at}": at for at in range(299)}
PIECES = [[f"p{at}", -1.0] for at in range(299)]


@pytest.mark.parametrize("target", ["torch", "deepspeed"])
@pytest.mark.parametrize("vocab", [WORDS, PIECES], ids=["words", "pieces"])
@pytest.mark.parametrize("added", [0, 1, 2])
def test_the_model_has_a_row_for_every_token(
    vocab: Any, added: int, target: str, tmp_path: Path
) -> None:
    path = tokenizer(tmp_path / "tokenizer", vocab, added)
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))
    assert tokens_of(path) == library.get_vocab_size(with_added_tokens=True) == 299 + added
    told = [each.message for each in job(tmp_path, TEXT, target).errors]
    said = "the tokenizer has 301 tokens, the model's vocabulary 300"
    assert told == ([said] if added == 2 else [])


def test_both_places_and_the_difference(tmp_path: Path) -> None:
    tokenizer(tmp_path / "tokenizer", {"a": 511})
    (told,) = job(tmp_path, TEXT).errors
    words = [label.text for label in told.labels]
    assert words == ["512 tokens", "300 rows of the embedding"]
    assert told.notes == ("512 - 300 = 212 tokens have no row",)
    assert told.code == "B301"


REFUSED = {
    'path = "text", tokenizer = "t.model"': "a tokenizer that is no `tokenizer.json`",
    'path = "text", tokenizer = "job.par"': "a tokenizer that is no `tokenizer.json`",
    'tokenizer = "gone"': "`tokenizer` without `path`",
}


@pytest.mark.parametrize("data", REFUSED)
def test_told_at_the_field(data: str, tmp_path: Path) -> None:
    (told,) = job(tmp_path, data).errors
    assert told.message == f"target torch cannot express {REFUSED[data]}"


@pytest.mark.parametrize(
    "said",
    [
        '{"added_tokens": [{"id": Infinity}], "model": {"vocab": {}}}',
        '{"added_tokens": [{"id": "1e"}], "model": {"vocab": {}}}',
        '{"added_tokens": 3, "model": {"vocab": {}}}',
        '{"added_tokens": null, "model": {"vocab": 3}}',
        "[" * 100_000,
        "[]",
        "",
    ],
)
def test_a_file_that_is_another(said: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(said)
    (told,) = job(tmp_path, 'path = "text", tokenizer = "t.json"').errors
    assert told.message == "target torch cannot express a tokenizer that is no `tokenizer.json`"


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    long = "x" * 5000
    assert not job(tmp_path, f'path = "text", tokenizer = "{long}"').errors


def test_the_folder_says_what_to_do_first(tmp_path: Path) -> None:
    checked = job(tmp_path, TEXT)  # the tokenizer is not here: it is looked at before training
    assert not checked.errors
    files = pipeline.emit(checked, "torch").files_of("torch")
    plan = json.loads(files["plan.json"])
    assert plan["data"] == {"format": "text", "path": "text", "tokenizer": "tokenizer"}
    assert "\npython -m parlay.runtime.prepare .\n" in files["launch.sh"]
    assert {"parlay/runtime/prepare.py", "parlay/runtime/tokenizing.py"} <= set(vendored(files))

    checked = job(tmp_path, 'path = "t.bin", format = tokens, tokenizer = "tokenizer"')
    files = pipeline.emit(checked, "torch").files_of("torch")
    assert json.loads(files["plan.json"])["data"] == {"format": "tokens", "path": "t.bin"}
    assert "prepare" not in files["launch.sh"]
    assert "parlay/runtime/prepare.py" not in vendored(files)
