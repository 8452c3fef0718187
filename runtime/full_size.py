"""The groups of an emitted mesh.py at full size: `python -m parlay.runtime.full_size DIR`.

Before: DIR has mesh.py and the plan.json of the whole job; standard input has a list of ranks.
After: standard output has, for each of them, what mesh.py builds on that rank of a process group
that only pretends to be there: {"RANK": {"GROUP": {"ranks": [int], "rank": int}}}, or a sentence in
place of the groups where it builds none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from math import prod
from pathlib import Path
from typing import Any

import torch.distributed as dist
from parlay.runtime.mesh import Axis
from parlay.runtime.plan import Plan


def groups_on(rank: int, *, mesh: Any, plan: Plan) -> dict[str, Any] | str:
    """What mesh.py builds on `rank`: every group but the world, by name."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = prod(plan.mesh.values())
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        built = vars(mesh.build(plan))
        axes = {name: axis for name, axis in built.items() if isinstance(axis, Axis)}
        # Of the process group itself, whatever the axis says of it.
        return {
            name: {"ranks": dist.get_process_group_ranks(axis.group), "rank": axis.rank}
            for name, axis in axes.items()
            if name != "world"
        }
    except Exception as error:  # an edited file may raise anything
        return f"mesh.py fails: {type(error).__name__}: {error}"
    finally:
        dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m parlay.runtime.full_size")
    parser.add_argument("dir", type=Path)
    folder = parser.parse_args().dir.resolve()
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    mesh, plan = importlib.import_module("mesh"), Plan.load(folder / "plan.json")
    ranks: list[int] = json.load(sys.stdin)
    json.dump({rank: groups_on(rank, mesh=mesh, plan=plan) for rank in ranks}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
