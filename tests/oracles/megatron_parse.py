"""Asks Megatron-LM's own `parse_args` and `validate_args` whether it takes argument lists.

Reads one JSON object a line, `{"world": 64, "arguments": ["--num-layers", "4", …]}`, with `queue`
the value of CUDA_DEVICE_MAX_CONNECTIONS and `capability` that of the GPU (`"9.0"`), and
answers a line each: `{"accepted": true, "derived": {…}}` or `{"accepted": false, "why": "…"}`.
"""

import contextlib
import io
import json
import os
import sys
import warnings

import megatron_env

DERIVED = (
    "data_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_tensor_parallel_size",
    "ffn_hidden_size",
    "num_query_groups",
    "global_batch_size",
    "sequence_parallel",
    "use_distributed_optimizer",
    "kv_channels",
)


def ask(world, arguments, queue, capability):
    from megatron.training.arguments import (
        core_transformer_config_from_args,
        parse_args,
        validate_args,
    )

    megatron_env.with_transformer_engine()
    megatron_env.Gpu.major, megatron_env.Gpu.minor = map(int, (capability or "9.0").split("."))
    os.environ["WORLD_SIZE"] = str(world)
    if queue is None:
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    else:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = queue
    sys.argv = ["pretrain_gpt.py", *arguments]
    args = parse_args()
    validate_args(args, {})
    args.apply_rope_fusion = False  # a kernel of Transformer Engine, which no CPU has
    config = core_transformer_config_from_args(args)
    derived = {name: getattr(args, name, None) for name in DERIVED}
    return {**derived, "layers": config.num_layers, "experts": config.num_moe_experts}


warnings.simplefilter("ignore")
for line in sys.stdin:
    asked = json.loads(line)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            machine = asked.get("queue"), asked.get("capability")
            found = ask(asked["world"], asked["arguments"], *machine)
        answer = {"accepted": True, "derived": found}
    except BaseException as why:
        if isinstance(why, KeyboardInterrupt):
            raise
        tail = said.getvalue().strip().splitlines()[-1:] if isinstance(why, SystemExit) else []
        answer = {"accepted": False, "why": f"{type(why).__name__}: {why}"[:500], "said": tail}
    print(json.dumps(answer, default=str), flush=True)
