"""A layout at a size that a laptop can prove: the same structure, small numbers.

Only sizes change: what exists, in which order and how it is cut stays, so that the emitted code is
the same text and reads another plan.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from math import lcm, prod
from typing import Final

from parlay.compiler.backends.torch.plan_model import rotary_dim, windowed
from parlay.compiler.backends.torch.refusals_experts import copies_agree
from parlay.compiler.layout import Stage
from parlay.compiler.layout.orders import (
    dense_grid,
    expert_grid,
    pipelines_agree,
    shard_axes,
    shard_parts,
    sharded_expert_grid,
    sharded_grid,
)
from parlay.compiler.layout.stages import steps_of
from parlay.compiler.ledger.communication_context import dealt
from parlay.compiler.spec.blocks import Experts, Mla, Model, Parallel, Spec, Train
from parlay.compiler.spec.schema import Setting
from parlay.runtime.axes import Grid

MOST_RANKS: Final = 8
CLAMP: Final = 0.05
"""What clamps some of the few features of a small model, and not all."""
ORIGINAL: Final = 64
"""Tokens that the positions of a small model were made for before they were stretched."""
WINDOW: Final = 3
"""Tokens of a window that hides some: sequences have eight or more."""
AXES: Final = ("tp", "cp", "dp", "pp")
REPLICATE: Final = {"dp": "dp_replicate", "cp": "cp_replicate"}


def folded(spec: Spec) -> Iterator[dict[str, int]]:
    """Degrees of at most eight ranks in which every pair of axes above 1 meets at least once.

    As they stand where they fit; else each axis is 2, three of them at a time. Where replicas keep
    several copies of the training state, `dp` and `cp` are those of one copy, and `dp_replicate`
    and `cp_replicate` give their number.
    """
    parallel = spec.parallel
    degrees = {axis: getattr(parallel, axis) for axis in AXES}
    if parallel.zero and parallel.shard < parallel.dp * parallel.cp:  # two axes in the place of one
        dense = dense_grid(parallel)
        parts = shard_parts(dense, parallel.shard)
        assert parts is not None, "a check lets no such shard through"
        for axis, part in zip(shard_axes(dense), parts, strict=True):
            degrees |= {axis: part, REPLICATE[axis]: degrees[axis] // part}
    if prod(degrees.values()) <= MOST_RANKS:
        yield degrees | {axis: getattr(parallel, axis) for axis in ("ep", "etp")}
        return
    above = [axis for axis in degrees if degrees[axis] > 1]
    least = dict.fromkeys(above, 2)
    if "cp" in above and 1 < dealt(parallel) < parallel.cp:  # one part deals heads out, one rings
        least["cp"] = 4
    for chosen in combinations(above, min(3 if least.get("cp") != 4 else 2, len(above))):
        small = {axis: least[axis] if axis in chosen else 1 for axis in degrees}
        for shares in _shares(spec, small):
            yield small | shares


def _shares(spec: Spec, small: dict[str, int]) -> Iterator[dict[str, int]]:
    """How experts lie over the ranks of small degrees: each of etp, ep and edp that is above 1 in
    full takes a share, and none that is not; two at a time where there are no ranks for more."""
    parallel = spec.parallel
    assert spec.cluster is not None and spec.model is not None
    if spec.model.experts is None:
        yield {"ep": 1, "etp": 1}
        return
    full = {"ep": parallel.ep, "etp": parallel.etp}
    full["edp"] = spec.cluster.gpus // prod((*full.values(), parallel.pp)) or 1
    above = [axis for axis in full if full[axis] > 1]
    ranks = prod(small.values()) // small["pp"]
    found = []
    for shares in product(*([1, 2, 4, 8] if axis in above else [1] for axis in full)):
        lie = dict(zip(full, shares, strict=True))
        if prod(shares) == ranks and _grids_agree(spec, small | lie):
            found.append(lie)
    most = max((sum(share > 1 for share in one.values()) for one in found), default=0)
    for one in found:
        if sum(share > 1 for share in one.values()) == most:
            yield {axis: one[axis] for axis in ("ep", "etp")}


def _grids_agree(spec: Spec, degrees: dict[str, int]) -> bool:
    """Whether stages are the same ranks for experts and for all else, and copies of the state, of
    which experts are shared in each by some ranks where they are in full."""
    parallel = spec.parallel
    small = replace(
        parallel,
        tp=degrees["tp"],
        cp=degrees["cp"] * degrees.get("cp_replicate", 1),
        dp=degrees["dp"] * degrees.get("dp_replicate", 1),
        pp=degrees["pp"],
        ep=degrees["ep"],
        etp=degrees["etp"],
    )
    world = prod(getattr(small, axis) for axis in AXES)
    experts, dense = expert_grid(small, world=world), dense_grid(small)
    if experts is None or not pipelines_agree(dense, experts):
        return False
    if not any(axis in degrees for axis in REPLICATE.values()):
        return True
    sharded = sharded_grid(dense, degrees["dp"] * degrees["cp"])
    return copies_agree(experts, sharded) and _owners(experts, sharded) == _owners_of(spec)


def _owners(experts: Grid, sharded: Grid) -> bool:
    """Whether several ranks share a copy of the experts' state."""
    cut = sharded_expert_grid(experts, sharded)
    return cut is not None and "edp" in cut.axes and cut.size("edp") > 1


def _owners_of(spec: Spec) -> bool:
    assert spec.cluster is not None
    experts = expert_grid(spec.parallel, world=spec.cluster.gpus)
    assert experts is not None, "a check lets no such degrees through"
    return _owners(experts, sharded_grid(dense_grid(spec.parallel), spec.parallel.shard))


def shrink(spec: Spec, stages: tuple[Stage, ...], degrees: dict[str, int]) -> Spec:
    """`spec` with small sizes at `degrees`, in float64; `stages` are those of the full layout."""
    model, train, cluster = spec.model, spec.train, spec.cluster
    assert model is not None and train is not None and cluster is not None
    parallel = _parallel(spec.parallel, stages, degrees)
    assert isinstance(parallel.stages, tuple)
    narrow = windowed(model, train)
    beyond = model.context is not None and train.seq > model.context
    small = _model(model, spec.parallel, parallel, narrow=narrow, beyond=beyond)
    small = replace(small, rope_scaling=_longrope(small, model.rope_scaling, seq=train.seq))
    world = prod(degrees[axis] for axis in (*AXES, *REPLICATE.values()) if axis in degrees)
    node = replace(cluster.node, gpus=world)
    if node.link is not None:
        node = replace(node, link=replace(node.link, domain=world))
    return replace(
        spec,
        model=small,
        cluster=replace(cluster, nodes=1, node=node),
        parallel=parallel,
        train=_train(train, spec.parallel, parallel, narrow=narrow),
        data=replace(spec.data, format="tokens", path=None),
    )


def _parallel(parallel: Parallel, stages: tuple[Stage, ...], degrees: dict[str, int]) -> Parallel:
    """One or two layers a stage: two where a stage has more than the smallest one has."""
    smaller = replace(
        parallel,
        tp=degrees["tp"],
        cp=degrees["cp"] * degrees.get("cp_replicate", 1),
        dp=degrees["dp"] * degrees.get("dp_replicate", 1),
        pp=degrees["pp"],
        ep=degrees["ep"],
        etp=degrees["etp"],
        shard=degrees["dp"] * degrees["cp"],
        vocab_multiple=min(parallel.vocab_multiple, 4),
    )
    if parallel.cp_method.name == "ulysses_ring" and smaller.cp < parallel.cp:
        inner = min(2, smaller.cp, dealt(parallel))
        options = {"inner": inner, "outer": smaller.cp // inner}
        smaller = replace(smaller, cp_method=replace(parallel.cp_method, options=options))
    steps = steps_of(parallel.schedule, degrees["pp"])
    # Second copies of DualPipe's stages are no stages of their own.
    whole = [stage for stage in stages if parallel.schedule.name != "dualpipe" or not stage.chunk]
    ordered = sorted(whole, key=lambda stage: (stage.chunk, stage.stage))
    least = min(stage.layers for stage in ordered)
    # The first and the last stages are kept; those between are thinned out evenly.
    picked = [ordered[i * (len(ordered) - 1) // max(1, steps - 1)] for i in range(steps)]
    counts = tuple(2 if stage.layers > least else 1 for stage in picked)
    if steps == 1:
        counts = (2,)
    return replace(smaller, stages=counts)


def _model(model: Model, full: Parallel, small: Parallel, *, narrow: bool, beyond: bool) -> Model:
    """Heads, key/value heads and widths that divide as those of the full model do.

    `narrow` says that the window hides something of a full sequence, `beyond` that sequences are
    longer than what positions were made for.
    """
    tp, deals = small.tp, dealt(small)
    if full.tp > model.kv_heads:  # replicated: fewer key/value heads than ranks
        kv_heads = max(1, tp // 2) if model.kv_heads > 1 else 1
    elif model.kv_heads == 1:
        kv_heads = 1
    elif full.tp * dealt(full) > model.kv_heads:  # copied where heads are dealt out
        kv_heads = tp
    else:
        kv_heads = lcm(2, tp * deals)
    share = 1 if model.heads == model.kv_heads else 2
    heads = lcm(kv_heads * share, tp * deals)
    stages = small.stages
    assert isinstance(stages, tuple)
    padded = model.vocab % (full.vocab_multiple * full.tp) != 0
    vocab = 12 * tp * small.vocab_multiple
    rope, window, softcap = model.rope, model.window, model.softcap
    stretched = model.rope_scaling
    dynamic = stretched is not None and stretched.name == "dynamic"
    if stretched is not None and "original" in stretched.options:
        # Of few features some are stretched, and some are not.
        stretched = replace(stretched, options={**stretched.options, "original": ORIGINAL})
    if rope is not None and rope["partial"] < 1:
        rope = replace(rope, options={**rope.options, "partial": 0.5})
    if window is not None:
        # Tokens are hidden, and where some layers see everything, one of these does.
        size, every = window["size"], min(window["every"], sum(stages))
        small_window = {"size": WINDOW if narrow else size, "every": every}
        window = replace(window, options={**window.options, **small_window})
    if softcap is not None and softcap["attention"] > 0:
        # Small scores would not reach a cap of 50.
        softcap = replace(softcap, options={**softcap.options, "attention": 1.0})
    return replace(
        model,
        mla=None if model.mla is None else _mla(model.mla),
        layers=sum(stages),
        hidden=24,
        heads=heads,
        kv_heads=heads if model.heads == model.kv_heads else kv_heads,
        head_dim=8,
        ffn=20 * tp,
        vocab=vocab - 1 if padded else vocab,
        context=None if model.context is None else 2 if dynamic and beyond else 64,
        glu_clamp=None if model.glu_clamp is None else CLAMP,
        rope=rope,
        rope_scaling=stretched,
        window=window,
        softcap=softcap,
        experts=None if model.experts is None else _experts(model.experts, small, sum(stages)),
    )


def _longrope(small: Model, asked: Setting | None, *, seq: int) -> Setting | None:
    """Factors of as many features as a small model turns, and those that the full one uses."""
    if asked is None or asked.name != "longrope":
        return small.rope_scaling
    pairs = (rotary_dim(small) or 2) // 2
    told = {name: asked[name] for name in ("short", "long")}
    thinned = {n: tuple(by[i * len(by) // pairs] for i in range(pairs)) for n, by in told.items()}
    original = 2 if seq > asked["original"] else ORIGINAL
    return replace(asked, options={**asked.options, **thinned, "original": original})


def _experts(experts: Experts, small: Parallel, layers: int) -> Experts:
    """A few experts a rank, and layers of each kind that the full model has."""
    dense = 1 if experts.dense_layers and layers > 1 else 0
    limits = experts.groups > experts.top_groups
    top_k = min(experts.top_k, 4 if limits else 3)
    count = lcm(small.ep, 2) * 2 if limits else lcm(small.ep, 2)
    count = max(count, small.ep * -(-(top_k + 1) // small.ep))
    return replace(
        experts,
        count=lcm(8, small.ep) if limits else count,
        top_k=top_k,
        ffn=6 * small.etp,
        shared=min(experts.shared, 2),
        shared_ffn=6 * small.tp,
        dense_layers=dense,
        every=min(experts.every, layers - dense),
        groups=4 if limits else 1,
        top_groups=min(2, experts.top_groups) if limits else 1,
    )


def _mla(mla: Mla) -> Mla:
    """Widths of which no two are alike, so that none is taken for another."""
    rank = None if mla.q_rank is None else 10
    return Mla(q_rank=rank, kv_rank=12, nope_dim=6, rope_dim=4, v_dim=8)


def _train(train: Train, full: Parallel, small: Parallel, *, narrow: bool) -> Train:
    """Float64, a sequence that still divides, and microbatches as many as the schedule needs."""
    chunk = 2 if small.cp > 1 else 1  # tokens: one alone would hide what a mask has wrong
    seq = lcm(8 if narrow else 4, small.tp * 2 * small.cp * chunk)
    microbatches = train.global_batch // (train.micro_batch * full.dp)
    steps = steps_of(full.schedule, small.pp)
    few = microbatches < steps_of(full.schedule, full.pp)
    count = max(1, min(microbatches, steps - 1 if few else steps + 2))
    if full.schedule.name == "interleaved":
        count = 2 * small.pp
    if full.schedule.name == "dualpipe":  # as many of each end
        count = 2 * small.pp + 2
    micro_batch = min(train.micro_batch, 2)
    return replace(
        train,
        seq=seq,
        micro_batch=micro_batch,
        global_batch=micro_batch * count * small.dp,
        precision="fp64",
        clip=0.05 if train.clip > 0 else 0.0,
        steps=10,
        optimizer=replace(train.optimizer, options={**train.optimizer.options, "lr": 1e-2}),
        lr_schedule=replace(train.lr_schedule, options=_schedule(train.lr_schedule.options)),
        recompute=_recompute(train.recompute),
        lora=None if train.lora is None else _lora(train.lora),
        weights=None,
    )


def _lora(lora: Setting) -> Setting:
    """Adapters of a size that shows: their scale is another than 1."""
    return replace(lora, options={**lora.options, "rank": 3, "alpha": 5.0, "base": None})


def _recompute(recompute: Setting) -> Setting:
    """One layer of two, where not every layer is computed again."""
    small = {"first": 1, "every": 2}
    given = recompute.options
    options = {name: None if given[name] is None else small[name] for name in given}
    return replace(recompute, options=options)


def _schedule(options: object) -> dict[str, float]:
    assert isinstance(options, dict)
    # Two of the three steps that are proved come after the warm-up, one of them on the way down.
    small = {"warmup": 1, "min_lr": 1e-3, "decay": 9}
    return {name: small[name] for name in options}
