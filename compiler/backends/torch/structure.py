"""What emitted code depends on: which axes exist and in what order. Structure only, no sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parlay.compiler.backends.places import placer
from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.plan import expert_axes, mesh_axes, replicates, saves, windowed
from parlay.compiler.layout import Layout
from parlay.compiler.layout.stages import FOLDED, SPLITTING, chunks_of
from parlay.compiler.ledger.communication import dtypes_of
from parlay.compiler.spec.blocks import Checkpoint, Experts, Model, Parallel, Train
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.source import Source


@dataclass(frozen=True, slots=True)
class Structure:
    """One phase's structure; `axes` are those above 1, fastest first."""

    phase: Phase
    layout: Layout
    sources: Mapping[str, Source]
    axes: tuple[str, ...]

    @classmethod
    def of(cls, phase: Phase, layout: Layout, sources: Mapping[str, Source]) -> Structure:
        """The structure of a phase that the back end can express."""
        return cls(phase, layout, sources, mesh_axes(phase))

    def at(self, path: str) -> Code:
        """`parallel.tp = 2 (tiny.par:18)`: a field, its value and its place, for a comment."""
        return placer(self.phase.origins, self.sources)(path)

    @property
    def model(self) -> Model:
        """The model, which the back end has not refused."""
        assert self.phase.spec.model is not None
        return self.phase.spec.model

    @property
    def parallel(self) -> Parallel:
        """The degrees."""
        return self.phase.spec.parallel

    @property
    def train(self) -> Train:
        """The recipe."""
        assert self.phase.spec.train is not None
        return self.phase.spec.train

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained in place of the weights."""
        return self.train.lora is not None

    @property
    def based(self) -> bool:
        """Whether the weights under adapters are those of a save."""
        lora = self.train.lora
        return lora is not None and lora["base"] is not None

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
    def experts(self) -> Experts | None:
        """The experts of the model, if it has some."""
        return self.model.experts

    @property
    def steers(self) -> bool:
        """Whether a correction of the router's scores evens the experts' loads out."""
        return self.experts is not None and self.experts.router_bias

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
        return self.experts is not None and not self.scatters

    @property
    def expert_zero(self) -> bool:
        """Whether the masters and the optimizer state of experts are cut over edp."""
        return self.edp and self.parallel.zero > 0

    @property
    def dense_layers(self) -> bool:
        """Whether some layers have a plain MLP."""
        experts = self.experts
        return experts is None or experts.layers_before(self.model.layers) < self.model.layers

    @property
    def plain_mlp(self) -> bool:
        """Whether there is an MLP that every token passes, for itself or beside experts."""
        return self.dense_layers or (self.experts is not None and self.experts.shared > 0)

    @property
    def both_kinds(self) -> bool:
        """Whether some layers have experts and some do not."""
        return self.experts is not None and self.dense_layers

    @property
    def owners(self) -> str:
        """The group whose ranks own all gradients between them; empty for one rank."""
        if self.zero or self.dealt:
            return "world"
        return "_".join(axis for axis in ("tp", "pp") if axis in self.axes)

    @property
    def again_alone(self) -> bool:
        """Whether layers' mixtures are computed again, and plain MLPs are not."""
        return "experts" in self.recomputed and "mlp" not in self.recomputed

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
        """Whether gradients are cut too, from microbatch to microbatch."""
        return self.zero and self.parallel.zero > 1

    @property
    def gathers(self) -> bool:
        """Whether weights are cut too, and are whole only while they are used."""
        return self.zero and self.parallel.zero > 2

    @property
    def replicates(self) -> bool:
        """Whether a part of dp shares one copy of the training state, and the rest has others."""
        return self.zero and replicates(self.phase.spec)

    @property
    def shard_axis(self) -> str:
        """The axis whose ranks share one copy of the training state."""
        return "shard" if self.replicates else self.batch_axis

    @property
    def optimizer(self) -> str:
        """The class of the optimizer: torch's AdamW where masters and moments are in fp32 and on
        the GPU."""
        asked, dtypes = self.train.optimizer, dtypes_of(self.phase.spec)
        if asked.name == "sgd":
            return "SGD"
        alike = dtypes.master == dtypes.optimizer == "float32" and not asked["kahan"]
        alike = alike and not self.offloads
        return "AdamW" if alike else "LeanAdamW"

    @property
    def offloads(self) -> bool:
        """Whether masters and optimizer state are on the host."""
        return self.parallel.offload.name == "cpu"

    @property
    def scaled(self) -> bool:
        """Whether losses are scaled up, lest gradients vanish."""
        return self.train.precision == "fp16"

    @property
    def checkpoint(self) -> Checkpoint:
        """When and where training is saved."""
        return self.phase.spec.checkpoint

    @property
    def validates(self) -> bool:
        """Whether samples are held out of training, and their loss is looked at."""
        return self.phase.spec.data.validation > 0

    @property
    def saves(self) -> bool:
        """Whether training is saved at all."""
        return saves(self.phase.spec)

    @property
    def recomputes(self) -> str:
        """`full`, `first` or `every` where the backward computes layers again, else empty."""
        recompute = self.train.recompute
        if recompute.name != "full":
            return ""
        given = [name for name in ("first", "every") if recompute.get(name) is not None]
        return given[0] if given else "full"

    @property
    def recomputed(self) -> frozenset[str]:
        """The parts of a layer that are computed again on their own.

        Core attention is none of them under flash attention, which keeps nothing that could go.
        """
        recompute = self.train.recompute
        if recompute.name != "selective":
            return frozenset()
        parts = recompute.flags or ("core_attention",)
        within = {"activation"} if "mlp" in parts else set()
        kept = {"core_attention"} if self.train.attention == "flash" else set()
        return frozenset(parts) - within - kept

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
        return self.pp and self.model.tied_embeddings and not self.folded

    @property
    def bias_alone(self) -> bool:
        """Whether the head has a bias, but the embedding's weight."""
        return self.model.tied_embeddings and "head" in self.model.bias

    @property
    def capped(self) -> bool:
        """Whether the logits have a soft cap."""
        return self.model.softcap is not None and self.model.softcap["logits"] > 0

    @property
    def bent(self) -> bool:
        """Whether attention scores have a soft cap."""
        return self.model.softcap is not None and self.model.softcap["attention"] > 0

    @property
    def windowed(self) -> bool:
        """Whether some tokens see a part of those before them alone."""
        return windowed(self.model, self.train)

    @property
    def patterned(self) -> bool:
        """Whether some layers see everything all the same."""
        window = self.model.window
        return self.windowed and window is not None and window["every"] > 1

    @property
    def numbered(self) -> bool:
        """Whether a layer has to know its number."""
        return self.patterned or self.both_kinds

    @property
    def alibi(self) -> bool:
        """Whether scores fall with the distance."""
        return self.model.position == "alibi"

    @property
    def asks_attention(self) -> bool:
        """Whether attention is more than causal."""
        return self.windowed or self.bent or self.alibi or self.model.sinks

    @property
    def stretched(self) -> bool:
        """Whether rotary positions lie closer together than tokens."""
        rope = self.model.rope
        return self.model.position == "rope" and rope is not None and rope["scaling"] != 1

    @property
    def given(self) -> tuple[str, ...]:
        """What a layer is called with beside x, for its positions."""
        return {"rope": ("cos", "sin"), "alibi": ("slopes",)}.get(self.model.position, ())

    @property
    def class_name(self) -> str:
        """The module that a rank builds."""
        return "Stage" if self.pp else "Model"
