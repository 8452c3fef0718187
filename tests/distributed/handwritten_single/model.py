"""The model of tiny.par: a Llama.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime.plan import Plan
from parlay.runtime.precision import wide
from torch import Tensor, nn

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """heads = 4 over kv_heads = 2 (tiny.par:6)"""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim, bias=False)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.o = nn.Linear(m.heads * m.head_dim, m.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        q = rotate(self.split(self.q(x)), cos, sin)
        k = rotate(self.split(self.k(x)), cos, sin)
        v = self.split(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """position = rope(theta = 500000) (tiny.par:12): cosines and sines [s, d]."""
    d = plan.model.head_dim
    even = torch.arange(0, d, 2, dtype=torch.float64, device=like.device)
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    angles = torch.outer(at, plan.model.rope_theta ** (-even / d)).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + d/2) of x [b, heads, s, d] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """activation = swiglu, ffn = 172 (tiny.par:11, tiny.par:8)"""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.gate = nn.Linear(m.hidden, m.ffn, bias=False)
        self.up = nn.Linear(m.hidden, m.ffn, bias=False)
        self.down = nn.Linear(m.ffn, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        return self.down(F.silu(self.gate(x)) * self.up(x))


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """norm = rmsnorm (tiny.par:10) before each half."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mlp(plan)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Takes tokens [b, s]; returns the sum of the losses over the labels [b, s] that count."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan) for i in range(m.layers)})
        self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.head = nn.Linear(m.hidden, m.padded_vocab, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = rotary(self.plan, like=x)
        for layer in self.layers.values():
            x = layer(x, cos, sin)
        logits = self.head(self.norm(x))[..., : self.plan.model.vocab].flatten(0, 1)
        return F.cross_entropy(logits.to(wide(x.dtype)), labels.flatten(), reduction="sum")
