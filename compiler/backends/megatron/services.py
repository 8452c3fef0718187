"""Data, saves, log and machines as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parlay.compiler.backends.megatron.argument import (
    Piece,
    chosen,
    field,
    given,
    not_applied,
    refused,
    text,
)
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase

SOURCES = (
    "mock_data",
    "data_path",
    "data_args_path",
    "train_data_path",
    "per_split_data_args_path",
)
"""Options that name what is trained on, in place of `data.path`."""


def data(phase: Phase, spec: Spec, options: Mapping[str, Any]) -> Iterator[Piece]:
    """What is trained on."""
    data = spec.data
    if data.path is not None:
        if data.format != "megatron":
            yield refused(
                phase,
                "data.format",
                field(phase, "data.format"),
                help=["`format = megatron`: the indexed files that its preprocess_data.py writes"],
            )
        yield given("--data-path", data.path, path="data.path")
    elif not any(name in options for name in SOURCES):
        yield refused(
            phase,
            "data.path",
            "training without data",
            words="no `path`",
            help=[
                '`data { path = "…", format = megatron }`',
                '`target "megatron" { options { mock_data = on } }` trains on invented tokens',
            ],
        )
    share = data.validation * 100
    yield chosen("--split", f"{text(100 - share)},{text(share)},0", path="data.validation")
    if not data.validation:
        yield chosen("--eval-iters", 0, path="data.validation")
    if not data.shuffle:
        yield refused(phase, "data.shuffle", "samples in the order of the file")
    if not data.packing:
        yield refused(phase, "data.packing", "a document a sequence")


def checkpoint(phase: Phase, spec: Spec) -> Iterator[Piece]:
    """When and where training is saved; it goes on from what is there."""
    checkpoint = spec.checkpoint
    if checkpoint.path is not None:
        yield given("--save", checkpoint.path, path="checkpoint.path")
        yield chosen("--load", checkpoint.path, path="checkpoint.path")
        if checkpoint.every is None:
            words = "a folder, and no number of steps between saves"
            yield refused(phase, "checkpoint.every", "saves without `every`", words=words)
    elif checkpoint.every is not None or checkpoint.asynchronous:
        yield refused(phase, "checkpoint.path", "saves without `path`", words="no folder")
    if checkpoint.every is not None:
        yield given("--save-interval", checkpoint.every, path="checkpoint.every")
    if checkpoint.asynchronous:
        yield given("--async-save", path="checkpoint.async")
        yield chosen("--use-persistent-ckpt-worker", path="checkpoint.async")
    kind = "fsdp_dtensor" if spec.parallel.zero >= 2 else "torch_dist"
    yield chosen("--ckpt-format", kind)
    if checkpoint.keep is not None:
        yield not_applied(
            phase,
            "checkpoint.keep",
            "Megatron-LM keeps every save",
            words="not applied",
            help="older folders `iter_*` may be removed by whoever watches the disk",
        )


def log(spec: Spec) -> Iterator[Piece]:
    """What is reported."""
    yield given("--log-interval", spec.log.every, path="log.every")
    yield chosen("--log-throughput")
    if spec.log.tensorboard:
        yield chosen("--tensorboard-dir", "tensorboard", path="log.tensorboard")


def machines(phase: Phase, spec: Spec) -> Iterator[Piece]:
    """Nothing, but where the machines have no GPUs."""
    cluster = spec.cluster
    assert cluster is not None
    link = cluster.node.link
    if link is not None and link.kind == "shared_memory":
        path = "cluster.node.link.kind"
        yield refused(phase, path, "training on CPUs", words="ranks without a GPU")
    yield chosen("--distributed-backend", "nccl")
    yield chosen("--transformer-impl", "transformer_engine")
