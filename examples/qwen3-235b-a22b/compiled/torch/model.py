"""One stage of the model of qwen3-235b-a22b.par: a decoder, cut over tp.

Linears hold heads and features of one tp rank; between them a rank holds its piece of the sequence.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import router, tensor
from parlay.runtime.experts import Grouped, visit
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan, Section
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# parallel.tp = 4 (qwen3-235b-a22..:14): the dim of each weight that is cut; others are whole.
CUT = {
    "embedding.weight": 0,
    "q.weight": 0,
    "k.weight": 0,
    "v.weight": 0,
    "o.weight": 1,
    "head.weight": 0,
}

# model.experts.count = 128 (qwen3-235b-a22b): dim 0 counts experts, which ep deals out; etp cuts
# this one.
EXPERTS = {
    "experts.gate.weight": 1,
    "experts.up.weight": 1,
    "experts.down.weight": 2,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 64 (qwen3-235b-a22b) over model.kv_heads = 4 (qwen3-235b-a22b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp, self.head_dim = plan.model, mesh.tp, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim // self.tp.size, bias=False)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size, bias=False)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size, bias=False)
        self.q_norm = nn.RMSNorm(m.head_dim, eps=m.norm_eps)
        self.k_norm = nn.RMSNorm(m.head_dim, eps=m.norm_eps)
        self.o = nn.Linear(m.heads * m.head_dim // self.tp.size, m.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        q, k, v = tensor.gather_column(x, self.q.weight, self.k.weight, self.v.weight, axis=self.tp)
        q, k, v = self.split(q), self.split(k), self.split(v)
        q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return tensor.row_scatter(y.transpose(1, 2).flatten(2), self.o.weight, axis=self.tp)

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (qwen3-235b-a22b): cosines and sines [s, r] of r features."""
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
    """model.experts.ffn = 1536 (qwen3-235b-a22b): the experts of this rank."""

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
    """model.experts.top_k = 8 (qwen3-235b-a22b) of model.experts.count = 128 (qwen3-235b-a22b)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.ep = mesh.ep
        self.top_k = e.top_k
        # model.experts.aux_loss = 0.001 (qwen3-235b-a22..:4): means over the step's microbatches.
        share = plan.batch.micro_batch / plan.batch.global_batch
        self.balance = router.Balance(load=share * e.aux_loss, axes=(mesh.tp,))
        self.router = nn.Linear(m.hidden, e.count, bias=False)
        self.experts = Experts(plan, mesh)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        tokens = x.flatten(0, 1)
        chosen = router.softmax(tokens, self.router.weight, top_k=self.top_k, balance=self.balance)
        y = visit(tokens, chosen, self.experts, ep=self.ep)
        return y.view_as(x)


# ── Stage ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (qwen3-235b-a22b) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mixture(plan, mesh)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Stage(nn.Module):
    """parallel.pp = 8 (qwen3-235b-a22..:16): the layers of one stage.

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
        # train.recompute = full (qwen3-235b-a22..:30)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        if not self.stage.head:
            return x
        logits = tensor.gather_column(self.norm(x), self.head.weight, axis=self.tp)
        return tensor.cross_entropy(logits, labels, vocab=self.plan.model.vocab, axis=self.tp)
