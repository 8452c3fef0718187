"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "B330": (
        "target torchtitan cannot express a field",
        """
What: the layout may be right, but torchtitan has no setting for what a field asks for.
Why: a setting that is dropped in silence trains another model than the file describes. The help
names the values that can be expressed.
Example:
    model from "llama3-8b" { activation = geglu }
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
""",
    ),
    "B331": (
        "a version of torchtitan that is not known",
        """
What: `version` of the block `target "torchtitan"` names no version whose settings are known.
Why: names of settings change between versions; those of another one may not be accepted.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
    target "torchtitan" { version = "9.0" }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
    target "torchtitan" { version = "0.3" }
""",
    ),
    "B332": (
        "a setting that torchtitan does not have",
        """
What: a name in the `options` of the target is in no section of its configuration, or in several.
Why: the configuration is Python: a name without a place cannot be written at all.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
    target "torchtitan" { options { gc_frequency = 10 } }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
    target "torchtitan" { options { gc_freq = 10 } }
""",
    ),
    "B333": (
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
    data { path = "text", format = text, tokenizer = "assets" }
    target "torchtitan" { options { log_freq = 10 } }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { tp = 8 }
    train { seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 10 }
    data { path = "text", format = text, tokenizer = "assets" }
    log { every = 10 }
""",
    ),
}
"""Code -> (title, page)."""
