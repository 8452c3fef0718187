"""Prints the process groups that Megatron-Core builds, of all ranks, from one process.

Reads `{"world": 64, "tp": 8, "pp": 4, "cp": 1, "ep": 1, "etp": 1, "order": "tp-cp-ep-dp-pp"}` a
line and answers `{"groups": {"TENSOR_MODEL_PARALLEL_GROUP": [[0, 1, …], …], …}}` or
`{"rejected": "…"}`.
"""

import collections
import json
import sys

import absent  # noqa: F401
import torch.distributed as dist
from megatron.core import parallel_state
from torch.testing._internal.distributed.fake_pg import FakeStore


def groups(world, tp, pp, cp, ep, etp, order):
    made = collections.defaultdict(list)
    create = parallel_state.create_group

    def recorded(ranks=None, *args, group_desc=None, **kwargs):
        made[group_desc].append(list(ranks))
        return create(ranks, *args, group_desc=group_desc, **kwargs)

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    parallel_state.create_group = recorded
    try:
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=tp,
            pipeline_model_parallel_size=pp,
            context_parallel_size=cp,
            expert_model_parallel_size=ep,
            expert_tensor_parallel_size=etp,
            order=order,
            create_gloo_process_groups=False,
        )
        return {"groups": made}
    except (AssertionError, RuntimeError) as why:
        return {"rejected": str(why)}
    finally:
        parallel_state.create_group = create
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


for line in sys.stdin:
    print(json.dumps(groups(**json.loads(line))), flush=True)
