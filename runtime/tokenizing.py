"""A tokenizer of Hugging Face's, and what it makes of a part of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from parlay.runtime import corpus
from parlay.runtime.corpus import CorpusError, Part

USUAL_ENDS: Final = (
    *("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"),
    "<｜end▁of▁sentence｜>",
)
"""What ends documents where nothing beside the tokenizer says it, and one of them is a token."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A tokenizer, and what it puts around a text."""

    tokenizer: Any
    before: tuple[int, ...]
    behind: tuple[int, ...]
    end: int

    @classmethod
    def of(cls, path: Path) -> Tokens:
        """Of a `tokenizer.json`."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise CorpusError(
                "tokenizing needs the package tokenizers: pip install 'parlay[tokenizers]'"
            ) from error
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises no class of its own
            raise CorpusError(f"{path} cannot be read as a tokenizer: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        before, behind = _around(tokenizer)
        return cls(tokenizer=tokenizer, before=before, behind=behind, end=_end(tokenizer, path))

    @property
    def vocab(self) -> int:
        """Tokens have numbers below this."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def facts(self, vocab: int) -> dict[str, Any]:
        """What the sidecar says, for a model of `vocab` tokens."""
        if self.vocab > vocab:
            raise CorpusError(
                f"the tokenizer has {self.vocab} tokens; the model's vocabulary has {vocab}"
            )
        dtype = "uint16" if self.vocab <= 1 << 16 else "uint32"
        return {"dtype": dtype, "vocab": self.vocab, "end": self.end, "pad": None}

    def row(self, part: Part) -> list[int]:
        """The tokens of a part."""
        found = [int(token) for token in self._plain(part.text)]
        if part.first:
            found = [*self.before, *found]
        if part.last:
            found += self.behind
            found += [] if found and found[-1] == self.end else [self.end]
        return found

    def _plain(self, text: str) -> Sequence[int]:
        batch = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: Sequence[int] = batch[0].ids
        return ids


def _around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tokenizer puts before and behind any text."""
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a").ids
    for at in range(len(whole) - len(plain) + 1):
        if whole[at : at + len(plain)] == plain:
            return tuple(whole[:at]), tuple(whole[at + len(plain) :])
    raise CorpusError("the tokenizer changes a text where it adds its own tokens to it")


def _end(tokenizer: Any, path: Path) -> int:
    named = corpus.end_token(path)
    known = [name for name in USUAL_ENDS if tokenizer.token_to_id(name) is not None]
    if named is None and len(known) != 1:
        raise CorpusError(
            f"nothing says which token ends a document: {path.with_name('tokenizer_config.json')} "
            'with {"eos_token": "…"} does'
        )
    name = named if named is not None else known[0]
    found = tokenizer.token_to_id(name)
    if found is None:
        raise CorpusError(f"{path} has no token {name!r}, which is to end documents")
    return int(found)
