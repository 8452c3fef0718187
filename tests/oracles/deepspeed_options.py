"""Prints the keys of a DeepSpeed configuration by section, as its own code reads them.

Sections that are pydantic models have the names of their fields; of the others, and of the top
level, a dictionary that remembers what it was asked for. `""` is the top level.
"""

import json
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_LOG_LEVEL", "error")

from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.compile.config import CompileConfig
from deepspeed.monitor.config import CSVConfig, TensorBoardConfig, WandbConfig
from deepspeed.runtime.config import _REMOVED_TOP_LEVEL_CONFIG_KEYS, DeepSpeedConfig
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.offload_config import (
    DeepSpeedZeroOffloadOptimizerConfig,
    DeepSpeedZeroOffloadParamConfig,
)

MODELS = {
    "bf16": DeepSpeedBF16Config,
    "fp16": DeepSpeedFP16Config,
    "zero_optimization": DeepSpeedZeroConfig,
    "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
    "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
    "tensor_parallel": TPTrainingConfig,
    "tensorboard": TensorBoardConfig,
    "wandb": WandbConfig,
    "csv_monitor": CSVConfig,
    "comms_logger": CommsLoggerConfig,
    "compile": CompileConfig,
}
ASKED = ("data_types", "checkpoint", "activation_checkpointing", "flops_profiler", "aio")
PIPELINE = ("use_reentrant",)


class Remembers(dict):
    """A dictionary that knows which keys it was asked for."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asked = {}

    def get(self, key, default=None):
        self.asked[key] = None
        return super().get(key, default)

    def __contains__(self, key):
        self.asked[key] = None
        return super().__contains__(key)

    def __copy__(self):
        return self

    def keys(self):
        return self


def names(model):
    """Fields by the names that a file has for them; those that are gone are left out."""
    for name, field in model.model_fields.items():
        if not (field.json_schema_extra or {}).get("deprecated"):
            yield field.alias or name


def main():
    top = Remembers({"train_batch_size": 1, "optimizer": Remembers({"type": "AdamW"})})
    asked = {section: Remembers() for section in ASKED}
    top.update(asked)
    config = DeepSpeedConfig(top)
    found = {"": sorted((set(top.asked) | set(top)) - set(_REMOVED_TOP_LEVEL_CONFIG_KEYS))}
    found |= {section: sorted(names(model)) for section, model in MODELS.items()}
    found |= {section: sorted(asked[section].asked) for section in ASKED}
    found["pipeline"] = sorted({*config.pipeline, *PIPELINE})
    lines = (f" {json.dumps(name)}: {json.dumps(keys)}" for name, keys in sorted(found.items()))
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


main()
