"""The recipe."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.spec.schema import (
    REAL_0,
    SWITCH,
    WHOLE,
    WHOLE_0,
    Case,
    Choice,
    Derived,
    ListOf,
    Setting,
    Text,
    choice,
    count,
    option,
    real,
    switch,
    text,
    variant,
)

PRECISIONS = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")

ADAM = (
    option("lr", REAL_0, "Peak learning rate."),
    option("betas", ListOf(REAL_0), "Decay of the two moments.", (0.9, 0.95)),
    option("eps", REAL_0, "Epsilon of the update.", 1e-8),
    option("weight_decay", REAL_0, "Decoupled weight decay, on matrices alone.", 0.1),
    option("states", Choice(("fp32", "bf16")), "Dtype of the moments.", "fp32"),
    option("kahan", SWITCH, "Compensated summation of the update.", False),
)
WARMUP = option("warmup", WHOLE_0, "Steps of linear warm-up.", 0)
MIN_LR = option("min_lr", REAL_0, "Learning rate at the end.", 0.0)

RECOMPUTED = ("core_attention", "mlp", "norm", "experts", "activation", "router")


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """The recipe."""

    seq: int = count("seq", "Tokens of one sequence.")
    micro_batch: int = count(
        "micro_batch", "Sequences of one microbatch on one replica.", open=True
    )
    global_batch: int = count("global_batch", "Sequences of one step over all replicas.")
    precision: str = choice("precision", PRECISIONS, "Dtype of the matrix products.", "bf16")
    gradients: str = choice(
        "gradients", ("fp32", "bf16"), "Dtype in which gradients are summed.", "fp32"
    )
    master: str = choice(
        "master",
        ("fp32", "none"),
        "Master copy of the weights.",
        Derived(
            "none for fp32, else fp32",
            ("train.precision",),
            lambda precision: "none" if precision == "fp32" else "fp32",
        ),
    )
    optimizer: Setting = variant(
        "optimizer",
        (
            Case("adamw", ADAM, doc="Adam with decoupled weight decay."),
            Case(
                "sgd",
                (
                    option("lr", REAL_0, "Peak learning rate."),
                    option("momentum", REAL_0, "Momentum.", 0.0),
                    option("weight_decay", REAL_0, "Weight decay.", 0.0),
                ),
                doc="Stochastic gradient descent.",
            ),
        ),
        "The optimizer: `adamw(lr = 3e-4, betas = [0.9, 0.95], weight_decay = 0.1)`.",
        Setting(
            "adamw",
            {
                "lr": 3e-4,
                "betas": (0.9, 0.95),
                "eps": 1e-8,
                "weight_decay": 0.1,
                "states": "fp32",
                "kahan": False,
            },
        ),
    )
    lr_schedule: Setting = variant(
        "lr_schedule",
        (
            Case("constant", (WARMUP,), doc="The peak all along."),
            Case("cosine", (WARMUP, MIN_LR), doc="Half a cosine down to `min_lr`."),
            Case("linear", (WARMUP, MIN_LR), doc="A line down to `min_lr`."),
            Case(
                "wsd",
                (WARMUP, option("decay", WHOLE_0, "Steps of decay at the end.", 0), MIN_LR),
                doc="Warm-up, stable, decay.",
            ),
        ),
        "The learning rate over the steps.",
        Setting("constant", {"warmup": 0}),
    )
    clip: float = real("clip", "Gradients are scaled down to this global norm; 0 is off.", 1.0)
    recompute: Setting = variant(
        "recompute",
        (
            Case("none"),
            Case("selective", flags=RECOMPUTED, doc="Parts of a layer; bare is core attention."),
            Case(
                "full",
                (
                    option("first", WHOLE_0, "Only the first so many layers of a stage.", None),
                    option("every", WHOLE, "Only one layer in so many.", None),
                ),
                doc="Whole layers.",
            ),
        ),
        "What the backward computes again in place of keeping it.",
        Setting("none"),
        open=True,
    )
    attention: str = choice("attention", ("flash", "math"), "Kernel of the attention.", "flash")
    loss: str = choice(
        "loss",
        ("cross_entropy",),
        "Loss over the valid labels of the global batch.",
        "cross_entropy",
    )
    steps: int | None = count("steps", "Steps to train.", None)
    tokens: int | None = count("tokens", "Token budget, in place of `steps`.", None)
    seed: int = count("seed", "Of initial weights and data order.", 1234, minimum=0)
    compile: bool = switch("compile", "`torch.compile` of the layers.", False)
    lora: Setting | None = variant(
        "lora",
        (
            Case(
                "lora",
                (
                    option("rank", WHOLE, "Rank of the adapters."),
                    option("alpha", REAL_0, "Their scale, over the rank.", 16.0),
                    option(
                        "base",
                        Text(),
                        "Save of the whole model under the adapters, or a folder of Hugging Face "
                        "weights; absent is initial weights.",
                        None,
                    ),
                ),
            ),
        ),
        "Low-rank adapters on every projection of attention and MLP, in place of full training: "
        "`lora(rank = 16)`.",
        None,
    )
    weights: str | None = text(
        "weights",
        "Folder of Hugging Face weights (config.json and safetensors) that training starts from; "
        "absent is initial weights. Under adapters `base` names it.",
        None,
    )
    stack: str = text("stack", "Whose software is priced.", "parlay")
