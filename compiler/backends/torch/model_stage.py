"""The ends of model.py: embedding, layers and head of a stage or of the whole model."""

from __future__ import annotations

from typing import Any

from parlay.compiler.backends.render import Code
from parlay.compiler.backends.torch.linears import BODY, column, norm, recomputed
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.backends.torch.wrap import call, tuple_of


def context(structure: Structure) -> dict[str, Any]:
    """What model.py.j2 prints of a stage."""
    return {
        "stage_init": [Code(line) for line in _init(structure)],
        "stage_forward": [Code(line) for line in _forward(structure)],
    }


# ── What is built ─────────────────────────────────────────────────────────────


def _init(structure: Structure) -> list[str]:
    model = structure.model
    embedding = f"self.embedding = nn.Embedding({_rows(structure)}, m.hidden)"
    first = after_embedding(structure)
    last = [f"self.norm = {norm(structure)}"] if model.final_norm else []
    last += head(structure)
    arguments = "plan, mesh" if structure.model_meets else "plan"
    numbers = "range(first, last + 1)" if structure.pp else "range(m.layers)"
    layers = layers_built(structure, arguments, numbers)
    if not structure.pp:
        return ["m = plan.model", embedding, *first, *layers, *last]
    tied = model.tied_embeddings
    lines = ["m, (first, last) = plan.model, stage.layers"]
    if tied:
        lines += ["if stage.embedding or stage.head:", f"    {embedding}"]
    lines += under("stage.embedding", first if tied else [embedding, *first])
    return [*lines, *layers, *under("stage.head", last)]


def layers_built(structure: Structure, arguments: str, numbers: str) -> list[str]:
    """The layers of a stage by their numbers in the whole model."""
    number = ", number=i" if structure.numbered else ""
    made = f"Layer({arguments}{number})"
    built = f"{{str(i): {made} for i in {numbers}}}"
    return call("self.layers = nn.ModuleDict(", [built], indent=BODY)


def _rows(structure: Structure) -> str:
    return "m.padded_vocab // self.tp.size" if structure.tp else "m.padded_vocab"


def after_embedding(structure: Structure) -> list[str]:
    """What the first stage has beside the table of tokens."""
    model, lines = structure.model, []
    if model.position == "learned":
        lines.append("self.position = nn.Embedding(m.context, m.hidden)")
    if model.embedding_norm:
        lines.append(f"self.embedding_norm = {norm(structure)}")
    return lines


def head(structure: Structure) -> list[str]:
    """What the last stage has beside the norm."""
    model, rows = structure.model, _rows(structure)
    biased = "head" in model.bias
    if not model.tied_embeddings:
        bias = "" if biased else ", bias=False"
        return [f"self.head = nn.Linear(m.hidden, {rows}{bias})"]
    if structure.bias_alone:
        return [f'self.head = nn.ParameterDict({{"bias": torch.empty({rows})}})']
    return []


def under(condition: str, lines: list[str]) -> list[str]:
    """The lines in an `if`; none where there are none."""
    return [f"if {condition}:", *(f"    {line}" for line in lines)] if lines else []


# ── What is computed ──────────────────────────────────────────────────────────


def _forward(structure: Structure) -> list[str]:
    body = [*positions(structure), *layers(structure)]
    ends = [*logits(structure), *loss(structure)]
    if not structure.pp:
        return [*embedded(structure), *body, *ends]
    return [
        *under("self.stage.embedding", embedded(structure)),
        *body,
        "if not self.stage.head:",
        "    return x",
        *ends,
    ]


def positions(structure: Structure) -> list[str]:
    """What every layer is given of positions, made once."""
    if structure.alibi:
        lines = ["slopes = attention.slopes(self.plan.model.heads, like=x)"]
        dealt = ["self.tp"] if structure.tp else []
        dealt += {"ulysses": ["self.cp"], "ulysses_ring": ["self.inner"]}.get(structure.context, [])
        return lines + [f"slopes = slopes.chunk({axis}.size)[{axis}.rank]" for axis in dealt]
    if structure.given and structure.context:
        return [own_tokens(structure), "cos, sin = rotary(self.plan, at, like=x)"]
    return ["cos, sin = rotary(self.plan, like=x)"] if structure.given else []


def knows_cp(structure: Structure) -> bool:
    """Whether a stage itself has to know which tokens, or which heads, are its own."""
    position = structure.model.position
    of_heads = position == "alibi" and structure.context == "ulysses"
    return bool(structure.context) and (position in ("rope", "learned") or of_heads)


def own_tokens(structure: Structure) -> str:
    """The positions of the tokens of a cp rank."""
    deal = "head_tail" if structure.head_tail else "piece"
    return f"at = context.{deal}(self.plan.batch.seq, axis=self.cp, device=x.device)"


def layers(structure: Structure) -> list[str]:
    """The loop over the layers; what stands in `checkpoint` runs again in the backward."""
    positions = "".join(f", {name}" for name in structure.given)
    once = f"x = layer(x{positions})"
    again = f"x = {recomputed('layer', f'x{positions}')}"
    match structure.recomputes:
        case "":
            return ["for layer in self.layers.values():", f"    {once}"]
        case "full":
            return [
                f"# {structure.at('train.recompute')}",
                "for layer in self.layers.values():",
                f"    {again}",
            ]
        case "first":
            which = "place < self.plan.recompute.first"
        case _:
            which = "place % self.plan.recompute.every == 0"
    return [
        f"# {structure.at('train.recompute')}",
        "for place, layer in enumerate(self.layers.values()):",
        f"    if {which}:",
        f"        {again}",
        "    else:",
        f"        {once}",
    ]


def embedded(structure: Structure) -> list[str]:
    """Tokens to the residual stream: the table's line first."""
    model = structure.model
    embed = "embedding_scatter" if structure.sp else "embedding"
    lines = [
        f"x = tensor.{embed}(x, self.embedding.weight, axis=self.tp)"
        if structure.tp
        else "x = self.embedding(x)"
    ]
    if model.position == "learned":
        rows = "self.position.weight[: self.plan.batch.seq]"
        if structure.context:
            lines.append(own_tokens(structure))
            rows = "self.position.weight[at]"
        piece = ".chunk(self.tp.size)[self.tp.rank]" if structure.sp else ""
        lines.append(f"x = x + {rows}{piece}")
    if model.embedding_norm:
        lines.append("x = self.embedding_norm(x)")
    return lines


def logits(structure: Structure, x: str = "") -> list[str]:
    """The residual stream to logits; `x` is what the head reads, by default the last norm of it."""
    model = structure.model
    x = x or ("self.norm(x)" if model.final_norm else "x")
    owner = "self.embedding" if model.tied_embeddings else "self.head"
    biased = "head" in model.bias
    if structure.tp:
        function = "gather_column" if structure.sp else "column"
        arguments = column(structure, (owner,), x, biased=False)
        if biased:
            arguments.insert(2, f"biases={tuple_of(['self.head.bias'])}")
        lines = call(f"logits = {structure.linears}.{function}(", arguments, indent=BODY)
    elif model.tied_embeddings:
        bias = ", self.head.bias" if biased else ""
        function = "linear" if structure.splits else "F.linear"
        lines = [f"logits = {function}({x}, self.embedding.weight{bias})"]
    else:
        lines = [f"logits = self.head({x})"]
    if structure.capped:
        lines += [
            "cap = self.plan.model.logits_cap",
            "logits = cap * torch.tanh(logits / cap)",
        ]
    return lines


def loss(structure: Structure) -> list[str]:
    """Logits and labels to the sum of the losses."""
    if structure.tp:
        return [
            "return tensor.cross_entropy("
            "logits, labels, vocab=self.plan.model.vocab, axis=self.tp)",
        ]
    return [
        "logits = logits[..., : self.plan.model.vocab].flatten(0, 1)",
        "logits = logits.to(wide(x.dtype))",
        'return F.cross_entropy(logits, labels.flatten(), reduction="sum")',
    ]
