"""What the file asks of model and recipe, as emitted code depends on it, on however many ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parlay.compiler.backends.places import placer
from parlay.compiler.backends.render import Code
from parlay.compiler.backends.stretched import amplitude, score_factor
from parlay.compiler.backends.torch.plan import saves
from parlay.compiler.backends.torch.plan_model import windowed
from parlay.compiler.ledger.recipe import dtypes_of
from parlay.compiler.spec.blocks import Checkpoint, Experts, Model, Parallel, Train
from parlay.compiler.spec.resolve import Phase
from parlay.dsl.source import Source


@dataclass(frozen=True, slots=True)
class Asked:
    """One phase that the back end can express, and the texts that it was read from."""

    phase: Phase
    sources: Mapping[str, Source]

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
    def pretrained(self) -> bool:
        """Whether training starts from weights of a Hugging Face folder."""
        return self.train.weights is not None

    @property
    def experts(self) -> Experts | None:
        """The experts of the model, if it has some."""
        return self.model.experts

    @property
    def steers(self) -> bool:
        """Whether a correction of the router's scores evens the experts' loads out."""
        frozen = self.adapted
        return self.experts is not None and self.experts.router_bias and not frozen

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
    def again_alone(self) -> bool:
        """Whether layers' mixtures are computed again, and plain MLPs are not."""
        return "experts" in self.recomputed and "mlp" not in self.recomputed

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
        """Whether some layers see everything all the same, or turn as if they did."""
        window = self.model.window
        differs = self.windowed or self.two_bases
        return differs and window is not None and window["every"] > 1

    @property
    def two_bases(self) -> bool:
        """Whether rotary positions of windowed layers have a base of their own."""
        return self.model.window_theta is not None

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
    def banded(self) -> str:
        """The function of the runtime that stretches features by their wave lengths; empty where
        none does. What `dynamic` stretches follows from the base alone."""
        scaling = self.model.rope_scaling if self.model.position == "rope" else None
        return scaling.name if scaling is not None and scaling.name != "dynamic" else ""

    @property
    def amplified(self) -> bool:
        """Whether rotated features grow as they turn."""
        return bool(self.banded) and amplitude(self.model.rope_scaling) != 1

    @property
    def steepened(self) -> bool:
        """Whether scores of latent attention are multiplied with more than 1 / sqrt(width)."""
        return score_factor(self.model) != 1

    @property
    def given(self) -> tuple[str, ...]:
        """What a layer is called with beside x, for its positions."""
        return {"rope": ("cos", "sin"), "alibi": ("slopes",)}.get(self.model.position, ())
