"""One stage of the model of llama-405b-phases.par: a decoder, cut over tp.

Linears hold heads and features of one tp rank; between them a rank holds its piece of the sequence.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import tensor
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan, Section
from parlay.runtime.recompute import recompute
from parlay.runtime.stretch import llama3
from torch import Tensor, nn

# parallel.tp = 8 (llama-405b-pha..:14): the dim of each weight that is cut; others are whole.
CUT = {
    "embedding.weight": 0,
    "q.weight": 0,
    "k.weight": 0,
    "v.weight": 0,
    "o.weight": 1,
    "gate.weight": 0,
    "up.weight": 0,
    "down.weight": 1,
    "head.weight": 0,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 128 (llama3.1-405b) over model.kv_heads = 8 (llama3.1-405b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp, self.head_dim = plan.model, mesh.tp, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim // self.tp.size, bias=False)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size, bias=False)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size, bias=False)
        self.o = nn.Linear(m.heads * m.head_dim // self.tp.size, m.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        q, k, v = tensor.gather_column(x, self.q.weight, self.k.weight, self.v.weight, axis=self.tp)
        q, k, v = self.split(q), self.split(k), self.split(v)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return tensor.row_scatter(y.transpose(1, 2).flatten(2), self.o.weight, axis=self.tp)

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (llama3.1-405b): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    # model.rope_scaling = llama3(...) (llama3.1-405b)
    turns = llama3(plan.model.rope_theta, r, plan.model.llama3, device=like.device)
    angles = torch.outer(at, turns).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (llama3.1-405b), model.ffn = 53248 (llama3.1-405b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp = plan.model, mesh.tp
        self.gate = nn.Linear(m.hidden, m.ffn // self.tp.size, bias=False)
        self.up = nn.Linear(m.hidden, m.ffn // self.tp.size, bias=False)
        self.down = nn.Linear(m.ffn // self.tp.size, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        gate, up = tensor.gather_column(x, self.gate.weight, self.up.weight, axis=self.tp)
        return tensor.row_scatter(F.silu(gate) * up, self.down.weight, axis=self.tp)


# ── Stage ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (llama3.1-405b) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mlp(plan, mesh)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Stage(nn.Module):
    """parallel.pp = 16 (llama-405b-pha..:16): the layers of one stage.

    The first stage takes tokens [b, s], the others x [b, s/tp, h]. The last returns the sum of
    the losses over the labels [b, s] that count, the others x.
    """

    def __init__(self, plan: Plan, mesh: Mesh, *, stage: Section) -> None:
        super().__init__()
        self.plan, self.stage = plan, stage
        self.tp = mesh.tp
        m, (first, last) = plan.model, stage.layers
        if stage.embedding:
            self.embedding = nn.Embedding(m.padded_vocab // self.tp.size, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh) for i in range(first, last + 1)})
        if stage.head:
            self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
            self.head = nn.Linear(m.hidden, m.padded_vocab // self.tp.size, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.stage.embedding:
            x = tensor.embedding_scatter(x, self.embedding.weight, axis=self.tp)
        cos, sin = rotary(self.plan, like=x)
        # train.recompute = full (llama-405b-pha..:30)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        if not self.stage.head:
            return x
        logits = tensor.gather_column(self.norm(x), self.head.weight, axis=self.tp)
        return tensor.cross_entropy(logits, labels, vocab=self.plan.model.vocab, axis=self.tp)
