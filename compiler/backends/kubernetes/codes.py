"""The pages of this back end's codes; imported by `parlay explain` alone."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "B351": (
        "a version of Kubeflow Trainer that is not known",
        """
What: `version` of the block `target "kubernetes"` names no version whose objects are known.
Why: 2.2 replaced the fields by which a job changes the pods of its runtime; an older one refuses
them.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "kubernetes" { version = "2.1", options { image = "registry.example/parlay:1" } }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "kubernetes" { version = "2.2", options { image = "registry.example/parlay:1" } }
""",
    ),
    "B352": (
        "an option that the target kubernetes does not have",
        """
What: a name in the `options` of the target is none of those that it reads.
Why: an option that is dropped in silence starts another job than the file describes.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "kubernetes" { options { images = "registry.example/parlay:1" } }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "kubernetes" { options { image = "registry.example/parlay:1" } }
""",
    ),
    "B353": (
        "a value that Kubernetes does not take",
        """
What: the value of an option cannot stand where Kubernetes has it: a name that is no DNS name, a
quantity that is none, a resource that follows from the file. The same is said of code that is
larger than a ConfigMap.
Why: the API server would refuse the object, or, where it did not, the job would wait for ever.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "kubernetes" { options { image = "registry.example/parlay:1", namespace = "Team A" } }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    target "kubernetes" { options { image = "registry.example/parlay:1", namespace = "team-a" } }
""",
    ),
    "B354": (
        "the cluster has to bring what the file does not name",
        """
What: the job needs an image with the software, a claim that holds data and saves, or devices of
the network, and no option names them.
Why: a file says what is trained and on how many machines; what a cluster calls its volumes and
devices it cannot know. A job without them waits, or fails at its first step.
Example:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    checkpoint { path = "saves", every = 5 }
Instead:
    model from "gpt2-xl" { dropout = 0 }
    cluster { node from "dgx-a100" }
    train { seq = 1Ki, micro_batch = 8, global_batch = 64, steps = 10, lr_schedule = cosine }
    checkpoint { path = "saves", every = 5 }
    target "kubernetes" { options { image = "registry.example/parlay:1", claim = "runs" } }
""",
    ),
}
"""Code -> (title, page)."""
