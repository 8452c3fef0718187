"""The model of long-context-moe.par: a decoder, cut over tp and cp.

Linears hold heads and features of one tp rank; between them a rank holds its piece of the sequence.
Of each sequence a cp rank holds its own tokens; attention alone sees all of them.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import context, router, tensor
from parlay.runtime.experts import Grouped, holds, visit
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# parallel.tp = 2 (long-context-m..:17): the dim of each weight that is cut; others are whole.
CUT = {
    "embedding.weight": 0,
    "q.weight": 0,
    "q.bias": 0,
    "k.weight": 0,
    "k.bias": 0,
    "v.weight": 0,
    "v.bias": 0,
    "o.weight": 1,
    "gate.weight": 0,
    "up.weight": 0,
    "down.weight": 1,
    "head.weight": 0,
}

# model.experts.count = 128 (glm-4.5-air): dim 0 counts experts, which ep deals out; etp cuts this
# one.
EXPERTS = {
    "experts.gate.weight": 1,
    "experts.up.weight": 1,
    "experts.down.weight": 2,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 96 (glm-4.5-air) over model.kv_heads = 8 (glm-4.5-air)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp, self.head_dim = plan.model, mesh.tp, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim // self.tp.size)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size)
        self.o = nn.Linear(m.heads * m.head_dim // self.tp.size, m.hidden, bias=False)
        self.cp = mesh.cp

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/(cp·tp), h] -> [b, s/(cp·tp), h]"""
        q, k, v = tensor.gather_column(
            x,
            self.q.weight,
            self.k.weight,
            self.v.weight,
            biases=(self.q.bias, self.k.bias, self.v.bias),
            axis=self.tp,
        )
        q, k, v = self.split(q), self.split(k), self.split(v)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = context.ring(q, k, v, axis=self.cp)
        return tensor.row_scatter(y.transpose(1, 2).flatten(2), self.o.weight, axis=self.tp)

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, at: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (glm-4.5-air): cosines and sines [s/cp, r] of positions `at`."""
    r = plan.model.rotary_dim
    even = torch.arange(0, r, 2, dtype=torch.float64, device=like.device)
    at = at.to(torch.float64)
    angles = torch.outer(at, plan.model.rope_theta ** (-even / r)).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of the first r features of x [b, heads, s, d] by its angle."""
    x, rest = x.split([cos.shape[-1], x.shape[-1] - cos.shape[-1]], dim=-1)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([x * cos + torch.cat([-right, left], dim=-1) * sin, rest], dim=-1)


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (glm-4.5-air), model.ffn = 10944 (glm-4.5-air),
    model.experts.shared_ffn = 1408 (derived).
    """

    def __init__(self, plan: Plan, mesh: Mesh, *, ffn: int) -> None:
        super().__init__()
        m, self.tp = plan.model, mesh.tp
        self.gate = nn.Linear(m.hidden, ffn // self.tp.size, bias=False)
        self.up = nn.Linear(m.hidden, ffn // self.tp.size, bias=False)
        self.down = nn.Linear(ffn // self.tp.size, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/(cp·tp), h] -> [b, s/(cp·tp), h]"""
        gate, up = tensor.gather_column(x, self.gate.weight, self.up.weight, axis=self.tp)
        return tensor.row_scatter(F.silu(gate) * up, self.down.weight, axis=self.tp)


# ── Experts ───────────────────────────────────────────────────────────────────


class Experts(nn.Module):
    """model.experts.ffn = 1408 (glm-4.5-air): the experts of this rank."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        held, ffn = e.count // mesh.ep.size, e.ffn
        self.gate = Grouped(held, m.hidden, ffn)
        self.up = Grouped(held, m.hidden, ffn)
        self.down = Grouped(held, ffn, m.hidden)

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """x [rows, h], those of each expert after the other -> [rows, h]"""
        return self.down(F.silu(self.gate(x, counts)) * self.up(x, counts), counts)


class Mixture(nn.Module):
    """model.experts.top_k = 8 (glm-4.5-air) of model.experts.count = 128 (glm-4.5-air), and
    model.experts.shared = 1 (glm-4.5-air).
    """

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.ep = mesh.ep
        self.top_k = e.top_k
        self.router = nn.Linear(m.hidden, e.count, bias=False)
        self.router.correction = nn.Parameter(torch.empty(e.count))
        self.experts = Experts(plan, mesh)
        self.shared_experts = Mlp(plan, mesh, ffn=e.shared_ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/(cp·tp), h] -> [b, s/(cp·tp), h]"""
        shared = self.shared_experts(x)
        tokens = x.flatten(0, 1)
        chosen = router.sigmoid(
            tokens, self.router.weight, top_k=self.top_k, correction=self.router.correction
        )
        y = visit(tokens, chosen, self.experts, ep=self.ep)
        return shared + y.view_as(x)


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (glm-4.5-air) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh, *, number: int) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        # model.experts.dense_layers = 1 (glm-4.5-air)
        if holds(number, m.experts):
            self.mlp = Mixture(plan, mesh)
        else:
            self.mlp = Mlp(plan, mesh, ffn=m.ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/(cp·tp), h] -> [b, s/(cp·tp), h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Takes tokens [b, s/cp]; returns the sum of the losses over the labels that count."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        self.plan = plan
        self.tp = mesh.tp
        self.cp = mesh.cp
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab // self.tp.size, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh, number=i) for i in range(m.layers)})
        self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.head = nn.Linear(m.hidden, m.padded_vocab // self.tp.size, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = tensor.embedding_scatter(x, self.embedding.weight, axis=self.tp)
        at = context.head_tail(self.plan.batch.seq, axis=self.cp, device=x.device)
        cos, sin = rotary(self.plan, at, like=x)
        # train.recompute = full (long-context-m..:31)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        logits = tensor.gather_column(self.norm(x), self.head.weight, axis=self.tp)
        return tensor.cross_entropy(logits, labels, vocab=self.plan.model.vocab, axis=self.tp)
