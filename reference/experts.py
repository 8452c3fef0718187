"""A mixture of experts in the place of an MLP, one expert after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Sizes and structure; the choices are spelled as in the language."""

    count: int
    top_k: int
    ffn: int
    dense_layers: int = 0  # the first layers, which have a plain MLP
    every: int = 1  # of those after them, the last of so many has experts
    shared_ffn: int = 0  # what every token passes besides
    shared_gate: bool = False
    router: str = "softmax"  # softmax, sigmoid
    router_bias: bool = False  # a correction that the choice alone reads
    groups: int = 1
    top_groups: int = 1
    normalize: bool = True
    scale: float = 1.0
    aux_loss: float = 0.0
    z_loss: float = 0.0
    correction_rate: float = 0.0

    def holds(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 0, has experts."""
        behind = layer + 1 - self.dense_layers
        return behind > 0 and behind % self.every == 0


def shapes(
    experts: Experts,
    *,
    hidden: int,
    gated: bool,
    bias: Collection[str] = (),
    lora_rank: int = 0,
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights of one layer by the ends of their names; those of experts are stacked."""
    parts = ("gate", "up") if gated else ("up",)
    yield "router.weight", (experts.count, hidden)
    if "router" in bias:
        yield "router.bias", (experts.count,)
    if experts.router_bias:
        yield "router.correction", (experts.count,)
    for part in parts:
        yield f"experts.{part}.weight", (experts.count, experts.ffn, hidden)
        if "mlp" in bias:
            yield f"experts.{part}.bias", (experts.count, experts.ffn)
    yield "experts.down.weight", (experts.count, hidden, experts.ffn)
    if "mlp" in bias:
        yield "experts.down.bias", (experts.count, hidden)
    if experts.shared_ffn:
        wide = experts.shared_ffn
        for part in (*parts, "down"):
            shape = (hidden, wide) if part == "down" else (wide, hidden)
            yield f"shared_experts.{part}.weight", shape
            if "mlp" in bias:
                yield f"shared_experts.{part}.bias", shape[:1]
            if lora_rank:
                yield f"shared_experts.{part}.lora_a", (lora_rank, shape[1])
                yield f"shared_experts.{part}.lora_b", (shape[0], lora_rank)
        if experts.shared_gate:
            yield "shared_experts.router.weight", (1, hidden)


def mixture(
    experts: Experts,
    weight_of: Callable[[str], Tensor | None],
    x: Tensor,
    *,
    inner: Callable[[Tensor | None, Tensor], Tensor],
    losses: list[Tensor],
    visits: list[Tensor],
) -> Tensor:
    """x [b, s, h] -> [b, s, h]; adds the layer's auxiliary loss to `losses`, and how many tokens
    visit each expert to `visits`."""
    tokens = x.reshape(-1, x.shape[-1])

    def weight(name: str) -> Tensor:
        found = weight_of(name)
        assert found is not None
        return found

    def mlp(rows: Tensor, name: str, number: int | None = None) -> Tensor:
        def part(end: str) -> Tensor | None:
            whole = weight_of(f"{name}.{end}")
            return whole if whole is None or number is None else whole[number]

        def linear(end: str, rows: Tensor) -> Tensor | None:
            matrix, bias = part(f"{end}.weight"), part(f"{end}.bias")
            if matrix is None:
                return None
            return rows @ matrix.T if bias is None else rows @ matrix.T + bias

        up = linear("up", rows)
        assert up is not None
        made = linear("down", inner(linear("gate", rows), up))
        assert made is not None
        return made

    points = tokens @ weight("router.weight").T
    bias = weight_of("router.bias")
    points = points if bias is None else points + bias
    scores = points.softmax(dim=-1) if experts.router == "softmax" else torch.sigmoid(points)
    visited = chosen(experts, scores.detach(), weight_of("router.correction"))
    shares = scores * visited
    if experts.normalize and experts.top_k > 1:
        shares = shares / shares.sum(dim=-1, keepdim=True)
    shares = experts.scale * shares
    out = torch.zeros_like(tokens)
    for number in range(experts.count):
        (rows,) = visited[:, number].nonzero(as_tuple=True)
        made = mlp(tokens[rows], "experts", number)
        out = out.index_add(0, rows, shares[rows, number].unsqueeze(1) * made)
    visits.append(visited.sum(dim=0))
    if experts.aux_loss:
        often = visited.to(scores.dtype).mean(dim=0) / experts.top_k
        likely = (scores / scores.sum(dim=-1, keepdim=True)).mean(dim=0)
        losses.append(experts.aux_loss * experts.count * (often * likely).sum())
    if experts.z_loss:
        losses.append(experts.z_loss * points.exp().sum(dim=-1).log().square().mean())
    if experts.shared_ffn:
        shared = mlp(tokens, "shared_experts")
        if experts.shared_gate:
            shared = shared * torch.sigmoid(tokens @ weight("shared_experts.router.weight").T)
        out = out + shared
    return out.view(x.shape)


def chosen(experts: Experts, scores: Tensor, correction: Tensor | None) -> Tensor:
    """scores [t, count] -> whether each token visits each expert.

    Of equal groups of neighbours the best are open, by the sum of what the best experts of each
    score; as many of these as come to a group of those that a token visits.
    """
    ranked = scores if correction is None else scores + correction.detach()
    if experts.top_groups < experts.groups:
        size = experts.count // experts.groups
        each = max(1, experts.top_k // experts.top_groups)
        sums = torch.stack(
            [
                ranked[:, first : first + size].sort(dim=1, descending=True).values[:, :each].sum(1)
                for first in range(0, experts.count, size)
            ],
            dim=1,
        )
        places = sums.argsort(dim=1, descending=True).argsort(dim=1)
        closed = (places >= experts.top_groups).repeat_interleave(size, dim=1)
        ranked = ranked.masked_fill(closed, -torch.inf)
    places = ranked.argsort(dim=1, descending=True).argsort(dim=1)
    return places < experts.top_k
