"""The ends of model.py in a pipeline: a stage is one layer of DeepSpeed's PipelineModule.

DeepSpeed counts every parameter of a tied layer once a pipeline, so that the tied embedding is a
layer of its own beside the stages.
"""

from __future__ import annotations

from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.linears import norm
from parlay.compiler.backends.torch.model_stage import (
    after_embedding,
    embedded,
    head,
    layers,
    layers_built,
    logits,
    positions,
    under,
)
from parlay.compiler.backends.torch.structure import Structure


def context(structure: Structure) -> dict[str, Any]:
    """What model.py.j2 prints of a stage."""
    tied = structure.model.tied_embeddings
    first = "tokens embedded" if tied else "tokens [b, s]"
    last = "normed" if tied else "logits"
    return {
        "stage_says": Code(f"The first takes {first}, the last returns {last}; x is [b, s, h]."),
        "stage_init": [Code(line) for line in _init(structure)],
        "stage_forward": [Code(line) for line in _forward(structure)],
        "logits_forward": [Code(line) for line in _logits(structure, "x")] if tied else [],
    }


def _init(structure: Structure) -> list[str]:
    model = structure.model
    first, last = after_embedding(structure), []
    if not model.tied_embeddings:
        first = ["self.embedding = nn.Embedding(m.padded_vocab, m.hidden)", *first]
        last = head(structure)
    last = ([f"self.norm = {norm(structure)}"] if model.final_norm else []) + last
    numbers = "range(first, last + 1)"
    sizes = "m, (first, last) = plan.model, stage.layers"
    return [
        sizes if first or last else "first, last = stage.layers",
        *under("stage.embedding", first),
        *layers_built(structure, "plan", numbers),
        *under("stage.head", last),
    ]


def _forward(structure: Structure) -> list[str]:
    model = structure.model
    into = embedded(structure)[1 if model.tied_embeddings else 0 :]
    body = [*positions(structure), *layers(structure)]
    if model.tied_embeddings:
        ends = (
            ["return self.norm(x) if self.stage.head else x"] if model.final_norm else ["return x"]
        )
    else:
        ends = ["if not self.stage.head:", "    return x", *_logits(structure)]
    return [*under("self.stage.embedding", into), *body, *ends]


def _logits(structure: Structure, x: str = "") -> list[str]:
    lines = logits(structure, x)
    if len(lines) == 1:
        return [f"return {lines[0].removeprefix('logits = ')}"]
    *before, last = lines
    return [*before, f"return {last.removeprefix('logits = ')}"]
