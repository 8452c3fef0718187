"""Pipeline stages as Megatron-LM is told of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parlay.compiler.backends.megatron.argument import Piece, field, given, refused
from parlay.compiler.layout import Layout
from parlay.compiler.layout.stages import chunks_of
from parlay.compiler.spec.blocks import Spec
from parlay.compiler.spec.resolve import Phase


def stages(phase: Phase, spec: Spec, layout: Layout) -> Iterator[Piece]:
    """The schedule, and the layers of each stage where they are not an equal split."""
    parallel, model = spec.parallel, spec.model
    assert model is not None
    if parallel.pp > 1 and parallel.schedule.name not in ("one_f_one_b", "interleaved"):
        yield refused(
            phase,
            "parallel.schedule",
            field(phase, "parallel.schedule"),
            help=["it expresses `one_f_one_b` and `interleaved(chunks = …)`"],
        )
        return
    if parallel.pp == 1:
        if chunks_of(parallel.schedule) > 1:
            yield refused(
                phase,
                "parallel.schedule",
                f"{field(phase, 'parallel.schedule')} at pp = 1",
                words="chunks need a pipeline",
            )
        return
    chunks = chunks_of(parallel.schedule)
    counts = tuple(stage.layers for stage in layout.stages)
    if len(set(counts)) == 1:
        if chunks > 1:
            path = "parallel.schedule"
            yield given("--num-virtual-stages-per-pipeline-rank", chunks, path=path)
        return
    middle = set(counts[1:-1])
    if chunks == 1 and len(middle) < 2:
        yield given("--decoder-first-pipeline-num-layers", counts[0], path="parallel.stages")
        yield given("--decoder-last-pipeline-num-layers", counts[-1], path="parallel.stages")
        return
    written = layout_of(counts, mtp=model.mtp_layers)
    yield given("--pipeline-model-parallel-layout", written, path="parallel.stages")


def layout_of(counts: Sequence[int], *, mtp: int = 0) -> str:
    """The layout string: E the embedding, t a layer, m a further prediction, L the loss.

    `[3, 4, 3]` --> `Et*3|t*4|t*3L`
    """
    parts = [f"t*{count}" for count in counts]
    parts[0] = f"E{parts[0]}"
    parts[-1] += (f"m*{mtp}" if mtp else "") + "L"
    return "|".join(parts)
