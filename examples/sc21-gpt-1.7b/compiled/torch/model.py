"""The model of sc21-gpt-1.7b.par: a decoder.

b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch.nn.functional as F
from parlay.runtime.plan import Plan
from parlay.runtime.precision import wide
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 24 (sc21-gpt-1.7b...:5) over model.kv_heads = 24 (derived)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m, self.head_dim = plan.model, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim)
        self.o = nn.Linear(m.heads * m.head_dim, m.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = gelu_tanh (sc21-gpt-1.7b...:9), model.ffn = 9216 (sc21-gpt-1.7b...:6)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.up = nn.Linear(m.hidden, m.ffn)
        self.down = nn.Linear(m.ffn, m.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = layernorm (sc21-gpt-1.7b...:10) before each half."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.LayerNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan)
        self.mlp_norm = nn.LayerNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mlp(plan)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Takes tokens [b, s]; returns the sum of the losses over the labels [b, s] that count."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab, m.hidden)
        self.position = nn.Embedding(m.context, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan) for i in range(m.layers)})
        self.norm = nn.LayerNorm(m.hidden, eps=m.norm_eps)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(x)
        x = x + self.position.weight[: self.plan.batch.seq]
        # train.recompute = full (sc21-gpt-1.7b...:31)
        for layer in self.layers.values():
            x = recompute(layer, x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        logits = logits[..., : self.plan.model.vocab].flatten(0, 1)
        logits = logits.to(wide(x.dtype))
        return F.cross_entropy(logits, labels.flatten(), reduction="sum")
