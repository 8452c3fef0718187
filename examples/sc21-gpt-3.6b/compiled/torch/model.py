"""The model of sc21-gpt-3.6b.par: a decoder, cut over tp.

Linears hold heads and features of one tp rank.
b is the micro-batch, s the sequence, h the hidden width, d the width of a head.
"""

import torch.nn.functional as F
from parlay.runtime import tensor
from parlay.runtime.mesh import Mesh
from parlay.runtime.plan import Plan
from parlay.runtime.recompute import recompute
from torch import Tensor, nn

# parallel.tp = 2 (sc21-gpt-3.6b...:23): the dim of each weight that is cut; others are whole.
CUT = {
    "embedding.weight": 0,
    "q.weight": 0,
    "q.bias": 0,
    "k.weight": 0,
    "k.bias": 0,
    "v.weight": 0,
    "v.bias": 0,
    "o.weight": 1,
    "up.weight": 0,
    "up.bias": 0,
    "down.weight": 1,
}

# ── Attention ─────────────────────────────────────────────────────────────────


class Attention(nn.Module):
    """model.heads = 32 (sc21-gpt-3.6b...:5) over model.kv_heads = 32 (derived)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp, self.head_dim = plan.model, mesh.tp, plan.model.head_dim
        self.q = nn.Linear(m.hidden, m.heads * m.head_dim // self.tp.size)
        self.k = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size)
        self.v = nn.Linear(m.hidden, m.kv_heads * m.head_dim // self.tp.size)
        self.o = nn.Linear(m.heads * m.head_dim // self.tp.size, m.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        q, k, v = tensor.column(
            x,
            self.q.weight,
            self.k.weight,
            self.v.weight,
            biases=(self.q.bias, self.k.bias, self.v.bias),
            axis=self.tp,
        )
        q, k, v = self.split(q), self.split(k), self.split(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = tensor.row(y.transpose(1, 2).flatten(2), self.o.weight, axis=self.tp)
        return y + self.o.bias

    def split(self, x: Tensor) -> Tensor:
        """[b, s, heads·d] -> [b, heads, s, d]"""
        return x.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


# ── Feed-forward ──────────────────────────────────────────────────────────────


class Mlp(nn.Module):
    """model.activation = gelu_tanh (sc21-gpt-3.6b...:9), model.ffn = 12288 (sc21-gpt-3.6b...:6)."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m, self.tp = plan.model, mesh.tp
        self.up = nn.Linear(m.hidden, m.ffn // self.tp.size)
        self.down = nn.Linear(m.ffn // self.tp.size, m.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        up = tensor.column(x, self.up.weight, biases=(self.up.bias,), axis=self.tp)
        y = tensor.row(F.gelu(up, approximate="tanh"), self.down.weight, axis=self.tp)
        return y + self.down.bias


# ── Model ─────────────────────────────────────────────────────────────────────


class Layer(nn.Module):
    """model.norm = layernorm (sc21-gpt-3.6b...:10) before each half."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        m = plan.model
        self.attention_norm = nn.LayerNorm(m.hidden, eps=m.norm_eps)
        self.attention = Attention(plan, mesh)
        self.mlp_norm = nn.LayerNorm(m.hidden, eps=m.norm_eps)
        self.mlp = Mlp(plan, mesh)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, s, h] -> [b, s, h]"""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    """Takes tokens [b, s]; returns the sum of the losses over the labels [b, s] that count."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        super().__init__()
        self.plan = plan
        self.tp = mesh.tp
        m = plan.model
        self.embedding = nn.Embedding(m.padded_vocab // self.tp.size, m.hidden)
        self.position = nn.Embedding(m.context, m.hidden)
        self.layers = nn.ModuleDict({str(i): Layer(plan, mesh) for i in range(m.layers)})
        self.norm = nn.LayerNorm(m.hidden, eps=m.norm_eps)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = tensor.embedding(x, self.embedding.weight, axis=self.tp)
        x = x + self.position.weight[: self.plan.batch.seq]
        # train.recompute = full (sc21-gpt-3.6b...:33)
        for layer in self.layers.values():
            x = recompute(layer, x)
        logits = tensor.column(self.norm(x), self.embedding.weight, axis=self.tp)
        return tensor.cross_entropy(logits, labels, vocab=self.plan.model.vocab, axis=self.tp)
