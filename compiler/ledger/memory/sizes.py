"""The numbers that every activation formula is made of, for one microbatch on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from parlay.compiler.ledger.held import padded_vocab
from parlay.compiler.ledger.memory.stack import Stack, stack_of, transposed
from parlay.compiler.spec.blocks import GATED, Model, Parallel, Spec, Train

LOW: Final = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes of an element that a low-precision product keeps of its input, block scales included."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """One microbatch on one rank.

    `tokens` is b·s/cp, `residual` the cut of the residual stream (tp under sequence parallelism),
    `width` the bytes of a compute element and `kept` those of a product's kept input. `twice` says
    that flash attention keeps its output in a second order (`libraries.py`).
    """

    model: Model
    train: Train
    parallel: Parallel
    stack: Stack
    batch: int
    seq: int
    tokens: int
    residual: int
    width: int
    kept: float
    vocab: int
    twice: bool

    @property
    def tp(self) -> int:
        """Ranks that share each matrix."""
        return self.parallel.tp

    @property
    def heads(self) -> int:
        """Query heads of one rank."""
        return -(-self.model.heads // self.tp)

    @property
    def kv_heads(self) -> int:
        """Key/value heads of one rank; replicated where tp exceeds them."""
        return -(-self.model.kv_heads // self.tp)

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """Features of a query, a key and a value, and the key/value heads of one rank."""
        model, mla = self.model, self.model.mla
        if mla is None:
            return (*(model.head_dim,) * 3, self.kv_heads)
        query = mla.nope_dim + mla.rope_dim
        return query, query, mla.v_dim, self.heads

    @property
    def bent(self) -> bool:
        """Whether scores are hidden or bent otherwise than causally, for which no kernel joins
        blocks of keys."""
        model = self.model
        capped = model.softcap is not None and model.softcap["attention"]
        return bool(model.window is not None or capped or model.position == "alibi")

    def stream(self, width: float | None = None) -> tuple[int, str]:
        """One tensor of the residual stream: `width` · tokens · hidden / residual cut."""
        each = self.width if width is None else width
        bytes_ = int(each * self.tokens * self.model.hidden / self.residual)
        cut = f" / {self.residual}" if self.residual > 1 else ""
        return bytes_, f"{_n(each)} x {self.tokens} x {self.model.hidden}{cut}"

    def inner(self, features: int, times: float) -> tuple[int, str]:
        """`times` bytes for each of `features` (already those of one rank) of every token."""
        return int(times * self.tokens * features), f"{_n(times)} x {self.tokens} x {features}"

    def tensors(self, mlp: str = "mlp", *, keep: bool) -> float:
        """Bytes for each inner feature of an MLP; less where the activation is computed again.

        The activation's inputs and its product, the input of the last matrix.
        """
        gated = self.model.activation in GATED
        tensors = self.stack.gated if gated else self.stack.plain
        inputs = 2 if gated else 1
        again = self.width * (tensors - 1 - inputs)
        return self.width * inputs + ((again + self.kept) if keep else 0.0)


def sizes_of(spec: Spec) -> Sizes:
    """The sizes of a spec with a shape and a recipe."""
    model, train, parallel = spec.model, spec.train, spec.parallel
    assert model is not None and train is not None and spec.cluster is not None
    width = {"fp64": 8, "fp32": 4}.get(train.precision, 2)
    stack = stack_of(train.stack)
    return Sizes(
        model=model,
        train=train,
        parallel=parallel,
        stack=stack,
        batch=train.micro_batch,
        seq=train.seq,
        tokens=train.micro_batch * train.seq // parallel.cp,
        residual=parallel.tp if parallel.sequence_parallel else 1,
        width=width,
        kept=LOW.get(train.precision, width),
        vocab=padded_vocab(spec) // parallel.tp,
        twice=transposed(stack, spec.cluster.node.gpu, cp=parallel.cp),
    )


def _n(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"
