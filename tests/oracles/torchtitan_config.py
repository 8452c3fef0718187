"""Asks torchtitan whether it takes a configuration: its manager, its meshes, its model.

Reads `{"folder": "…", "world": 64, "groups": true}` a line, where the folder has parlay_config.py,
and answers `{"accepted": true, "degrees": {…}, "parameters": 8030261248, "mesh": {"tp": …}}` or
`{"accepted": false, "why": "…"}`.
"""

import contextlib
import io
import json
import logging
import sys

import absent  # noqa: F401
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

# Attention is compiled where its module is read: nothing is run here, so nothing is compiled.
torch.compile = lambda function=None, **_: function or (lambda inner: inner)

import tyro._docstrings  # noqa: E402
from torchtitan.config.manager import ConfigManager  # noqa: E402
from torchtitan.distributed.parallel_dims import ParallelDims  # noqa: E402

# Help that nobody reads, looked up in the sources of every class for every question.
tyro._docstrings.get_field_docstring = lambda *_, **__: None

DEGREES = ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep", "world_size")
MESHES = ("pp", "dp_replicate", "fsdp", "dp_shard", "cp", "tp", "ep", "efsdp")


def ask(folder, world, groups=False):
    sys.path.insert(0, folder)
    try:
        sys.modules.pop("parlay_config", None)
        config = ConfigManager().parse_args(["--module", "parlay_config", "--config", "config"])
    finally:
        sys.path.remove(folder)
    dims = ParallelDims.from_config(config.parallelism, world)
    model = config.model_spec.model
    model.update_from_config(config=config)
    with torch.device("meta"):
        built = model.build()
    names = [name for name, _ in built.named_children()]
    found = {
        "accepted": True,
        "degrees": {name: getattr(dims, name) for name in DEGREES},
        # A correction bias of the router is a buffer there.
        "parameters": sum(each.numel() for each in built.parameters())
        + sum(each.numel() for name, each in built.named_buffers() if "expert_bias" in name),
        "children": names,
    }
    return {**found, "mesh": meshes(dims, world)} if groups else found


def meshes(dims, world):
    """The ranks of each mesh that rank 0 and the last rank belong to."""
    found = {}
    for rank in (0, world - 1):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        try:
            dims._single_axis_meshes.clear()
            dims._multi_axis_meshes.clear()
            dims.build_mesh()
            for name in MESHES:
                try:
                    mesh = dims.get_optional_mesh(name)
                except (KeyError, ValueError, AttributeError):
                    continue
                if mesh is not None:
                    found.setdefault(name, []).append(sorted(mesh.mesh.flatten().tolist()))
        finally:
            dist.destroy_process_group()
    return found


logging.disable(logging.CRITICAL)
for line in sys.stdin:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            answer = ask(**json.loads(line))
    except BaseException as why:
        if isinstance(why, KeyboardInterrupt):
            raise
        tail = said.getvalue().strip().splitlines()[-3:]
        answer = {"accepted": False, "why": f"{type(why).__name__}: {why}"[:500], "said": tail}
    print(json.dumps(answer), flush=True)
