"""Where each row of a weight of ours lies in the tensors of a Hugging Face folder. Pure Python.

Nothing is guessed: a weight without a name is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any, Final, NamedTuple

from parlay.runtime.hf_families import FAMILIES, FUSED, INTERLEAVED, TIED

SCALED: Final = {"gemma2": "attention.q", "gemma3_text": "attention.q_norm"}
"""Families with a scale of scores of their own, and the weight of ours that it goes into."""


class UnnamedError(ValueError):
    """A family that is not known, or a weight that it has no name for."""


class Part(NamedTuple):
    """Rows of a weight of ours, in a tensor of theirs.

    Row `at + i` of ours is row `row + i * step` of theirs for each i below `rows`, or its column
    where theirs is `turned`; ours = (theirs + shift) * scale.
    """

    name: str
    at: int
    rows: int
    row: int = 0
    step: int = 1
    of: int = 0
    """Rows of theirs in all, or columns where it is turned."""
    turned: bool = False
    expert: int | None = None
    """The first index of theirs, where all experts of a layer lie in it."""
    scale: float = 1.0
    shift: float = 0.0


class Names:
    """The names of one model: `config` is the folder's, `model` the sizes of plan.json."""

    def __init__(self, config: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise UnnamedError(f"model_type {str(kind)[:60]!r} is not known; known are {known}")
        self.kind, self.family = kind, FAMILIES[kind]
        self.heads, self.kv_heads = model["heads"], model["kv_heads"]
        self.width, self.hidden = model["head_dim"], model["hidden"]
        self.mla = model.get("mla") or {}
        tied = config.get("tie_word_embeddings")
        self.tied = kind in TIED if tied is None else bool(tied)
        # Gemma's own scale of scores, where it is another than one over the root of a head's width.
        asked = config.get("query_pre_attn_scalar", 256) if kind in SCALED else None
        self.queries = 1.0 if asked is None else sqrt(self.width / asked)

    def parts(self, ours: str, shape: tuple[int, ...]) -> list[Part]:
        """Where the rows of weight `ours` of this whole shape, no expert's, lie in theirs."""
        return list(self._parts(ours, shape, self._named(ours)))

    def of_expert(self, ours: str, shape: tuple[int, ...], expert: int) -> list[Part]:
        """The same of the matrix [rows, columns] of one routed expert."""
        if not self.family.stacked:
            return list(self._parts(ours, shape, self._named(ours).replace("{}", str(expert))))
        rows, turned, end = shape[0], len(shape) > 1, ours.split(".")[-2]
        one = Part(self._named(ours), 0, rows, of=rows, turned=turned, expert=expert)
        if end == "down":
            return [one]
        return [one._replace(row=("gate", "up").index(end), step=2, of=2 * rows)]

    def _named(self, ours: str) -> str:
        module, _, kind = ours.rpartition(".")
        start, names = "", self.family.ends
        if module.startswith("layers."):
            _, layer, module = module.split(".", 2)
            start, names = f"{self.family.layers}.{layer}.", self.family.inside
        if f"{module}.{kind}" in names:  # under a name of its own
            return start + names[f"{module}.{kind}"]
        if module not in names or kind not in ("weight", "bias"):
            raise UnnamedError(f"{self.kind} has no name for {ours}")
        return f"{start}{names[module]}.{kind}"

    def _parts(self, ours: str, shape: tuple[int, ...], theirs: str) -> Iterator[Part]:
        module, _, kind = ours.rpartition(".")
        last = module.rpartition(".")[2]
        rows = shape[0]
        turned = self.family.turned and len(shape) > 1 and module.startswith("layers.")
        scale, shift = self._kept(ours)
        whole = Part(theirs, 0, rows, of=rows, turned=turned, scale=scale, shift=shift)
        fused = next((one for one in FUSED if theirs.endswith(f"{one}.{kind}")), None)
        if fused in INTERLEAVED:
            place = "qkv".index(last)
            for head in range(self.heads):
                at, row = head * self.width, (3 * head + place) * self.width
                yield whole._replace(at=at, rows=self.width, row=row, of=3 * rows)
        elif fused == "mlp.gate_up_proj":
            yield whole._replace(row=rows * ("gate", "up").index(last), of=2 * rows)
        elif fused is not None:
            queries, keys = self.heads * self.width, self.kv_heads * self.width
            starts = {"q": 0, "k": queries, "v": queries + keys}
            yield whole._replace(row=starts[last], of=queries + 2 * keys)
        elif self.family.paired and last in ("q", "q_up"):
            plain, rotated = self.mla["nope_dim"], self.mla["rope_dim"]
            for head in range(self.heads):
                yield from _in_halves(whole, head * (plain + rotated), plain, rotated)
        elif self.family.paired and last == "kv_down":
            yield from _in_halves(whole, 0, self.mla["kv_rank"], self.mla["rope_dim"])
        else:
            yield whole

    def _kept(self, ours: str) -> tuple[float, float]:
        """The scale and the shift of a weight."""
        module = ours.rpartition(".")[0]
        if module.endswith(SCALED.get(self.kind, " ")) and self.queries != 1.0:
            return self.queries, 1.0 if module.endswith("norm") else 0.0
        if not self.family.from_one:
            return 1.0, 0.0
        if module == "embedding":
            return sqrt(self.hidden), 0.0
        if module == "norm" and self.tied:  # the head is the embedding, which is larger here
            return 1 / sqrt(self.hidden), 1.0
        return 1.0, 1.0 if module.endswith("norm") else 0.0


def _in_halves(whole: Part, first: int, plain: int, rotated: int) -> Iterator[Part]:
    """Rows from `first` on, of which the last `rotated` are in pairs there, and here those of even
    place come before those of odd place."""
    yield whole._replace(at=first, rows=plain, row=first)
    turns, half = first + plain, rotated // 2
    yield whole._replace(at=turns, rows=half, row=turns, step=2)
    yield whole._replace(at=turns + half, rows=half, row=turns + 1, step=2)
