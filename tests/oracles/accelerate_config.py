"""Whether Accelerate's own launch takes a configuration: a line of JSON in, a line out.

Asked: {"text": accelerate.yaml}. Answer: {"accepted": …, "why": …, "environment": {…}, "total": …}.
A configuration is loaded, validated as `accelerate launch` does, turned into the environment of
the ranks, and the plugins are built from that environment as a rank would. {"keys": true} is
answered by all keys that a configuration may have.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 8

from accelerate.commands import launch  # noqa: E402
from accelerate.commands.config.config_args import (  # noqa: E402
    ClusterConfig,
    load_config_from_file,
)
from accelerate.parallelism_config import ParallelismConfig  # noqa: E402
from accelerate.utils import FullyShardedDataParallelPlugin  # noqa: E402
from accelerate.utils.launch import (  # noqa: E402
    prepare_deepspeed_cmd_env,
    prepare_multi_gpu_env,
)

OURS = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")


def keys():
    """Keys of the top, and options of the launcher, which name those of the sections."""
    options = [
        option
        for action in launch.launch_command_parser()._actions
        for option in action.option_strings
    ]
    return {
        "top": sorted(ClusterConfig.__dataclass_fields__),
        "options": sorted(option[2:] for option in options if option.startswith("--")),
    }


def asked(text):
    for name in [name for name in os.environ if name.startswith(OURS)]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accelerate.yaml"
        path.write_text(text)
        load_config_from_file(str(path))
        words = ["--config_file", str(path), "train.py"]
        arguments = launch.launch_command_parser().parse_args(words)
        arguments, defaults, _ = launch._validate_launch_command(arguments)
    # No rendezvous is held here.
    arguments.main_process_port = 0
    arguments.main_process_ip = "127.0.0.1"
    if arguments.use_deepspeed:
        named = sorted(defaults.deepspeed_config)
        arguments.deepspeed_fields_from_accelerate_config = ",".join(named)
        environment = prepare_deepspeed_cmd_env(arguments)[1]
    else:
        environment = prepare_multi_gpu_env(arguments)
    ours = {name: value for name, value in environment.items() if name.startswith(OURS)}
    os.environ.update(ours)
    answer = {"environment": ours, "processes": int(arguments.num_processes)}
    if ours.get("ACCELERATE_USE_FSDP") == "true":
        plugin = FullyShardedDataParallelPlugin()
        answer["fsdp"] = {
            "version": plugin.fsdp_version,
            "reshard": plugin.reshard_after_forward,
            "offload": type(plugin.cpu_offload).__name__,
            "again": plugin.activation_checkpointing,
        }
    if "PARALLELISM_CONFIG_DP_SHARD_SIZE" in ours:
        config = ParallelismConfig()
        answer["total"] = config.total_size
        answer["mesh"] = [list(part) for part in config._get_mesh()]
    return answer


for line in sys.stdin:
    question = json.loads(line)
    if "keys" in question:
        print(json.dumps(keys()), flush=True)
        continue
    try:
        answer = {"accepted": True, "why": "", **asked(question["text"])}
    except (Exception, SystemExit) as why:
        answer = {"accepted": False, "why": f"{type(why).__name__}: {why}"[:1000]}
    print(json.dumps(answer), flush=True)
