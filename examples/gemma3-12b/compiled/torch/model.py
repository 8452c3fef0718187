"""The model of gemma3-12b.par: a decoder, cut over tp.

Linears hold heads and features of one tp rank; between them a rank holds its piece of the sequence.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import attention, tensor
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# parallel.tp = 2 (gemma3-12b.par:11): the dim of each weight that is cut; others are whole.
CUT = {
    "embedding.weight": 0,
    "q.weight": 0,
    "k.weight": 0,
    "v.weight": 0,
    "o.weight": 1,
    "gate.weight": 0,
    "up.weight": 0,
    "down.weight": 1,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 16 (gemma3-12b-text) over model.kv_heads = 8 (gemma3-12b-text)."""

    def __init__(self, plan: Plan, mesh: Mesh, *, number: int) -> None:
        super().__init__()
        m, self.tp, self.head_dim = plan.model, mesh.tp, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim // self.tp.size, bias=False)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size, bias=False)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size, bias=False)
        self.q_norm = nn.RMSNorm(m.head_dim, eps=m.norm_eps)
        self.k_norm = nn.RMSNorm(m.head_dim, eps=m.norm_eps)
        self.o = nn.Linear(m.heads * m.head_dim // self.tp.size, m.hidden, bias=False)
        # model.window = window(...) (gemma3-12b-text): the last of so many layers sees everything.
        sees_all = (number + 1) % m.window.every == 0
        self.window = None if sees_all else m.window.size
        self.turns = 0 if sees_all else 1

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        q, k, v = tensor.gather_column(x, self.q.weight, self.k.weight, self.v.weight, axis=self.tp)
        q, k, v = self.split(q), self.split(k), self.split(v)
        q, k = self.q_norm(q), self.k_norm(k)
        cos, sin = cos[self.turns], sin[self.turns]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = attention.fused(q, k, v, window=self.window)
        return tensor.row_scatter(y.transpose(1, 2).flatten(2), self.o.weight, axis=self.tp)

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (gemma3-12b-text): cosines and sines [2, s, r] of r features.

    First those of layers that see everything, then those of windowed ones, by another base.
    """
    r = plan.model.rotary_dim
    even = torch.arange(0, r, 2, dtype=torch.float64, device=like.device)
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    # model.window = window(...) (gemma3-12b-text): the base of windowed layers.
    near = torch.outer(at, plan.model.window.theta ** (-even / r))
    at = at / plan.model.rope_scaling
    far = torch.outer(at, plan.model.rope_theta ** (-even / r))
    angles = torch.stack([far, near]).repeat(1, 1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = geglu_tanh (gemma3-12b-text), model.ffn = 15360 (gemma3-12b-text)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp = plan.model, mesh.tp
        self.gate = nn.Linear(m.hidden, m.ffn // self.tp.size, bias=False)
        self.up = nn.Linear(m.hidden, m.ffn // self.tp.size, bias=False)
        self.down = nn.Linear(m.ffn // self.tp.size, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        gate, up = tensor.gather_column(x, self.gate.weight, self.up.weight, axis=self.tp)
        return tensor.row_scatter(
            F.gelu(gate, approximate="tanh") * up, self.down.weight, axis=self.tp
        )


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (gemma3-12b-text) before and after each half."""

    def __init__(self, plan: Plan, mesh: Mesh, *, number: int) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh, number=number)
        self.attention_post_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mlp(plan, mesh)
        self.mlp_post_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        x = x + self.attention_post_norm(self.attention(self.attention_norm(x), cos, sin))
        return x + self.mlp_post_norm(self.mlp(self.mlp_norm(x)))


class Model(nn.Module):
    """Takes tokens [b, s]; returns the sum of the losses over the labels [b, s] that count."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        self.plan = plan
        self.tp = mesh.tp
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab // self.tp.size, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh, number=i) for i in range(m.layers)})
        self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = tensor.embedding_scatter(x, self.embedding.weight, axis=self.tp)
        cos, sin = rotary(self.plan, like=x)
        # train.recompute = full (gemma3-12b.par:21)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        logits = tensor.gather_column(self.norm(x), self.embedding.weight, axis=self.tp)
        return tensor.cross_entropy(logits, labels, vocab=self.plan.model.vocab, axis=self.tp)
