"""The pages of what the ledger tells: asserts (family `A`) and speeds that no GPU has.

Imported by nothing that checks a file. Each page has the parts What, Why, Example and Instead.
"""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "A201": (
        "an assert does not hold",
        """
What: an `assert` of the file compares figures of the ledger, fields and lets, and comes out false.
Why: an assert is the file's own promise, such as a peak that leaves room or a bubble below a
share. Both sides are told with the arithmetic behind each figure; asserts are asked once the file
has no other error, for each phase.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    assert memory.peak <= 10% * gpu.memory
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    assert memory.peak <= 90% * gpu.memory
""",
    ),
    "W280": (
        "faster than the GPU",
        """
What: an `assert`, or a speed given to `parlay ledger --at`, needs more floating-point work a second
than the dense peak of `train.precision`: an MFU above 100%.
Why: such a figure has a wrong denominator most of the time. 75% of an FP8 peak over the bf16 peak
reads as 151.7%; a sparse peak reads as half of what was reached.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    assert throughput.mfu >= 151%
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 8 }
    assert throughput.mfu >= 1%
""",
    ),
}
"""Code -> (title, page)."""
