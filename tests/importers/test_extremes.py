"""Numbers that the language has no form for: told or left out, never a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler.importers import deepspeed, hf_job, megatron, torchtitan
from parlay.compiler.importers.hf import Unreadable

EXTREMES = ("1e-45", "1e40", "1e99", "1e999", "nan", "-1", "9" * 40, "0x10", "1_0", "")
COMMAND = (
    "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
    "--seq-length 64 --micro-batch-size 1 --num-experts 4 {} {}\n"
)
OPTIONS = (
    "--lr",
    "--min-lr",
    "--adam-beta1",
    "--adam-eps",
    "--weight-decay",
    "--clip-grad",
    "--norm-epsilon",
    "--init-method-std",
    "--moe-aux-loss-coeff",
    "--moe-expert-capacity-factor",
    "--split",
    "--lr-warmup-fraction",
    "--rotary-percent",
    "--rotary-base",
    "--exit-interval",
    "--hidden-dropout",
)


@pytest.mark.parametrize("option", OPTIONS)
def test_options(tmp_path: Path, option: str) -> None:
    for extreme in EXTREMES:
        path = tmp_path / "run.sh"
        path.write_text(COMMAND.format(option, extreme))
        megatron.read(path)


CONFIG: dict[str, Any] = {
    "train_batch_size": 8,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.9], "eps": 1e-8}},
    "scheduler": {
        "type": "WarmupCosineLR",
        "params": {"warmup_num_steps": 3, "cos_min_ratio": 0.1, "total_num_steps": 9},
    },
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 7},
}


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    plain = json.dumps(CONFIG)
    for old in ("1e-08", "0.0001", "0.1", "1.0", "8", "3", "9", "7"):
        for extreme in ("1e-45", "1e40", "1e999", "NaN", "-1", "9" * 40, "null", "[]", "true"):
            path.write_text(plain.replace(f" {old}", f" {extreme}"))
            deepspeed.read(path)


@pytest.mark.parametrize("extreme", ["1e-45", "1e40", "1e999", "-1.0", "10**9", "None", "[]"])
def test_python(tmp_path: Path, extreme: str) -> None:
    path = tmp_path / "c.py"
    for name in ("lr", "eps", "weight_decay"):
        path.write_text(
            "def config():\n  return Trainer.Config(model_spec=model_registry('70B'),\n"
            f"    optimizer=default_adamw({name}={extreme}),\n"
            f"    lr_scheduler=L.Config(min_lr_factor={extreme}, decay_ratio={extreme}),\n"
            f"    training=T(max_norm={extreme}, seq_len={extreme}))\n"
        )
        torchtitan.read(path)


def test_configs(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    model = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 9}
    model |= {"intermediate_size": 9, "max_position_embeddings": 9, "model_type": "llama"}
    for extreme in ("1e-45", "1e40", "1e999", "NaN", "-1", "true"):
        text = json.dumps({**model, "initializer_range": 0, "rms_norm_eps": 0})
        path.write_text(text.replace(": 0", f": {extreme}"))
        with pytest.raises(Unreadable):
            hf_job.read(path)
