"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "B340": (
        "target deepspeed cannot express a field",
        """
What: the layout may be right, but DeepSpeed, or the script that is emitted for it, has nothing for
what a field asks for.
Why: a setting that is dropped in silence trains another model than the file describes. The help
names the values that can be expressed.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
""",
    ),
    "B341": (
        "a version of DeepSpeed that is not known",
        """
What: `version` of the block `target "deepspeed"` names no version whose keys are known.
Why: DeepSpeed reads the keys that it knows and passes over the others in silence; names of keys
change between versions.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
    target "deepspeed" { version = "0.3" }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
    target "deepspeed" { version = "0.19" }
""",
    ),
    "B342": (
        "a key that DeepSpeed does not have",
        """
What: a name in the `options` of the target is no key of its configuration, or one of several
sections.
Why: DeepSpeed passes over a key of the top level that it does not know without a word.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
    target "deepspeed" { options { wall_clock_break_down = on } }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
    target "deepspeed" { options { wall_clock_breakdown = on } }
""",
    ),
    "B343": (
        "an option contradicts a field of the file",
        """
What: an option of the target sets what a field of the file sets otherwise.
Why: layout, memory and time are computed from the fields; with another value in the option they
would be those of another run.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
    target "deepspeed" { options { steps_per_print = 10 } }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
    log { every = 10 }
""",
    ),
    "B344": (
        "a setting that DeepSpeed does not apply",
        """
What: a field asks for something that changes no number of training, and that DeepSpeed does not do
in this layout.
Why: what is trained stays the same, but the field has no effect; whoever counts on it should know.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 1, overlap = on }
    train { seq = 2Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 2, overlap = on }
    train { seq = 2Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { path = "data/corpus", format = megatron }
""",
    ),
}
"""Code -> (title, page)."""
