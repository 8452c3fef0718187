"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "B301": (
        "target torch cannot express a field yet",
        """
What: the layout may be right, but the PyTorch back end has no code for what a field asks for.
Why: a setting that is dropped in silence trains another model than the file describes. The help
names the values that can be emitted.
Example:
    model small {
      layers = 4, hidden = 128, heads = 8, ffn = 344, vocab = 256
      rope(theta = 10000)
    }
    cluster { node from "laptop" }
    parallel { tp = 2, pp = 2 }
    train { seq = 128, micro_batch = 1, global_batch = 32, steps = 10, precision = fp32,
            lr_schedule = cosine, compile = on }
Instead:
    model small {
      layers = 4, hidden = 128, heads = 8, ffn = 344, vocab = 256
      rope(theta = 10000)
    }
    cluster { node from "laptop" }
    parallel { tp = 2, pp = 2 }
    train { seq = 128, micro_batch = 1, global_batch = 32, steps = 10, precision = fp32,
            lr_schedule = cosine }
""",
    ),
    "B302": (
        "no data is named",
        """
What: the file says neither a path nor a format of data, and the code trains on the English text
that Python itself carries, read as bytes.
Why: that text is there on every machine, which makes a layout easy to try; a job on a cluster that
trains on it by oversight learns nothing of use. Other targets have no such text and ask for data.
Example:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 4Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
Instead:
    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 4Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
    data { format = text }
""",
    ),
}
"""Code -> (title, page)."""
