"""The pieces of model.py: how each layer is called under this structure."""

from __future__ import annotations

from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.structure import Structure

CUT = (
    ("embedding.weight", 0),
    ("q.weight", 0),
    ("k.weight", 0),
    ("v.weight", 0),
    ("o.weight", 1),
    ("gate.weight", 0),
    ("up.weight", 0),
    ("down.weight", 1),
    ("head.weight", 0),
)


def context(structure: Structure) -> dict[str, Any]:
    """What model.py.j2 prints."""
    tp, pp, sp, model = structure.tp, structure.pp, structure.sp, structure.model
    imports = []
    if tp:
        imports += ["from parlay.runtime import tensor", "from parlay.runtime.mesh import Mesh"]
    imports.append("from parlay.runtime.plan import Plan" + (", Section" if pp else ""))
    if not tp:
        imports.append("from parlay.runtime.precision import wide")
    return {
        "model_is": Code("One stage of the model" if pp else "The model"),
        "cut_words": Code(", cut over tp" if tp else ""),
        "sequence_words": Code(
            "; between them a rank holds its piece of the sequence" if sp else ""
        ),
        "model_imports": [Code(line) for line in imports],
        "cut": [(Code(f'"{name}"'), dim) for name, dim in CUT],
        "shape": Code("[b, s/tp, h]" if sp else "[b, s, h]"),
        "column": Code("gather_column" if sp else "column"),
        "row": Code("row_scatter" if sp else "row"),
        "grouped": Code(", enable_gqa=True" if model.kv_heads != model.heads else ""),
        "stage_init": [Code(line) for line in _stage_init(tp, pp)],
        "stage_forward": [Code(line) for line in _stage_forward(tp, pp, sp)],
    }


def _stage_init(tp: bool, pp: bool) -> list[str]:
    rows = "m.padded_vocab // self.tp.size" if tp else "m.padded_vocab"
    layer = "Layer(plan, mesh)" if tp else "Layer(plan)"
    embedding = f"self.embedding = nn.Embedding({rows}, m.hidden)"
    head = [
        "self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)",
        f"self.head = nn.Linear(m.hidden, {rows}, bias=False)",
    ]
    if not pp:
        layers = f"self.layers = nn.ModuleDict({{str(i): {layer} for i in range(m.layers)}})"
        return ["m = plan.model", embedding, layers, *head]
    return [
        "m, (first, last) = plan.model, stage.layers",
        "if stage.embedding:",
        f"    {embedding}",
        f"self.layers = nn.ModuleDict({{str(i): {layer} for i in range(first, last + 1)}})",
        "if stage.head:",
        *(f"    {line}" for line in head),
    ]


def _stage_forward(tp: bool, pp: bool, sp: bool) -> list[str]:
    if tp:
        embed = "embedding_scatter" if sp else "embedding"
        column = "gather_column" if sp else "column"
        embedded = f"x = tensor.{embed}(x, self.embedding.weight, axis=self.tp)"
        loss = [
            f"logits = tensor.{column}(self.norm(x), self.head.weight, axis=self.tp)",
            "return tensor.cross_entropy("
            "logits, labels, vocab=self.plan.model.vocab, axis=self.tp)",
        ]
    else:
        embedded = "x = self.embedding(x)"
        loss = [
            "logits = self.head(self.norm(x))[..., : self.plan.model.vocab].flatten(0, 1)",
            "logits = logits.to(wide(x.dtype))",
            'return F.cross_entropy(logits, labels.flatten(), reduction="sum")',
        ]
    layers = [
        "cos, sin = rotary(self.plan, like=x)",
        "for layer in self.layers.values():",
        "    x = layer(x, cos, sin)",
    ]
    if not pp:
        return [embedded, *layers, *loss]
    return [
        "if self.stage.embedding:",
        f"    {embedded}",
        *layers,
        "if not self.stage.head:",
        "    return x",
        *loss,
    ]
