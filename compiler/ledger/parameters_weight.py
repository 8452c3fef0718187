"""One row of the weight table: a tensor's name, shape and how it is cut."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

KINDS = (
    "embedding",
    "position",
    "attention",
    "mlp",
    "router",
    "experts",
    "shared_experts",
    "norm",
    "mtp",
    "head",
)


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor, or `count` tensors of the same shape (one for each expert).

    `cut` is the dimension that tp cuts (etp for an expert), None where each rank holds it whole;
    `units` the whole pieces along it that no cut goes through: heads, or every row where None.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    layer: int | None = None
    cut: int | None = None
    expert: bool = False
    count: int = 1
    units: int | None = None

    @property
    def numel(self) -> int:
        """Parameters of all copies: `count` · product of the shape."""
        return self.count * prod(self.shape)

    def on_rank(self, *, tp: int = 1, etp: int = 1, ep: int = 1) -> int:
        """Parameters that the fullest rank of the group holds.

        `ceil(units / tp)` units of the cut dimension, so key/value heads are replicated where
        tp exceeds them; experts are dealt over ep and cut over etp.
        """
        one = prod(self.shape)
        if self.cut is not None and one:
            units = self.units or self.shape[self.cut]
            one = one // units * _ceil(units, etp if self.expert else tp)
        return one * (_ceil(self.count, ep) if self.expert else self.count)

    def copies(self, *, tp: int = 1) -> int:
        """Neighbouring ranks of tp that hold the same piece: tp / units where tp exceeds them."""
        if self.cut is None or self.expert or not self.units:
            return 1
        return max(1, tp // self.units)


def _ceil(whole: int, parts: int) -> int:
    return -(-whole // parts)
