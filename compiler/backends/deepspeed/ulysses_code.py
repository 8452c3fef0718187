"""model.py where sequences are cut over ranks: Ulysses, DeepSpeed's all-to-all over heads.

A rank has a piece of each sequence; attention alone sees the whole, for a part of the heads.
"""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.backends.render import Code

GROUPS: Final = "from deepspeed.runtime.sequence_parallel import parallel_state_sp as ranks"
IMPORTS: Final = (GROUPS, "from deepspeed.sequence.layer import DistributedAttention")


def context(whole: dict[str, Any]) -> dict[str, Any]:
    """What differs from `whole`, which is what model.py prints of whole sequences."""
    init, forward = whole["attention_init"], whole["attention_forward"]
    across = "self.across = DistributedAttention(attend, ranks.get_sequence_parallel_group(), 2, 1)"
    before = next(at for at, line in enumerate(forward) if line.startswith("y = "))
    return {
        "model_imports": [*map(Code, IMPORTS), *whole["model_imports"]],
        "attention_init": [*init[:-1], Code(across), init[-1]],
        "attention_forward": [
            *forward[:before],
            Code("q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)"),
            Code("y = self.across(q, k, v, batch_dim_idx=0)"),
            Code("return self.o(y.flatten(2))"),
        ],
        "stage_forward": [Code(line) for each in whole["stage_forward"] for line in _pieces(each)],
        "shape": Code("[b, s/cp, h]"),
    }


def _pieces(line: str) -> list[str]:
    """A line of the model's forward, with what it reads of positions cut."""
    if line.startswith("cos, sin = "):
        return [line, "cos, sin = own(cos), own(sin)"]
    if line.startswith("x = x + self.position"):
        return [f"x = x + own({line.removeprefix('x = x + ')})"]
    return [line]
