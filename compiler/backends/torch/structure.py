"""What emitted code depends on: which axes exist and in what order. Structure only, no sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parlay.compiler.backends.torch.asked import Asked
from parlay.compiler.backends.torch.plan import expert_axes, mesh_axes, replicates
from parlay.compiler.layout import Layout
from parlay.compiler.layout.stages import FOLDED, SPLITTING, chunks_of
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.source import Source


@dataclass(frozen=True, slots=True)
class Structure(Asked):
    """One phase's structure; `axes` are those above 1, fastest first."""

    layout: Layout
    axes: tuple[str, ...]

    @classmethod
    def of(cls, phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Structure:
        """The structure of a phase that the back end can express."""
        return cls(phase, sources, layout, mesh_axes(phase))

    @property
    def linears(self) -> str:
        """The module of the runtime with the linears that tp cuts."""
        return "adapters" if self.adapted else "tensor"

    @property
    def mesh(self) -> bool:
        """Whether there is more than one rank."""
        return bool(self.axes)

    @property
    def tp(self) -> bool:
        """Whether matrices are cut."""
        return "tp" in self.axes

    @property
    def sp(self) -> bool:
        """Whether the sequence is cut over tp between the linears."""
        return self.tp and self.parallel.sequence_parallel

    @property
    def pp(self) -> bool:
        """Whether layers are cut into stages."""
        return "pp" in self.axes

    @property
    def dp(self) -> bool:
        """Whether there are replicas."""
        return "dp" in self.axes

    @property
    def context(self) -> str:
        """How attention sees the whole sequence where it is cut over cp; empty where it is not."""
        return self.parallel.cp_method.name if "cp" in self.axes else ""

    @property
    def head_tail(self) -> bool:
        """Whether a cp rank has a chunk of the sequence from the front and one from the back."""
        return self.context not in ("", "ulysses")

    @property
    def sequence_axes(self) -> tuple[str, ...]:
        """The axes that cut sequences between the linears."""
        return ("cp",) * bool(self.context) + ("tp",) * self.sp

    @property
    def batch_axis(self) -> str:
        """The axis whose ranks share a global batch, and each weight; empty for one rank."""
        return "_".join(axis for axis in ("dp", "cp") if axis in self.axes)

    @property
    def meets(self) -> bool:
        """Whether attention sends anything, so that it is built with the mesh."""
        return self.tp or bool(self.context)

    @property
    def expert_axes(self) -> tuple[str, ...]:
        """The axes of the experts' grid that the code has, fastest first."""
        return expert_axes(self.phase, self.layout)

    @property
    def dealt(self) -> tuple[str, ...]:
        """Those that a rank's experts are a part over: ep, etp."""
        return tuple(axis for axis in ("ep", "etp") if axis in self.expert_axes)

    @property
    def routes(self) -> bool:
        """Whether tokens travel to the ranks of their experts."""
        return bool(self.dealt)

    @property
    def edp(self) -> bool:
        """Whether several ranks hold the same experts."""
        return "edp" in self.expert_axes

    @property
    def parted(self) -> bool:
        """Whether experts have a buffer of their own; else they are units beside others."""
        return self.experts is not None and not self.scatters and not self.adapted

    @property
    def expert_zero(self) -> bool:
        """Whether the masters and the optimizer state of experts are cut over edp."""
        return self.edp and self.parallel.zero > 0

    @property
    def owners(self) -> str:
        """The group whose ranks own all gradients between them; empty for one rank."""
        if self.zero or (self.dealt and not self.adapted):
            return "world"
        return "_".join(axis for axis in ("tp", "pp") if axis in self.axes)

    @property
    def model_meets(self) -> bool:
        """Whether the model sends anything, so that it is built with the mesh."""
        return self.meets or self.routes

    @property
    def zero(self) -> bool:
        """Whether masters and optimizer state are cut over the replicas."""
        return bool(self.batch_axis) and self.parallel.zero > 0

    @property
    def scatters(self) -> bool:
        """Whether gradients are cut too, from microbatch to microbatch. Those of adapters, which
        are few, are reduced once a step."""
        return self.zero and self.parallel.zero > 1 and not self.adapted

    @property
    def gathers(self) -> bool:
        """Whether weights are cut too, and are whole only while they are used."""
        return self.zero and self.parallel.zero > 2

    @property
    def gathered(self) -> str:
        """What `gathers` is about: all weights, or those under adapters."""
        return "frozen" if self.adapted else "weights"

    @property
    def keeps_frozen(self) -> bool:
        """Whether frozen weights are used after they are made."""
        return self.based or (self.adapted and self.gathers)

    @property
    def replicates(self) -> bool:
        """Whether a part of dp shares one copy of the training state, and the rest has others."""
        return self.zero and replicates(self.phase.spec)

    @property
    def shard_axis(self) -> str:
        """The axis whose ranks share one copy of the training state."""
        return "shard" if self.replicates else self.batch_axis

    @property
    def chunked(self) -> bool:
        """Whether a pipeline rank holds several stages."""
        return self.pp and chunks_of(self.parallel.schedule) > 1

    @property
    def folded(self) -> bool:
        """Whether the second stages run back over the ranks, so that the first rank has the last
        stage too."""
        return self.pp and self.parallel.schedule.name in FOLDED

    @property
    def mirrored(self) -> bool:
        """Whether two ranks of a pipeline hold each stage, and half of the microbatches start at
        either end."""
        return self.pp and self.parallel.schedule.name == "dualpipe"

    @property
    def splits(self) -> bool:
        """Whether gradients of weights are put off, to fill idle time."""
        return self.pp and self.parallel.schedule.name in SPLITTING

    @property
    def kv(self) -> bool:
        """Whether tp exceeds the key/value heads, so that several ranks hold one alike."""
        model = self.model
        return self.tp and model.mla is None and self.parallel.tp > model.kv_heads

    @property
    def head_norms(self) -> bool:
        """Whether gradients of norms inside of heads are summed over tp on their own."""
        trained = not self.adapted
        return trained and self.tp and not self.sp and self.model.qk_norm == "per_head"

    @property
    def tied_stages(self) -> bool:
        """Whether the embedding is held by the first rank of a pipeline and by the last."""
        beside = self.folded or self.mirrored
        return self.pp and self.model.tied_embeddings and not beside

    @property
    def class_name(self) -> str:
        """The module that a rank builds."""
        return "Stage" if self.pp else "Model"
