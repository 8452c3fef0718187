"""What the PyTorch back end cannot express of data: tokenizers that are no `tokenizer.json`, or
have more tokens than the model; and that no data is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from parlay.compiler.backends.torch.refusals_model import CODE
from parlay.compiler.spec.blocks import Data, Model
from parlay.compiler.spec.origins import Kind
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.diagnostics import Diagnostic, error, note

FILE: Final = "tokenizer.json"
FIELD: Final = "data.tokenizer"
NO_DATA: Final = "B302"


def data_refusals(
    phase: Phase, model: Model, data: Data, *, target: str = "torch", code: str = CODE
) -> Iterator[Diagnostic]:
    """One diagnostic where the tokenizer cannot make the tokens that are trained on.

    `target` is the back end whose code reads them, and `code` its own. The tokenizer's file is
    looked at where it is here already, from this folder or from that of the job's file; where it
    is not, it is before training.
    """
    if data.tokenizer is None:
        return

    def refused(words: str, what: str, help: str) -> Diagnostic:
        place, label = phase.origins.label(FIELD, words)
        return error(code, f"target {target} cannot express {what}", place, label, help=[help])

    if data.format == "text" and data.path is None:
        yield refused(
            "of no text",
            "`tokenizer` without `path`",
            "a `path` of text, or no `tokenizer`: the English that Python carries is read as bytes",
        )
    if data.tokenizer.endswith(".model"):
        yield refused(
            "a model of SentencePiece",
            f"a tokenizer that is no `{FILE}`",
            f"`save_pretrained` of a fast tokenizer writes `{FILE}`",
        )
        return
    found = tokenizer_of(Path(data.tokenizer), phase.origins.start.file)
    if found is None:
        return
    size = tokens_of(found)
    if size is None:
        what = f"a tokenizer that is no `{FILE}`"
        yield refused(str(found), what, "such a file, or a folder with one")
    elif model.vocab is not None and size > model.vocab:
        place, label = phase.origins.label(FIELD, f"{size} tokens")
        yield error(
            code,
            f"the tokenizer has {size} tokens, the model's vocabulary {model.vocab}",
            place,
            label,
            also=[phase.origins.label("model.vocab", f"{model.vocab} rows of the embedding")],
            notes=[f"{size} - {model.vocab} = {size - model.vocab} tokens have no row"],
            help=[f"`vocab = {size}`, or the tokenizer of this model"],
        )


def without_data(phase: Phase) -> Iterator[Diagnostic]:
    """A note where a job for GPUs leaves open what it trains on."""
    spec = phase.spec
    link = spec.cluster.node.link if spec.cluster and spec.cluster.node else None
    if spec.train is None or link is None or link.kind == "shared_memory":
        return
    if spec.data.path is None and phase.origins.kind("data.format") is Kind.DEFAULT:
        yield note(
            NO_DATA,
            "no data is named: this trains on the English text that Python carries",
            phase.origins.block("train"),
            "on what?",
            help=['`data { path = "…" }`, or `data { format = text }` where that text is meant'],
        )


def tokenizer_of(path: Path, file: str) -> Path | None:
    """The tokenizer's file, where it is here: a relative path counts from this folder, else from
    that of the job's file."""
    for base in (Path(), Path(file).parent):
        for found in (base / path / FILE, base / path):
            try:
                if found.is_file():
                    return found
            except OSError:  # a name that no file can have
                continue
    return None


def tokens_of(path: Path) -> int | None:
    """How many numbers the tokens of a `tokenizer.json` have, from 0 on; None where it is none."""
    try:
        said: Any = json.loads(path.read_text(encoding="utf-8"))
        added = [int(token["id"]) for token in said["added_tokens"] or ()]
        vocab = said["model"]["vocab"]
        known = map(int, vocab.values()) if isinstance(vocab, Mapping) else range(len(vocab))
        return max([*added, max(known, default=-1)]) + 1
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        return None
