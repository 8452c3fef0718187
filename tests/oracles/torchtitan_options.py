"""Prints the settings of torchtitan by section, a section a line: compiler/backends/torchtitan/.

`{"training": ["local_batch_size", …], …}` of every section of `Trainer.Config` whose fields a file
may set in the `options` of the target.
"""

import dataclasses
import json

import absent  # noqa: F401
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.config import CommConfig, CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.config.configs import DebugConfig

SECTIONS = {
    "training": TrainingConfig,
    "parallelism": ParallelismConfig,
    "compile": CompileConfig,
    "comm": CommConfig,
    "debug": DebugConfig,
    "metrics": MetricsProcessor.Config,
    "checkpoint": CheckpointManager.Config,
}
lines = []
for name, section in SECTIONS.items():
    fields = sorted(field.name for field in dataclasses.fields(section) if field.init)
    lines.append(f" {json.dumps(name)}: {json.dumps(fields)}")
print("{\n" + ",\n".join(lines) + "\n}")
