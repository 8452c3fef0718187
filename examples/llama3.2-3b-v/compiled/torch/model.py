"""One stage of the model of llama3.2-3b-v.par: a decoder.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime.deferred import Linear, linear
from parlay.runtime.plan import Plan, Section
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from parlay.runtime.stretch import llama3
from torch import Tensor, nn

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 24 (llama3.2-3b) over model.kv_heads = 8 (llama3.2-3b)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = Linear(m.hidden, m.heads * m.head_dim, bias=False)
        self.k = Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.v = Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.o = Linear(m.heads * m.head_dim, m.hidden, bias=False)

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
    """model.rope = rope(...) (llama3.2-3b): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    # model.rope_scaling = llama3(...) (llama3.2-3b)
    turns = llama3(plan.model.rope_theta, r, plan.model.llama3, device=like.device)
    angles = torch.outer(at, turns).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (llama3.2-3b), model.ffn = 8192 (llama3.2-3b)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.gate = Linear(m.hidden, m.ffn, bias=False)
        self.up = Linear(m.hidden, m.ffn, bias=False)
        self.down = Linear(m.ffn, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        return self.down(F.silu(self.gate(x)) * self.up(x))


# ── Stage ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (llama3.2-3b) before each half."""

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
        return x + recompute(self.mlp, self.mlp_norm(x))


class Stage(nn.Module):
    """parallel.pp = 2 (llama3.2-3b-v...:10): the layers of one stage.

    The first stage takes tokens [b, s], the others x [b, s, h]. The last returns the sum of
    the losses over the labels [b, s] that count, the others x.
    """

    def __init__(self, plan: Plan, *, stage: Section) -> None:
        super().__init__()
        self.plan, self.stage = plan, stage
        m, (first, last) = plan.model, stage.layers
        if stage.embedding or stage.head:
            self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan) for i in range(first, last + 1)})
        if stage.head:
            self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.stage.embedding:
            x = self.embedding(x)
        cos, sin = rotary(self.plan, like=x)
        for layer in self.layers.values():
            x = layer(x, cos, sin)
        if not self.stage.head:
            return x
        logits = linear(self.norm(x), self.embedding.weight)
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
