"""Pages: names of blocks, fields and presets, and references."""

PAGES: dict[str, tuple[str, str]] = {
    "T001": (
        "no such block",
        """
What: a block has a keyword that the language does not know.
Why: a block that nothing reads would be dropped in silence, and the job would run without it.
Example:
    paralel { tp = 2 }
Instead:
    parallel { tp = 2 }
""",
    ),
    "T002": (
        "no such field",
        """
What: a block has no field of that name.
Why: a misspelt field would leave its default standing, and nobody would see it before the run.
Example:
    parallel { pipeline = 2 }
Instead:
    parallel { pp = 2 }
""",
    ),
    "T003": (
        "no such preset",
        """
What: the catalog has no model, node or GPU of that name.
Why: names are exact, since `llama3-70b` and `llama2-70b` differ by more than a digit.
`parlay catalog model` lists what is there.
Example:
    model from "lama3-70b"
Instead:
    model from "llama3-70b"
""",
    ),
    "T004": (
        "a block without presets",
        """
What: `from` stands after a block for which the catalog holds nothing.
Why: models, nodes and GPUs are facts and have presets; a layout or a recipe is a choice.
Example:
    parallel from "megatron" { tp = 2 }
Instead:
    parallel { tp = 2 }
""",
    ),
    "T005": (
        "given twice",
        """
What: one file gives a field, block, `let`, option, phase or target twice.
Why: neither of the two may win in silence. A block laid over an imported one, or over the file by
a phase, is another matter: that is what they are for.
Example:
    parallel {
      tp = 2
      tp = 4
    }
Instead:
    parallel {
      tp = 4
    }
""",
    ),
    "T006": (
        "a name that is not taken",
        """
What: a block that stands once in a job has a name.
Why: models, phases and targets are told apart by their names; a second cluster cannot be.
Example:
    cluster big { nodes = 4, node from "dgx-h100" }
Instead:
    cluster { nodes = 4, node from "dgx-h100" }
""",
    ),
    "T007": (
        "a target without a name",
        """
What: `target` stands without the string that names the back end.
Why: the name picks the back end whose version and settings the block holds.
Example:
    target { version = "0.19" }
Instead:
    target "megatron" { version = "0.19" }
""",
    ),
    "T008": (
        "a field where a block belongs, or the reverse",
        """
What: a name of the language is written as a field and is a block, or the other way round.
Why: `gpu { … }` opens a block, `gpus = 8` gives a value; the two are read differently.
Example:
    cluster { node from "dgx-h100", fabric = infiniband }
Instead:
    cluster { node from "dgx-h100", fabric { kind = infiniband } }
""",
    ),
    "T009": (
        "fields are missing",
        """
What: a block lacks fields that have no default.
Why: the size of a model or a batch cannot be guessed. A preset gives them: `model from "…"`.
Example:
    train { seq = 8Ki, micro_batch = 1 }
Instead:
    train { seq = 8Ki, micro_batch = 1, global_batch = 64 }
""",
    ),
    "T010": (
        "a block is missing",
        """
What: a block lacks another one inside it that has no default.
Why: without a node nothing is known of the GPUs, and without a GPU nothing of its memory.
Example:
    cluster { nodes = 4 }
Instead:
    cluster { nodes = 4, node from "dgx-h100" }
""",
    ),
    "T011": (
        "no such name in an expression",
        """
What: an expression refers to a name that is neither a `let` nor a path of a field.
Why: paths start at the block: `model.layers`, `cluster.gpus`, `gpu.memory`.
Example:
    let stages = 4
    parallel { pp = stage }
Instead:
    let stages = 4
    parallel { pp = stages }
""",
    ),
    "T012": (
        "a reference to what has no number",
        """
What: an expression refers to a field that is absent, or that holds no number.
Why: nothing can be computed from it, and a silent 0 would be wrong.
Example:
    model from "llama3-8b"
    train { seq = 8Ki, micro_batch = 1, global_batch = model.activation }
Instead:
    model from "llama3-8b"
    train { seq = 8Ki, micro_batch = 1, global_batch = model.layers }
""",
    ),
    "T013": (
        "definitions go round",
        """
What: a value depends on itself, over any number of others. The ring is in the note.
Why: no order exists in which the values could be computed.
Example:
    let a = b + 1
    let b = a - 1
Instead:
    let a = 2
    let b = a - 1
""",
    ),
    "T014": (
        "definitions lean on each other too deep",
        """
What: a value needs a value that needs another, more than 100 deep.
Why: a job has no use for such a chain; it was most often written by a program that went wrong.
Example:
    let a0 = 1
    let a1 = a0 + 1
    # … and so on, to a101
Instead:
    let a0 = 1
    let a101 = a0 + 101
""",
    ),
    "T015": (
        "a file that gives no model",
        """
What: `model from "….json"` names a file that is missing, outside the project, or no Hugging Face
`config.json` of a known family.
Why: a shape is read whole or not at all; a field guessed wrong would train another model.
Example:
    model from "config.json"
Instead:
    model from "llama3-8b"
""",
    ),
    "T016": (
        "a file that gives no calibration",
        """
What: `calibration from "…"` names a file that is missing, outside the project, or none that
`parlay calibrate -o` wrote: cut short, of another version, or with a figure that is no number,
negative or beyond anything that exists.
Why: figures are read whole or not at all; a step priced by half of a measurement would look like
one that was measured.
Example:
    model from "llama3-8b"
    parallel { zero = 1 }
    cluster { nodes = 1, node from "dgx-h100", calibration from "measured.json" }
Instead:
    model from "llama3-8b"
    parallel { zero = 1 }
    cluster {
      nodes = 1
      node from "dgx-h100"
      calibration { copy = 2.9TB/s }
    }
""",
    ),
    "T017": (
        "a target that is no back end",
        """
What: `target "…"` names none of the back ends.
Why: its version and settings would go nowhere, in silence.
Example:
    model from "llama3-8b"
    target "megatrn" { version = "0.19" }
Instead:
    model from "llama3-8b"
    target "megatron" { version = "0.19" }
""",
    ),
}
