"""The model of deepseek-v2-lite.par: a decoder, cut over tp.

Linears hold heads and features of one tp rank; between them a rank holds its piece of the sequence.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import latent, router, tensor
from parlay.runtime.experts import Grouped, holds, visit
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.stretch import yarn
from torch import Tensor, nn

# parallel.tp = 2 (deepseek-v2-li..:15): the dim of each weight that is cut; others are whole.
CUT = {
    "embedding.weight": 0,
    "q.weight": 0,
    "kv_up.weight": 0,
    "o.weight": 1,
    "gate.weight": 0,
    "up.weight": 0,
    "down.weight": 1,
    "head.weight": 0,
}

# model.experts.count = 64 (deepseek-v2-lite): dim 0 counts experts, which ep deals out; etp cuts
# this one.
EXPERTS = {
    "experts.gate.weight": 1,
    "experts.up.weight": 1,
    "experts.down.weight": 2,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 16 (deepseek-v2-lite), of latents: model.mla.kv_rank = 512 (deepseek-v2-lite)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, mla, self.tp = plan.model, plan.model.mla, mesh.tp
        self.mla, self.heads = mla, m.heads // self.tp.size
        self.score_factor = m.score_factor
        self.q = nn.Linear(m.hidden, self.heads * (mla.nope_dim + mla.rope_dim), bias=False)
        self.kv_down = nn.Linear(m.hidden, mla.kv_rank + mla.rope_dim, bias=False)
        self.kv_norm = nn.RMSNorm(mla.kv_rank, eps=m.norm_eps)
        self.kv_up = nn.Linear(mla.kv_rank, self.heads * (mla.nope_dim + mla.v_dim), bias=False)
        self.o = nn.Linear(self.heads * mla.v_dim, m.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        mla = self.mla
        kv, turned = self.kv_down(x).split([mla.kv_rank, mla.rope_dim], dim=-1)
        q = tensor.gather_column(x, self.q.weight, axis=self.tp)
        turned, kv = latent.gather_expand(
            (self.kv_norm(kv),), (self.kv_up.weight,), turned, axis=self.tp
        )
        q, turning = self.split(q).split([mla.nope_dim, mla.rope_dim], dim=-1)
        k, v = self.split(kv).split([mla.nope_dim, mla.v_dim], dim=-1)
        # One rotated part serves the keys of all heads.
        turned = rotate(turned.unsqueeze(1), cos, sin).expand(-1, self.heads, -1, -1)
        q, k, v = self.join(q, rotate(turning, cos, sin)), self.join(k, turned), self.join(v)
        # model.rope_scaling = yarn(...) (deepseek-v2-lite): scores grow with the factor.
        q = self.score_factor * q
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return tensor.row_scatter(y.transpose(1, 2).flatten(2), self.o.weight, axis=self.tp)

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def join(self, *parts: Tensor) -> Tensor:
        """[b, heads, s, …] each -> [b, heads, s, d], a copy that lies in memory as [b, s, heads, d]"""
        return torch.cat([part.transpose(1, 2) for part in parts], dim=-1).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (deepseek-v2-lite): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    # model.rope_scaling = yarn(...) (deepseek-v2-lite)
    turns = yarn(plan.model.rope_theta, r, plan.model.yarn, device=like.device)
    angles = torch.outer(at, turns).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (deepseek-v2-lite), model.ffn = 10944 (deepseek-v2-lite),
    model.experts.shared_ffn = 1408 (derived).
    """

    def __init__(self, plan: Plan, mesh: Mesh, *, ffn: int) -> None:
        super().__init__()
        m, self.tp = plan.model, mesh.tp
        self.gate = nn.Linear(m.hidden, ffn // self.tp.size, bias=False)
        self.up = nn.Linear(m.hidden, ffn // self.tp.size, bias=False)
        self.down = nn.Linear(ffn // self.tp.size, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        gate, up = tensor.gather_column(x, self.gate.weight, self.up.weight, axis=self.tp)
        return tensor.row_scatter(F.silu(gate) * up, self.down.weight, axis=self.tp)


# ── Experts ───────────────────────────────────────────────────────────────────


class Experts(nn.Module):
    """model.experts.ffn = 1408 (deepseek-v2-lite): the experts of this rank."""

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
    """model.experts.top_k = 6 (deepseek-v2-lite) of model.experts.count = 64 (deepseek-v2-lite),
    and model.experts.shared = 2 (deepseek-v2-lite).
    """

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.ep = mesh.ep
        self.top_k = e.top_k
        # model.experts.aux_loss = 0.001 (deepseek-v2-li..:5): means over the step's microbatches.
        share = plan.batch.micro_batch / plan.batch.global_batch
        self.balance = router.Balance(load=share * e.aux_loss, axes=(mesh.tp,))
        self.router = nn.Linear(m.hidden, e.count, bias=False)
        self.experts = Experts(plan, mesh)
        self.shared_experts = Mlp(plan, mesh, ffn=e.shared_ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        shared = self.shared_experts(x)
        tokens = x.flatten(0, 1)
        chosen = router.softmax(
            tokens, self.router.weight, top_k=self.top_k, normalize=False, balance=self.balance
        )
        y = visit(tokens, chosen, self.experts, ep=self.ep)
        return shared + y.view_as(x)


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (deepseek-v2-lite) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh, *, number: int) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        # model.experts.dense_layers = 1 (deepseek-v2-lite)
        if holds(number, m.experts):
            self.mlp = Mixture(plan, mesh)
        else:
            self.mlp = Mlp(plan, mesh, ffn=m.ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s/tp, h] -> [b, s/tp, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


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
        self.head = nn.Linear(m.hidden, m.padded_vocab // self.tp.size, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = tensor.embedding_scatter(x, self.embedding.weight, axis=self.tp)
        cos, sin = rotary(self.plan, like=x)
        for layer in self.layers.values():
            x = layer(x, cos, sin)
        logits = tensor.gather_column(self.norm(x), self.head.weight, axis=self.tp)
        return tensor.cross_entropy(logits, labels, vocab=self.plan.model.vocab, axis=self.tp)
