"""What surrounds training, and the whole job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parlay.compiler.spec.blocks.cluster import Cluster
from parlay.compiler.spec.blocks.model import Model
from parlay.compiler.spec.blocks.parallel import Parallel
from parlay.compiler.spec.blocks.train import Train
from parlay.compiler.spec.schema import (
    SWITCH,
    FieldSchema,
    Free,
    block,
    choice,
    count,
    data,
    declare,
    share,
    switch,
    text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What is trained on."""

    path: str | None = text(
        "path", "File or prefix; absent is the English that Python carries.", None
    )
    format: str = choice(
        "format", ("text", "tokens", "megatron"), "How the file is laid out.", "text"
    )
    tokenizer: str | None = text("tokenizer", "Tokenizer: a file, or a folder with one.", None)
    validation: float = share("validation", "Share held out.", 0.0)
    shuffle: bool = switch("shuffle", "Samples in a random order.", True)
    packing: bool = switch("packing", "Documents packed into sequences.", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """When and where training is saved."""

    path: str | None = text("path", "Folder.", None)
    every: int | None = count("every", "Steps between saves.", None)
    keep: int | None = count("keep", "Saves kept; absent keeps all.", None)
    asynchronous: bool = declare(
        FieldSchema("async", "asynchronous", (SWITCH,), False, "Saved beside training.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What is reported."""

    every: int = count("every", "Steps between lines.", 1)
    tensorboard: bool = switch("tensorboard", "TensorBoard files.", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much of a GPU's memory may be planned."""

    memory: float = share("memory", "Share of the GPU's memory.", 1.0)
    reserve_bytes: int = data(
        "reserve", "Of that share, for context, communicator buffers and fragmentation.", 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One back end's version, and settings that only it has."""

    version: str | None = text("version", "Version of the back end.", None)
    options: Any = declare(
        FieldSchema("options", "options", (Free(),), None, "Settings written through.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One phase of a job, resolved."""

    model: Model | None = block("model", Model, "The shape of the transformer.", preset="model")
    cluster: Cluster | None = block("cluster", Cluster, "The machines.", preset="cluster")
    parallel: Parallel = block("parallel", Parallel, "How the work is cut.")
    train: Train | None = block("train", Train, "The recipe.")
    data: Data = block("data", Data, "What is trained on.")
    checkpoint: Checkpoint = block("checkpoint", Checkpoint, "When and where training is saved.")
    log: Log = block("log", Log, "What is reported.")
    budget: Budget = block("budget", Budget, "How much of a GPU's memory may be planned.")
