"""Runs a timeline: this rank's actions in order, and the messages between them.

A stage is a module `stage(x, labels)`. x is the tokens on the first stage and an activation on the
others; the last stage returns the sum of the losses of its microbatch, the others an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from parlay.runtime import deferred
from parlay.runtime.loss import Batch
from parlay.runtime.mesh import Axis
from parlay.runtime.timeline import Action, Round, Timeline
from torch import Tensor, nn


class Chunks(nn.Module):
    """The stages of one rank as one module, in which each weight keeps its global name.

    What two stages call alike is one: a tied embedding, where the first and the last meet. Layers
    stand in their order in the model, so that ranks that hold the same ones keep them alike.
    """

    def __init__(self, stages: Iterable[nn.Module]) -> None:
        super().__init__()
        self.stages = tuple(stages)
        for stage in sorted(self.stages, key=_first_layer):
            for name, child in stage.named_children():
                if not isinstance(child, nn.ModuleDict):
                    if name in self._modules:
                        setattr(stage, name, getattr(self, name))
                    else:
                        self.add_module(name, child)
                elif name in self._modules:
                    getattr(self, name).update(child)
                else:
                    self.add_module(name, nn.ModuleDict(child))


def _first_layer(stage: nn.Module) -> int:
    layers = stage.get_submodule("layers")
    return min(int(name) for name, _ in layers.named_children())


def run(
    timeline: Timeline,
    *,
    stages: Sequence[nn.Module],
    batch: Batch,
    valid: Tensor | None,
    axis: Axis,
    shape: tuple[int, ...],
) -> Tensor | None:
    """One step's forwards and backwards on this rank.

    `stages` are this rank's chunks; activations between stages have this `shape` and the dtype of
    the weights.
    `valid` is the number of valid labels of the global batch, needed on the last stage alone.
    Returns the sum of the losses of `batch` over `valid` on the rank of the last stage, None
    elsewhere; gradients are added up in the parameters.

    Sends one activation forward and one gradient backward for each microbatch and border between
    ranks. An activation is freed with its backward, a stage's output once it is sent. Of a backward
    that is split, `I` frees all but what linears' weight gradients are made of, until `W`.
    """
    if len(batch) != timeline.microbatches:
        raise ValueError(
            f"the timeline takes {timeline.microbatches} microbatches, the batch has {len(batch)}"
        )
    worker = _Worker(timeline, stages, batch, valid, axis, shape)
    with deferred.splitting(timeline.splits):
        for turn in timeline.rounds(axis.rank):
            worker.turn(turn)
    worker.settle()
    worker.check()
    return worker.loss


def forwards(
    timeline: Timeline, *, stages: Sequence[nn.Module], axis: Axis, shape: tuple[int, ...]
) -> Callable[[Batch], Tensor | None]:
    """A function of a batch of any length that runs its forwards alone, on this rank.

    It gives the sum of the losses on the rank of the last stage, None elsewhere. Microbatches pass
    the stages in their order, one activation is sent for each border between ranks; nothing is
    kept.
    """
    weight = next(stages[0].parameters())
    # Of two copies of the model the first.
    passed = timeline.pp if timeline.route == "mirror" else timeline.stages
    own = [stage for stage in range(passed) if timeline.rank_of(stage) == axis.rank]

    def forward(batch: Batch) -> Tensor | None:
        losses = []
        for microbatch in batch:
            out = labels = None
            for stage in own:
                if timeline.is_first(stage):
                    x = microbatch[0].to(weight.device)
                elif timeline.rank_of(stage - 1) == axis.rank:
                    assert out is not None
                    x = out
                else:
                    x = torch.empty(shape, dtype=weight.dtype, device=weight.device)
                    _pass_on(dist.irecv, x, timeline.rank_of(stage - 1), axis)
                if timeline.is_last(stage):
                    labels = microbatch[1].to(weight.device)
                out = stages[timeline.chunk_of(stage)](x, labels)
                if timeline.is_last(stage):
                    losses.append(out)
                elif (to := timeline.rank_of(stage + 1)) != axis.rank:
                    _pass_on(dist.isend, out.contiguous(), to, axis)
        return torch.stack(losses).sum() if losses else None

    return forward


def _pass_on(op: Any, x: Tensor, peer: int, axis: Axis) -> None:
    """One message. Outside of a batch NCCL would make a communicator of its own for each pair of
    ranks, with memory that nothing else uses."""
    (work,) = dist.batch_isend_irecv([dist.P2POp(op, x, group=axis.group, group_peer=peer)])
    work.wait()


class _Worker:
    """The state of one rank in one step."""

    def __init__(
        self,
        timeline: Timeline,
        stages: Sequence[nn.Module],
        batch: Batch,
        valid: Tensor | None,
        axis: Axis,
        shape: tuple[int, ...],
    ) -> None:
        self.timeline, self.stages, self.batch, self.axis = timeline, stages, batch, axis
        self.valid, self.shape = valid, shape
        weight = next(stages[0].parameters())
        self.dtype, self.device = weight.dtype, weight.device
        self.loss: Tensor | None = None
        # What has come for an action and what it needs for its backward, by (kind, stage, i).
        self.inbox: dict[tuple[str, int, int], Tensor] = {}
        self.held: dict[tuple[int, int], tuple[Tensor, Tensor, _Return | None]] = {}
        self.late: dict[tuple[int, int], deferred.Late] = {}
        self.under_way: list[dist.Work] = []
        self.arriving: set[tuple[str, int, int]] = set()
        self.sent: list[Tensor] = []

    def turn(self, turn: Round) -> None:
        """At most one action, then the round's messages.

        The messages of the last round are waited for only when they are needed, or here: one
        round travels while the next action runs.
        """
        produced = None
        if turn.action is not None:
            if _arrival(turn.action) in self.arriving:
                self.settle()
            produced = self.act(turn.action)
        self.settle()
        self.post(turn, produced)

    # ── Actions ───────────────────────────────────────────────────────────────

    def act(self, action: Action) -> Tensor | None:
        """Runs one action; returns what it sends, None where that stays on this rank."""
        if action.kind == "W":
            self.weights(action)
            return None
        out = self.forward(action) if action.kind == "F" else self.backward(action)
        if out is None:
            return None
        to = action.stage + (1 if action.kind == "F" else -1)
        if self.timeline.rank_of(to) == self.axis.rank:
            self.inbox[_arrival(action._replace(stage=to))] = out
            return None
        return out

    def forward(self, action: Action) -> Tensor | None:
        """The activation [b, s, h] for the next stage, cut off from the graph."""
        _, stage, i = action
        microbatch, labels = self.batch[i], None  # which tells the watchdog; nothing is read yet
        first, last = self.timeline.is_first(stage), self.timeline.is_last(stage)
        if first:
            x = microbatch[0].to(self.device, non_blocking=True)
        else:
            x = self.inbox.pop(action).requires_grad_()
        if last:
            labels = microbatch[1].to(self.device, non_blocking=True)
        module = self.stages[self.timeline.chunk_of(stage)]
        if not last and getattr(getattr(module, "stage", None), "head", False):
            raise ValueError(f"stage {stage} of the pipeline has the head, and is not its last")
        out: Tensor = module(x, labels)
        if last:
            if self.valid is None:
                raise ValueError("the last stage needs the number of valid labels")
            root = out / self.valid
            self.loss = root.detach() if self.loss is None else self.loss + root.detach()
            self.held[stage, i] = x, root, None
            return None
        if out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError(
                f"stage {stage} returned {tuple(out.shape)} in {out.dtype}; "
                f"the pipeline sends {tuple(self.shape)} in {self.dtype}"
            )
        ticket = _Return()
        self.held[stage, i] = x, _End.apply(out, ticket), ticket
        return out.detach()

    def backward(self, action: Action) -> Tensor | None:
        """The gradient of the stage's input [b, s, h]; None on the first stage."""
        _, stage, i = action
        x, root, ticket = self.held.pop((stage, i))
        if ticket is not None:
            ticket.gradient = self.inbox.pop(_arrival(action))
        if action.kind == "I":
            with deferred.put_off() as self.late[stage, i]:
                root.backward()
        else:
            root.backward()
        return None if self.timeline.is_first(stage) else x.grad

    def weights(self, action: Action) -> None:
        """The gradients of weights that `I` of this stage and microbatch put off."""
        self.late.pop((action.stage, action.microbatch)).run()

    def check(self) -> None:
        """Nothing is held after the last action."""
        for what, left in ("backward", self.held), ("weight gradients", self.late):
            if left:
                stage, i = min(left)
                raise ValueError(f"the timeline has no {what} of stage {stage}, microbatch {i}")

    # ── Messages ──────────────────────────────────────────────────────────────

    def post(self, turn: Round, produced: Tensor | None) -> None:
        """Starts the messages of a round as one batch."""
        ops = []
        for message in turn.sends:
            assert produced is not None
            self.sent.append(produced.contiguous())
            ops.append(self._op(dist.isend, self.sent[-1], message.target))
        for message in turn.receives:
            key = message.kind, message.stage, message.microbatch
            self.inbox[key] = torch.empty(self.shape, dtype=self.dtype, device=self.device)
            self.arriving.add(key)
            ops.append(self._op(dist.irecv, self.inbox[key], message.source))
        if ops:
            self.under_way = dist.batch_isend_irecv(ops)

    def settle(self) -> None:
        """Waits for the messages under way."""
        for work in self.under_way:
            work.wait()
        self.under_way = []
        self.arriving.clear()
        self.sent.clear()

    def _op(self, op: Any, tensor: Tensor, peer: int) -> dist.P2POp:
        return dist.P2POp(op, tensor, group=self.axis.group, group_peer=peer)


def _arrival(action: Action) -> tuple[str, int, int]:
    """What the input of an action is known by: gradients come for `B` and for `I`."""
    return ("F" if action.kind == "F" else "B"), action.stage, action.microbatch


class _Return:
    """Where the gradient of a stage's output is left for the backward."""

    gradient: Tensor | None = None


class _End(torch.autograd.Function):
    """The end of a stage's graph.

    Forward: a zero, so that the output itself is not held until its backward.
    Backward: the gradient that came for the output.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, ticket: _Return) -> Tensor:
        ctx.ticket = ticket
        return out.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, None]:
        gradient, ctx.ticket.gradient = ctx.ticket.gradient, None
        return gradient, None
