"""llama3-8b-fsdp.par for torchtitan 0.3, by Parlay 0.1.0: 64 ranks on 8 nodes.

torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d
    --rdzv-endpoint HOST:29500 -m torchtitan.train --module parlay_config --config config
"""

from functools import partial

import torch.nn as nn
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    ParamGroupConfig,
)
from torchtitan.config.configs import CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import (
    get_attention_config,
    make_ffn_config,
    make_gqa_config,
)
from torchtitan.models.llama3 import Llama3Model, parallelize_llama
from torchtitan.models.llama3.model import Llama3TransformerBlock
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

DIM = 4096
ROWS = 128256
NORMAL = partial(nn.init.trunc_normal_, std=0.02)
WEIGHT = {"weight": NORMAL, "bias": nn.init.zeros_}

# ── The model ─────────────────────────────────────────────────────────────────


def norm(width: int) -> RMSNorm.Config:
    return RMSNorm.Config(
        normalized_shape=width,
        eps=1e-05,
        param_init={"weight": nn.init.ones_},
    )


def attention():
    return make_gqa_config(
        dim=DIM,
        n_heads=32,
        n_kv_heads=8,
        head_dim=128,
        wqkv_param_init=WEIGHT,
        wo_param_init=WEIGHT,
        inner_attention=get_attention_config("flex"),
        fuse_qkv=True,
        qk_norm=None,
        rope=ComplexRoPE.Config(
            dim=128,
            max_seq_len=8192,
            theta=500000.0,
        ),
    )


def dense() -> Llama3TransformerBlock.Config:
    return Llama3TransformerBlock.Config(
        attention_norm=norm(DIM),
        ffn_norm=norm(DIM),
        attention=attention(),
        feed_forward=make_ffn_config(
            dim=DIM,
            hidden_dim=14336,
            w1_param_init=WEIGHT,
            w2w3_param_init=WEIGHT,
        ),
    )


def model_spec() -> ModelSpec:
    return ModelSpec(
        name="llama3",
        flavor="parlay",
        model=Llama3Model.Config(
            dim=DIM,
            vocab_size=ROWS,
            enable_weight_tying=False,
            tok_embeddings=Embedding.Config(
                num_embeddings=ROWS,
                embedding_dim=DIM,
                param_init={"weight": NORMAL},
            ),
            norm=norm(DIM),
            lm_head=Linear.Config(in_features=DIM, out_features=ROWS, param_init=WEIGHT),
            layers=[dense() for _ in range(32)],
        ),
        parallelize_fn=parallelize_llama,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=Llama3StateDictAdapter,
    )


# ── The run ───────────────────────────────────────────────────────────────────


def adamw(pattern: str, decay: float) -> ParamGroupConfig:
    return ParamGroupConfig(
        pattern=pattern,
        optimizer_name="AdamW",
        optimizer_kwargs={
            "lr": 0.0003,
            "betas": (0.9, 0.95),
            "eps": 1e-08,
            "weight_decay": decay,
        },
    )


def config() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_spec(),
        hf_assets_path="assets/llama3",
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=ROWS)),
        # Decay on matrices alone.
        optimizer=OptimizersContainer.Config(
            param_groups=[adamw(r".*norm.*|.*bias$", 0.0), adamw(r".*", 0.1)]
        ),
        lr_scheduler=LRSchedulersContainer.Config(
            warmup_steps=1000,
            decay_type="cosine",
            min_lr_factor=0.1,
        ),
        training=TrainingConfig(
            local_batch_size=1,
            global_batch_size=32,
            seq_len=8192,
            max_norm=1.0,
            steps=381470,
            dtype="float32",
            mixed_precision_param="bfloat16",
            mixed_precision_reduce="float32",
            enable_cpu_offload=False,
            disable_cuda_graphs=False,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=2,
            data_parallel_shard_degree=16,
            fsdp_reshard_after_forward="always",
            tensor_parallel_degree=2,
            enable_sequence_parallel=True,
            pipeline_parallel_degree=1,
            context_parallel_degree=1,
            expert_parallel_degree=1,
        ),
        checkpoint=CheckpointManager.Config(
            enable=True,
            folder="checkpoints",
            interval=500,
            keep_latest_k=3,
            async_mode="disabled",
            last_save_model_only=False,
        ),
        metrics=MetricsProcessor.Config(
            log_freq=1,
            enable_tensorboard=False,
        ),
        compile=CompileConfig(
            enable=False,
        ),
        debug=DebugConfig(
            seed=1234,
        ),
        dataloader=HuggingFaceTextDataLoader.Config(
            dataset="c4_test",
            dataset_path="data/text",
            infinite=True,
        ),
        activation_checkpoint=FullAC.Config(),
    )
