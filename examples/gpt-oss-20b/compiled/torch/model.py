"""The model of gpt-oss-20b.par: a decoder.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import activation, attention, router
from parlay.runtime.experts import Grouped, visit
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from parlay.runtime.stretch import yarn
from torch import Tensor, nn

# model.experts.count = 32 (gpt-oss-20b): dim 0 counts experts, which ep deals out; etp cuts this
# one.
EXPERTS = {
    "experts.gate.weight": 1,
    "experts.gate.bias": 1,
    "experts.up.weight": 1,
    "experts.up.bias": 1,
    "experts.down.weight": 2,
    "experts.down.bias": 1,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 64 (gpt-oss-20b) over model.kv_heads = 8 (gpt-oss-20b)."""

    def __init__(self, plan: Plan, *, number: int) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim)
        self.o = nn.Linear(m.heads * m.head_dim, m.hidden)
        self.sinks = nn.Parameter(torch.empty(m.heads))
        # model.window = window(size = 128, every = 2) (gpt-oss-20b): the last of so many layers
        # sees everything.
        sees_all = (number + 1) % m.window.every == 0
        self.window = None if sees_all else m.window.size

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = attention.fused(q, k, v, window=self.window, sinks=self.sinks)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (gpt-oss-20b): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    # model.rope_scaling = yarn(...) (gpt-oss-20b)
    turns = yarn(plan.model.rope_theta, r, plan.model.yarn, device=like.device)
    angles = torch.outer(at, turns).repeat(1, 2)
    size = plan.model.rope_amplitude
    return (size * angles.cos()).to(like.dtype), (size * angles.sin()).to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Experts ───────────────────────────────────────────────────────────────────


class Experts(nn.Module):
    """model.experts.ffn = 2880 (gpt-oss-20b): the experts of this rank."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.clamp, self.offset = m.glu_clamp, m.glu_offset
        held, ffn = e.count // mesh.ep.size, e.ffn
        self.gate = Grouped(held, m.hidden, ffn, bias=True)
        self.up = Grouped(held, m.hidden, ffn, bias=True)
        self.down = Grouped(held, ffn, m.hidden, bias=True)

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """x [rows, h], those of each expert after the other -> [rows, h]"""
        y = activation.quick_geglu(
            self.gate(x, counts), self.up(x, counts), clamp=self.clamp, offset=self.offset
        )
        return self.down(y, counts)


class Mixture(nn.Module):
    """model.experts.top_k = 4 (gpt-oss-20b) of model.experts.count = 32 (gpt-oss-20b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.ep = mesh.ep
        self.top_k = e.top_k
        # model.experts.aux_loss = 0.001 (gpt-oss-20b.par:4): means over the step's microbatches.
        share = plan.batch.micro_batch / plan.batch.global_batch
        self.balance = router.Balance(load=share * e.aux_loss)
        self.router = nn.Linear(m.hidden, e.count)
        self.experts = Experts(plan, mesh)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        tokens = x.flatten(0, 1)
        chosen = router.softmax(
            tokens, self.router.weight, self.router.bias, top_k=self.top_k, balance=self.balance
        )
        y = visit(tokens, chosen, self.experts, ep=self.ep)
        return y.view_as(x)


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (gpt-oss-20b) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh, *, number: int) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, number=number)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mixture(plan, mesh)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Takes tokens [b, s]; returns the sum of the losses over the labels [b, s] that count."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        self.plan = plan
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh, number=i) for i in range(m.layers)})
        self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.head = nn.Linear(m.hidden, m.padded_vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(x)
        cos, sin = rotary(self.plan, like=x)
        # train.recompute = full (gpt-oss-20b.par:24)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        logits = self.head(self.norm(x))
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
