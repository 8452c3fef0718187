"""One stage of the model of deepseek-v3.par: a decoder.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch
import torch.nn.functional as F
from parlay.runtime import router
from parlay.runtime.experts import Grouped, holds, visit
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan, Section
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from parlay.runtime.stretch import yarn
from torch import Tensor, nn

# model.experts.count = 256 (deepseek-v3): dim 0 counts experts, which ep deals out; etp cuts this
# one.
EXPERTS = {
    "experts.gate.weight": 1,
    "experts.up.weight": 1,
    "experts.down.weight": 2,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 128 (deepseek-v3), of latents: model.mla.kv_rank = 512 (deepseek-v3)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m, mla = plan.model, plan.model.mla
        self.mla, self.heads = mla, m.heads
        self.score_factor = m.score_factor
        self.q_down = nn.Linear(m.hidden, mla.q_rank, bias=False)
        self.q_norm = nn.RMSNorm(mla.q_rank, eps=m.norm_eps)
        self.q_up = nn.Linear(mla.q_rank, self.heads * (mla.nope_dim + mla.rope_dim), bias=False)
        self.kv_down = nn.Linear(m.hidden, mla.kv_rank + mla.rope_dim, bias=False)
        self.kv_norm = nn.RMSNorm(mla.kv_rank, eps=m.norm_eps)
        self.kv_up = nn.Linear(mla.kv_rank, self.heads * (mla.nope_dim + mla.v_dim), bias=False)
        self.o = nn.Linear(self.heads * mla.v_dim, m.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        mla = self.mla
        kv, turned = self.kv_down(x).split([mla.kv_rank, mla.rope_dim], dim=-1)
        q, kv = self.q_up(self.q_norm(self.q_down(x))), self.kv_up(self.kv_norm(kv))
        q, turning = self.split(q).split([mla.nope_dim, mla.rope_dim], dim=-1)
        k, v = self.split(kv).split([mla.nope_dim, mla.v_dim], dim=-1)
        # One rotated part serves the keys of all heads.
        turned = rotate(turned.unsqueeze(1), cos, sin).expand(-1, self.heads, -1, -1)
        q, k, v = self.join(q, rotate(turning, cos, sin)), self.join(k, turned), self.join(v)
        # model.rope_scaling = yarn(...) (deepseek-v3): scores grow with the factor.
        q = self.score_factor * q
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def join(self, *parts: Tensor) -> Tensor:
        """[b, heads, s, …] each -> [b, heads, s, d], a copy that lies in memory as [b, s, heads, d]"""
        return torch.cat([part.transpose(1, 2) for part in parts], dim=-1).transpose(1, 2)


def rotary(plan: Plan, like: Tensor) -> tuple[Tensor, Tensor]:
    """model.rope = rope(...) (deepseek-v3): cosines and sines [s, r] of r features."""
    r = plan.model.rotary_dim
    at = torch.arange(plan.batch.seq, dtype=torch.float64, device=like.device)
    # model.rope_scaling = yarn(...) (deepseek-v3)
    turns = yarn(plan.model.rope_theta, r, plan.model.yarn, device=like.device)
    angles = torch.outer(at, turns).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + r/2) of x [b, heads, s, r] by its angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = swiglu (deepseek-v3), model.ffn = 18432 (deepseek-v3),
    model.experts.shared_ffn = 2048 (derived).
    """

    def __init__(self, plan: Plan, *, ffn: int) -> None:
        super().__init__()
        m = plan.model
        self.gate = nn.Linear(m.hidden, ffn, bias=False)
        self.up = nn.Linear(m.hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        return self.down(F.silu(self.gate(x)) * self.up(x))


# ── Experts ───────────────────────────────────────────────────────────────────


class Experts(nn.Module):
    """model.experts.ffn = 2048 (deepseek-v3): the experts of this rank."""

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
    """model.experts.top_k = 8 (deepseek-v3) of model.experts.count = 256 (deepseek-v3), and
    model.experts.shared = 1 (deepseek-v3).
    """

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, e = plan.model, plan.model.experts
        self.ep = mesh.ep
        self.top_k = e.top_k
        self.groups, self.top_groups = e.groups, e.top_groups
        self.scale = e.scale
        self.router = nn.Linear(m.hidden, e.count, bias=False)
        self.router.correction = nn.Parameter(torch.empty(e.count))
        self.experts = Experts(plan, mesh)
        self.shared_experts = Mlp(plan, ffn=e.shared_ffn)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        shared = self.shared_experts(x)
        tokens = x.flatten(0, 1)
        chosen = router.sigmoid(
            tokens,
            self.router.weight,
            top_k=self.top_k,
            scale=self.scale,
            groups=self.groups,
            top_groups=self.top_groups,
            correction=self.router.correction,
        )
        y = visit(tokens, chosen, self.experts, ep=self.ep)
        return shared + y.view_as(x)


# ── Stage ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = rmsnorm (deepseek-v3) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh, *, number: int) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan)
        self.mlp_norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
        # model.experts.dense_layers = 3 (deepseek-v3)
        if holds(number, m.experts):
            self.mlp = Mixture(plan, mesh)
        else:
            self.mlp = Mlp(plan, ffn=m.ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Stage(nn.Module):
    """parallel.pp = 16 (deepseek-v3.par:13): the layers of one stage.

    The first stage takes tokens [b, s], the others x [b, s, h]. The last returns the sum of
    the losses over the labels [b, s] that count, the others x.
    """

    def __init__(self, plan: Plan, mesh: Mesh, *, stage: Section) -> None:
        super().__init__()
        self.plan, self.stage = plan, stage
        m, (first, last) = plan.model, stage.layers
        if stage.embedding:
            self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.layers = nn.ModuleDict(
            {str(i): Layer(plan, mesh, number=i) for i in range(first, last + 1)}
        )
        if stage.head:
            self.norm = nn.RMSNorm(m.hidden, eps=m.norm_eps)
            self.head = nn.Linear(m.hidden, m.padded_vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.stage.embedding:
            x = self.embedding(x)
        cos, sin = rotary(self.plan, like=x)
        # train.recompute = full (deepseek-v3.par:26)
        for layer in self.layers.values():
            x = recompute(layer, x, cos, sin)
        if not self.stage.head:
            return x
        logits = self.head(self.norm(x))
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
