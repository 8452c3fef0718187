"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "B361": (
        "an option that the target slurm does not have",
        """
What: a name in the `options` of the target is none of those that it reads, or a version is given.
Why: an option that is dropped in silence queues another job than the file describes. What a site
wants beside these can be given on the command line of sbatch, which wins over the file.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "slurm" { options { partitions = "gpu" } }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "slurm" { options { partition = "gpu" } }
""",
    ),
    "B362": (
        "a value that cannot stand in a batch script",
        """
What: `entry` names none of the targets whose code a job can start, a name has signs that mean
something in a line of #SBATCH, or a time limit is no time of whole minutes.
Why: such lines take no quotes, and sbatch reads a value to the next space.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "slurm" { options { account = "my team", time = 24h } }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "slurm" { options { account = "my-team", time = 24h } }
""",
    ),
    "B363": (
        "a time limit that the signal to save takes up",
        """
What: the job saves, so it asks Slurm for a signal 5 minutes before its `time` is over, and that is
as long as the job itself, or longer.
Why: it would be told to save and end as it starts, queue itself again, and never get on; before
the ranks listen for it the signal ends them.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    checkpoint { path = "saves", every = 5 }
    target "slurm" { options { time = 5min } }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    checkpoint { path = "saves", every = 5 }
    target "slurm" { options { time = 1h } }
""",
    ),
}
"""Code -> (title, page)."""
