"""What fields are called in other frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OF_FIELDS: Final[Mapping[str, str]] = {
    "tp": "tensor tensor_parallel tensor_model_parallel",
    "pp": "pipeline pipeline_parallel pipeline_model_parallel",
    "cp": "context_parallel sequence_context_parallel",
    "dp": "data data_parallel replicas",
    "ep": "expert experts expert_parallel expert_model_parallel",
    "etp": "expert_tensor_parallel",
    "zero": "zero_stage fsdp",
    "layers": "num_layers n_layers n_layer num_hidden_layers",
    "hidden": "dim d_model n_embd",
    "heads": "num_attention_heads attention_heads num_heads n_heads n_head",
    "kv_heads": "num_key_value_heads num_query_groups n_kv_heads num_kv_heads",
    "ffn": "intermediate ffn_hidden mlp_hidden",
    "context": "max_position_embeddings max_seq_len",
    "activation": "hidden_act",
    "tied_embeddings": "tie_word_embeddings",
    "count": "num_experts num_local_experts n_routed_experts",
    "top_k": "num_experts_per_tok topk router_topk moe_router_topk",
    "seq": "seq_len seq_length sequence sequence_length max_length",
    "micro_batch": "batch_size_per_gpu per_device_train_batch local_batch "
    "train_micro_batch_size_per_gpu",
    "global_batch": "train_batch",
    "steps": "train_iters max_steps iters iterations",
    "precision": "dtype",
    "clip": "clip_grad grad_clip gradient_clipping max_norm",
    "recompute": "activation_checkpoint activation_checkpointing gradient_checkpointing remat",
    "lr_schedule": "scheduler lr_scheduler lr_decay_style",
    "gpus": "gpus_per_node num_gpus devices",
    "nodes": "num_nodes n_nodes nnodes",
}
ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    word: (field, f"`{field}`") for field, words in _OF_FIELDS.items() for word in words.split()
} | {
    word: ("optimizer", f"`optimizer = adamw({option} = …)`")
    for word, option in (
        ("lr", "lr"),
        ("learning_rate", "lr"),
        ("weight_decay", "weight_decay"),
        ("betas", "betas"),
        ("eps", "eps"),
    )
}
"""What other frameworks call a field -> the field, and how it is written."""


def elsewhere(word: str) -> tuple[str, str] | None:
    """The field that a word of another framework stands for, and how it is written.

    `tensor_model_parallel_size`, `tensor_parallel_degree` --> `tp`; `vocab_size` --> `vocab`.
    """
    plain = word.lower()
    for ending in ("_size", "_degree"):
        plain = plain.removesuffix(ending)
    return ELSEWHERE.get(plain, (plain, f"`{plain}`") if plain != word else None)
