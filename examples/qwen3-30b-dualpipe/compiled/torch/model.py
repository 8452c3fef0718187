"""One stage of the model of qwen3-30b-dualpipe.par: a decoder.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import router
from parlay.runtime.deferred import Linear
from parlay.runtime.experts import Grouped, visit
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan, Section
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# model.experts.count = 128 (qwen3-30b-a3b): dim 0 counts experts, which ep deals out; etp cuts this
# one.
EXPERTS = {
    "experts.gate.weight": 1,
    "experts.up.weight": 1,
    "experts.down.weight": 2,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 32 (qwen3-30b-a3b) over model.kv_heads = 4 (qwen3-30b-a3b)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = Linear(m.hidden, m.heads * m.head_dim, bias=False)
        self.k = Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.v = Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.q_norm = nn.RMSNorm(m.head_dim, eps=m.norm_eps)
        self.k_norm = nn.RMSNorm(m.head_dim, eps=m.norm_eps)
        self.o = Linear(m.heads * m.head_dim, m.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (qwen3-30b-a3b): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    even = torch.arange(0, r, 2, dtype=torch.float64, device=like.device)
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    angles = torch.outer(at, plan.model.rope_theta ** (-even / r)).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Experts ───────────────────────────────────────────────────────────────────


class Experts(nn.Module):
    """model.experts.ffn = 768 (qwen3-30b-a3b): the experts of this rank."""

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
    """model.experts.top_k = 8 (qwen3-30b-a3b) of model.experts.count = 128 (qwen3-30b-a3b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.ep = mesh.ep
        self.top_k = e.top_k
        self.router = Linear(m.hidden, e.count, bias=False)
        self.experts = Experts(plan, mesh)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        tokens = x.flatten(0, 1)
        chosen = router.softmax(tokens, self.router.weight, top_k=self.top_k)
        y = visit(tokens, chosen, self.experts, ep=self.ep)
        return y.view_as(x)


# ── Stage ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (qwen3-30b-a3b) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mixture(plan, mesh)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + recompute(self.mlp, self.mlp_norm(x))


class Stage(nn.Module):
    """parallel.pp = 4 (qwen3-30b-dual..:13): the layers of one stage.

    The first stage takes tokens [b, s], the others x [b, s, h]. The last returns the sum of
    the losses over the labels [b, s] that count, the others x.
    """

    def __init__(self, plan: Plan, mesh: Mesh, *, stage: Section) -> None:
        super().__init__()
        self.plan, self.stage = plan, stage
        m, (first, last) = plan.model, stage.layers
        if stage.embedding:
            self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh) for i in range(first, last + 1)})
        if stage.head:
            self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
            self.head = Linear(m.hidden, m.padded_vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.stage.embedding:
            x = self.embedding(x)
        cos, sin = rotary(self.plan, like=x)
        for layer in self.layers.values():
            x = layer(x, cos, sin)
        if not self.stage.head:
            return x
        logits = self.head(self.norm(x))
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
