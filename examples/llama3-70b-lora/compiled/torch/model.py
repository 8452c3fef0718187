"""The model of llama3-70b-lora.par: a decoder.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime.adapters import Adapted
from parlay.runtime.plan import Plan
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 64 (llama3-70b) over model.kv_heads = 8 (llama3-70b)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = Adapted(m.hidden, m.heads * m.head_dim, bias=False, lora=plan.lora)
        self.k = Adapted(m.hidden, m.kv_heads * m.head_dim, bias=False, lora=plan.lora)
        self.v = Adapted(m.hidden, m.kv_heads * m.head_dim, bias=False, lora=plan.lora)
        self.o = Adapted(m.heads * m.head_dim, m.hidden, bias=False, lora=plan.lora)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (llama3-70b): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    even = torch.arange(0, r, 2, dtype=torch.float64, device=like.device)
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    angles = torch.outer(at, plan.model.rope_theta ** (-even / r)).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (llama3-70b), model.ffn = 28672 (llama3-70b)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.gate = Adapted(m.hidden, m.ffn, bias=False, lora=plan.lora)
        self.up = Adapted(m.hidden, m.ffn, bias=False, lora=plan.lora)
        self.down = Adapted(m.ffn, m.hidden, bias=False, lora=plan.lora)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        return self.down(F.silu(self.gate(x)) * self.up(x))


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (llama3-70b) before each half."""

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

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(x)
        cos, sin = rotary(self.plan, like=x)
        # train.recompute = full (llama3-70b-lor..:19)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        logits = self.head(self.norm(x))
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
