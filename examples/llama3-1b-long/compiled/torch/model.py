"""The model of llama3-1b-long.par: a decoder, cut over cp.

Of each sequence a cp rank holds its own tokens; attention alone sees all of them.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import context
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from parlay.runtime.stretch import llama3
from torch import Tensor, nn

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 32 (llama3.2-1b) over model.kv_heads = 8 (llama3.2-1b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim, bias=False)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim, bias=False)
        self.o = nn.Linear(m.heads * m.head_dim, m.hidden, bias=False)
        self.cp = mesh.cp

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/cp, h] -> [b, s/cp, h]"""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = context.ring(q, k, v, axis=self.cp)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, at: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (llama3.2-1b): cosines and sines [s/cp, r] of positions `at`."""
    r = plan.model.rotary_dim
    at = at.to(torch.float64)
    # model.rope_scaling = llama3(...) (llama3.2-1b)
    turns = llama3(plan.model.rope_theta, r, plan.model.llama3, device=like.device)
    angles = torch.outer(at, turns).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (llama3.2-1b), model.ffn = 8192 (llama3.2-1b)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.gate = nn.Linear(m.hidden, m.ffn, bias=False)
        self.up = nn.Linear(m.hidden, m.ffn, bias=False)
        self.down = nn.Linear(m.ffn, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/cp, h] -> [b, s/cp, h]"""
        return self.down(F.silu(self.gate(x)) * self.up(x))


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (llama3.2-1b) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mlp(plan)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/cp, h] -> [b, s/cp, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Takes tokens [b, s/cp]; returns the sum of the losses over the labels that count."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        self.plan = plan
        self.cp = mesh.cp
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh) for i in range(m.layers)})
        self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(x)
        at = context.head_tail(self.plan.batch.seq, axis=self.cp, device=x.device)
        cos, sin = rotary(self.plan, at, like=x)
        # train.recompute = full (llama3-1b-long..:20)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
