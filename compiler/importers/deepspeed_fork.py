"""Scripts of Megatron-DeepSpeed to `.par`: Megatron-LM's options, and those that the fork adds."""

from __future__ import annotations

from typing import Any, Final

from parlay.compiler.importers import arguments, megatron
from parlay.compiler.importers import deepspeed_config as keys
from parlay.compiler.importers import deepspeed_recipe as recipe
from parlay.compiler.importers.arguments import Arguments
from parlay.compiler.importers.deepspeed_config import Config
from parlay.compiler.importers.deepspeed_files import Job
from parlay.compiler.importers.deepspeed_rest import TARGET, rest, without_options
from parlay.compiler.importers.written import Draft, listing

FLAGS: Final = (
    "--deepspeed",
    "--deepspeed_config",
    "--deepspeed-config",
    "--deepspeed-activation-checkpointing",
    "--embed-layernorm",
    "--checkpoint-activations",
    "--no-pipeline-parallel",
    "--create-moe-param-group",
)
"""Options that Megatron-LM does not have, and that are read here or say nothing of the job."""


def drafted(job: Job, title: str, *, gpus: int | None, node: str) -> Draft:
    """The blocks of a script: sizes and recipe by its options, ZeRO by its configuration."""
    given = arguments.parsed(job.words)
    given.launcher = {name: values[0] for name, values in job.launcher.items() if values}
    given.environment, given.unset = job.environment, job.unset
    stage = given.whole("--zero-stage")
    for name in FLAGS:
        given.has(name)
    ulysses = given.whole("--ds-sequence-parallel-size", 1) or 1
    if ulysses > 1:
        given.values["--context-parallel-size"] = (str(ulysses),)
        given.values["--cp-comm-type"] = ("a2a",)
    told = [*_of_tokens(given), *_experts(given)]
    if given.text("--position-embedding-type") == "alibi":
        given.values["--position-embedding-type"] = ("none",)
        alibi = True
    else:
        alibi = False
    rows, method = given.whole("--pad-vocab-size-to"), given.text("--pp-partition-method")
    draft = megatron.drafted(given, title, gpus, node)
    draft.lost += told
    if alibi:
        draft.set("model.position", "alibi")
    if given.has("--embed-layernorm"):
        draft.set("model.embedding_norm", "on")
    if rows is not None and "--vocab-size" not in given.values:
        draft.set("model.vocab", str(rows))
        draft.assumed = [line for line in draft.assumed if not line.startswith("vocab = ")]
        draft.assumed.append(f"vocab = {rows}: rows of the embedding, padding among them")
    if given.has("--checkpoint-activations"):
        draft.set("train.recompute", "full")
    _stages(draft, method or "type:transformer")
    draft.blocks[TARGET] = {}
    draft.heads[TARGET] = 'target "deepspeed"'
    wanted = {
        name: draft.blocks["train"].get(name) for name in ("precision", "clip", "micro_batch")
    }
    config = Config(job, draft)
    keys.sharding(config, draft)
    if not config.has("zero_optimization.stage") and stage is not None:
        draft.set("parallel.zero", str(min(3, stage)))
    keys.degrees(config)
    pp = int(draft.blocks["parallel"]["pp"])
    if job.config:
        recipe.numbers(config, draft, pp=pp)
    every = config.whole("steps_per_print")
    if every is not None and str(every) != draft.blocks["log"]["every"]:
        draft.lost.append(f"steps_per_print = {every}: the command says --log-interval")
    _against_the_command(config, draft, wanted)
    rest(config, draft)
    draft.lost += job.lost
    return without_options(draft)


def _stages(draft: Draft, method: str) -> None:
    """Layers of each stage, as DeepSpeed deals out what the method names."""
    pp, layers = int(draft.blocks["parallel"]["pp"]), int(draft.blocks["model"]["layers"])
    ends = 1 if "embedding" in method else 0  # the embedding, and the head that is tied to it
    if pp == 1 or (not ends and layers % pp == 0):
        return
    each, over = divmod(layers + 2 * ends, pp)
    counts = [each + (stage < over) for stage in range(pp)]
    counts[0], counts[-1] = counts[0] - ends, counts[-1] - ends
    if over or min(counts) < 1 or "type:" not in method:
        draft.lost.append(f"--pp-partition-method {method}: stages = auto is written")
        draft.set("parallel.stages", "auto")
    else:
        draft.set("parallel.stages", listing(map(str, counts)))


def _against_the_command(config: Config, draft: Draft, wanted: dict[str, Any]) -> None:
    """Sizes of the batch are the command's; where the configuration has others, that is told."""
    if not config.has("gradient_clipping"):
        draft.set("train.clip", str(wanted["clip"]))
    train = draft.blocks["train"]
    micro = config.whole("train_micro_batch_size_per_gpu")
    total = config.whole("train_batch_size")
    config.whole("gradient_accumulation_steps")
    for name, ours, theirs in (
        ("train_micro_batch_size_per_gpu", "micro_batch", micro),
        ("train_batch_size", "global_batch", total),
    ):
        if theirs is not None and str(theirs) != train[ours]:
            draft.lost.append(f"{name} = {theirs}: the command says {train[ours]}")
    if train["precision"] != wanted["precision"]:
        said = f"the command says {wanted['precision']}, the configuration {train['precision']}"
        draft.lost.append(f"precision: {said}")


# ── What the fork counts, and its experts ─────────────────────────────────────


def _of_tokens(given: Arguments) -> list[str]:
    """Puts samples and iterations where tokens are counted; what is told of it."""
    told: list[str] = []
    seq, batch = given.whole("--seq-length"), given.whole("--global-batch-size")
    if not seq:
        return told
    for phase in ("warmup", "decay"):
        tokens = given.whole(f"--lr-{phase}-tokens")
        if tokens is not None and f"--lr-{phase}-samples" not in given.values:
            given.values[f"--lr-{phase}-samples"] = (str(tokens // seq),)
    tokens = given.whole("--train-tokens")
    if tokens is not None and batch:
        steps, written = -(-tokens // (seq * batch)), given.whole("--train-iters")
        if written is None or steps < written:
            given.values["--train-iters"] = (str(steps),)
        if written is not None and steps < written:
            told.append(f"--train-iters {written}: {tokens} tokens are over after {steps}")
    return told


def _experts(given: Arguments) -> list[str]:
    """Puts Megatron-LM's options of experts in place of the fork's; what is told of it.

    Its defaults: experts in every second layer, one for a token, a loss weighing 0.1, a capacity
    of 1, and no cut through an expert.
    """
    counts = given.values.get("--num-experts", ())
    if set(counts) <= {"1"}:
        given.values.pop("--num-experts", None)
        return []
    told: list[str] = []
    interval, layers = given.whole("--expert-interval", 2) or 2, given.whole("--num-layers") or 0
    if interval > 1 and layers % interval == 0:
        pattern = f"([0]*{interval - 1}+[1]*1)*{layers // interval}"
        given.values["--moe-layer-freq"] = (pattern,)
    elif interval > 1:
        told.append(f"--expert-interval {interval}: experts in every layer are written")
    capacity = "0" if given.has("--disable-moe-token-dropping") else "1.0"
    if (kind := given.text("--mlp-type", "standard")) != "standard":
        told.append(f"--mlp-type {kind}: no dense MLP beside the experts is written")
    for ours, theirs, usual in (
        ("--moe-router-topk", "--topk", "1"),
        ("--expert-model-parallel-size", "--moe-expert-parallel-size", "1"),
        ("--moe-aux-loss-coeff", "--moe-loss-coeff", "0.1"),
        ("--moe-expert-capacity-factor", "--moe-train-capacity-factor", capacity),
    ):
        given.values[ours] = (given.text(theirs, usual) or usual,)
    if capacity == "0":
        del given.values["--moe-expert-capacity-factor"]
    if not given.has("--enable-expert-tensor-parallelism"):
        given.values["--expert-tensor-parallel-size"] = ("1",)
    return told
