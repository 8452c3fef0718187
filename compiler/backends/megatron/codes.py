"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "B310": (
        "target megatron cannot express a field",
        """
What: the layout may be right, but Megatron-LM has no option for what a field asks for.
Why: a setting that is dropped in silence trains another model than the file describes. The help
names the values that can be expressed.
Example:
    model from "llama3-8b" { activation = geglu }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
""",
    ),
    "B311": (
        "a version of Megatron-LM that is not known",
        """
What: `version` of the block `target "megatron"` names no version whose options are known.
Why: names of options change between versions; those of another one may not be accepted.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    target "megatron" { version = "3.0" }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    target "megatron" { version = "0.19" }
""",
    ),
    "B312": (
        "an option that Megatron-LM does not have",
        """
What: a name in the `options` of the target is not in the option table of its version.
Why: Megatron-LM ends with an error at an option that it does not know. The name is written through
all the same: a fork may have it.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    target "megatron" { options { log_throughputs = on } }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    target "megatron" { options { log_throughput = on } }
""",
    ),
    "B313": (
        "an option contradicts a field of the file",
        """
What: an option of the target sets what a field of the file sets otherwise.
Why: layout, memory and time are computed from the fields; with another value in the option they
would be those of another run.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    target "megatron" { options { rotary_base = 10000 } }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
""",
    ),
    "B314": (
        "a setting that Megatron-LM does not apply",
        """
What: a field asks for something around training that Megatron-LM does not do.
Why: what is trained stays the same, but the field has no effect; whoever counts on it should know.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    checkpoint { path = "checkpoints", every = 100, keep = 3 }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "data/corpus", format = megatron }
    checkpoint { path = "checkpoints", every = 100 }
""",
    ),
}
"""Code -> (title, page)."""
