"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

_CLEAN = """    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 4Ki, micro_batch = 1, global_batch = 64, steps = 10, gradients = bf16,
            recompute = full }
"""


def _page(what: str, example: str, instead: str) -> str:
    return f"\n{what}Example:\n{example}Instead:\n{instead}"


def _with(line: str) -> str:
    return f"{_CLEAN}    {line}\n"


CODES: dict[str, tuple[str, str]] = {
    "B370": (
        "target accelerate cannot express a field",
        _page(
            """What: the layout may be right, but no key of Accelerate's configuration says what a
field asks for.
Why: a setting that is dropped in silence trains another model than the file describes, or does not
fit. Pipelines and experts over ranks have no degree there, and what is sharded how follows from
the engine: FSDP2 for ZeRO 2 and 3, DeepSpeed for ZeRO 1 and for parts on the host.
""",
            _CLEAN.replace("recompute = full", "recompute = full(every = 2)"),
            _CLEAN,
        ),
    ),
    "B371": (
        "a version of Accelerate that is not known",
        _page(
            """What: `version` of the block `target "accelerate"` names none whose keys are known.
Why: an unknown key ends the launch; keys come and go between versions.
""",
            _with('target "accelerate" { version = "0.20" }'),
            _with('target "accelerate" { version = "1.15" }'),
        ),
    ),
    "B372": (
        "a key that Accelerate does not have",
        _page(
            """What: a name in the `options` of the target is no key of Accelerate's configuration.
Why: Accelerate ends with an error at a key that it does not know.
""",
            _with('target "accelerate" { options { main_process_prot = 29501 } }'),
            _with('target "accelerate" { options { main_process_port = 29501 } }'),
        ),
    ),
    "B373": (
        "an option contradicts a field of the file",
        _page(
            """What: an option of the target sets what a field of the file sets otherwise, or
belongs to an engine that the layout does not use.
Why: layout, memory and time are computed from the fields; with another value in the option they
would be those of another run.
""",
            _with('target "accelerate" { options { num_processes = 16 } }'),
            _CLEAN,
        ),
    ),
    "B374": (
        "a setting that Accelerate does not apply",
        _page(
            """What: an engine does otherwise by default than a field says, and no key of the
configuration changes it: gradients summed in fp32 beside bf16 weights, traffic beside computation.
Why: the run is nearly, not wholly, the one that the file describes; whoever compares them should
know. A script can set it.
""",
            _CLEAN.replace("gradients = bf16", "gradients = fp32"),
            _CLEAN,
        ),
    ),
    "B375": (
        "what the training script has to carry",
        _page(
            """What: Accelerate's configuration holds machines, sharding and precision; model, data,
optimizer, schedule and lengths stand in the training script.
Why: a script that sets them otherwise trains another model than the file describes, and nobody but
its author can see that. The head of accelerate.yaml lists them with their values.
""",
            _CLEAN,
            """    model from "llama3-8b"
    cluster { node from "dgx-h100" }
    parallel { zero = 3 }
    train { seq = 4Ki, micro_batch = 1, global_batch = 64, steps = 10, recompute = full }
""",
        ),
    ),
}
"""Code -> (title, page)."""
