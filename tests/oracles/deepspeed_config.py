"""Asks DeepSpeed whether it takes a configuration, and how it lays out the ranks of a pipeline.

Reads `{"file": "ds_config.json", "world": 64, "dp": 16, "axes": ["pipe", "data"], "dims": [4, 16],
"layers": [0, 1, 1, 0]}` a line, where `axes`, `dims` and the weight of each layer of the pipeline
are left out without one. Answers `{"accepted": true, "derived": {…}, "groups": {"pipe": …},
"parts": [0, 2, 4]}` or `{"accepted": false, "why": "…"}`.
"""

import json
import os
import sys

os.environ |= {"DS_ACCELERATOR": "cpu", "DS_LOG_LEVEL": "error"}

import deepspeed.runtime.config
from deepspeed.runtime.pipe.topology import ProcessTopology
from deepspeed.runtime.utils import partition_balanced


class Ranks:
    """What a configuration asks of the ranks."""

    def __init__(self, dp):
        self.dp = dp

    def get_data_parallel_world_size(self):
        return self.dp


def device_of(offload):
    """Where something goes; None where it stays."""
    return None if offload is None else str(getattr(offload.device, "value", offload.device))


def ask(question):
    # Without ranks it would take the world for one.
    deepspeed.runtime.config.dist.get_rank = lambda: 0
    deepspeed.runtime.config.dist.get_world_size = lambda: question["world"]
    config = deepspeed.runtime.config.DeepSpeedConfig(question["file"], mpu=Ranks(question["dp"]))
    zero = config.zero_config
    derived = {
        "world": config.world_size,
        "batch": config.train_batch_size,
        "micro_batch": config.train_micro_batch_size_per_gpu,
        "microbatches": config.gradient_accumulation_steps,
        "clip": config.gradient_clipping,
        "zero": int(config.zero_optimization_stage),
        "overlap": zero.overlap_comm,
        "bf16": config.bfloat16_config.enabled,
        "fp16": config.float16_config.enabled,
        "sums": config.grad_accum_dtype,
        "sent": str(config.communication_data_type),
        "optimizer": [config.optimizer_name, config.optimizer_params],
        "every": config.steps_per_print,
        "offload_optimizer": device_of(zero.offload_optimizer),
        "offload_param": device_of(zero.offload_param),
        "pipeline": config.pipeline,
        "tensorboard": config.monitor_config.tensorboard.enabled,
    }
    found = {"accepted": True, "derived": derived}
    if "axes" in question:
        grid = ProcessTopology(axes=question["axes"], dims=question["dims"])
        found["groups"] = {axis: grid.get_axis_comm_lists(axis) for axis in question["axes"]}
        stages = grid.get_dim("pipe")
        parts = partition_balanced(weights=question["layers"], num_parts=stages)
        found["parts"] = [int(bound) for bound in parts]
    return found


for line in sys.stdin:
    try:
        answer = ask(json.loads(line))
    except Exception as error:
        answer = {"accepted": False, "why": f"{type(error).__name__}: {error}"[:800]}
    print(json.dumps(answer), flush=True)
