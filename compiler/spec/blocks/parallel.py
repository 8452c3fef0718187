"""How the work is cut."""

from __future__ import annotations

from dataclasses import dataclass

from parlay.compiler.spec.schema import (
    WHOLE,
    WHOLE_0,
    Case,
    Choice,
    Derived,
    ListOf,
    Setting,
    count,
    either,
    listing,
    option,
    switch,
    variant,
)

AXES = ("tp", "cp", "ep", "dp", "pp")

SCHEDULES = (
    Case("gpipe", doc="All forwards, then all backwards."),
    Case("one_f_one_b", doc="One forward, one backward (PipeDream-Flush)."),
    Case(
        "interleaved",
        (option("chunks", WHOLE, "Stages that each pipeline rank holds.", 2),),
        doc="1F1B over several chunks a rank (arXiv:2104.04473).",
    ),
    Case("zero_bubble", doc="ZB-H1: weight gradients fill the bubble (arXiv:2401.10241)."),
    Case("zbv", doc="ZB-V: two chunks a rank in a V."),
    Case("dualpipe_v", doc="DualPipe cut in half, two chunks a rank."),
    Case("dualpipe", doc="DeepSeek-V3's, with two copies of the parameters."),
)

OFFLOADED = ("optimizer", "params")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How the work is cut."""

    tp: int = count("tp", "Ranks that share each matrix.", 1, open=True)
    sequence_parallel: bool = switch(
        "sequence_parallel",
        "Norms and residual stream cut along the sequence over tp.",
        Derived("on where tp > 1", ("parallel.tp",), lambda tp: tp > 1),
    )
    pp: int = count("pp", "Pipeline ranks.", 1, open=True)
    schedule: Setting = variant(
        "schedule",
        SCHEDULES,
        "The order of forwards and backwards over the pipeline.",
        Setting("one_f_one_b"),
        open=True,
    )
    stages: tuple[int, ...] | str | None = either(
        "stages",
        (ListOf(WHOLE_0),),
        "Layers of each execution step of the pipeline (stage 0 chunk 0 on rank 0, …); `auto` "
        "balances by FLOPs; unset is an equal split.",
        None,
        open=True,
    )
    cp: int = count("cp", "Ranks that share each sequence.", 1, open=True)
    cp_method: Setting = variant(
        "cp_method",
        (
            Case("ring", doc="Keys and values go round."),
            Case("allgather", doc="Keys and values are gathered."),
            Case("ulysses", doc="All-to-all from sequence to heads."),
            Case(
                "ulysses_ring",
                (
                    option("inner", WHOLE, "Ranks of the all-to-all."),
                    option("outer", WHOLE, "Ranks of the ring."),
                ),
                doc="All-to-all inside, ring outside.",
            ),
        ),
        "How attention sees the whole sequence under cp.",
        Setting("ring"),
        open=True,
    )
    ep: int = count("ep", "Ranks that the experts are dealt over.", 1, open=True)
    etp: int = count("etp", "Ranks that share each expert's matrices.", 1, open=True)
    dp: int = count(
        "dp",
        "Replicas that share the global batch.",
        Derived(
            "cluster.gpus / (tp · cp · pp)",
            ("cluster.gpus", "parallel.tp", "parallel.cp", "parallel.pp"),
            lambda gpus, tp, cp, pp: gpus // (tp * cp * pp) if gpus % (tp * cp * pp) == 0 else None,
        ),
        open=True,
    )
    zero: int = count("zero", "ZeRO stage, 0 to 3.", 0, minimum=0, open=True)
    shard: int = count(
        "shard",
        "Ranks of dp·cp that share one copy of the training state (HSDP).",
        Derived("dp · cp", ("parallel.dp", "parallel.cp"), lambda dp, cp: dp * cp),
        open=True,
    )
    order: tuple[str, ...] = listing(
        "order",
        Choice(AXES),
        "The axes, fastest-varying first; axes of size 1 may be left out.",
        ("tp", "cp", "dp", "pp"),
        open=True,
    )
    offload: Setting = variant(
        "offload",
        (
            Case("none"),
            Case("cpu", flags=OFFLOADED, doc="To host memory."),
            Case("nvme", flags=OFFLOADED, doc="To local disks."),
        ),
        "What of the training state leaves the GPU.",
        Setting("none"),
    )
    overlap: bool = switch("overlap", "Gradient and parameter traffic beside computation.", True)
    vocab_multiple: int = count(
        "vocab_multiple", "The embedding is padded to a multiple of this times tp.", 1
    )
