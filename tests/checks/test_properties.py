"""Any degrees at all: no exception, places inside the text, and agreement with the layout."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parlay.compiler import pipeline
from parlay.dsl.diagnostics import Severity

SIZES = st.sampled_from([1, 2, 3, 4, 5, 8, 16, 64])
LAYOUT_CODES = {"L201", "L206", "L207", "L208", "L209", "L217", "L219", "L220", "L221", "L222"}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A file with degrees from a hat."""
    fields = [f"{axis} = {draw(SIZES)}" for axis in ("tp", "pp", "cp", "ep", "etp")]
    fields += [f"zero = {draw(st.integers(0, 4))}"]
    if draw(st.booleans()):
        fields.append(f"dp = {draw(SIZES)}")
    if draw(st.booleans()):
        fields.append(f"shard = {draw(SIZES)}")
    if draw(st.booleans()):
        axes = draw(st.lists(st.sampled_from(["tp", "cp", "dp", "pp", "ep"]), min_size=1))
        fields.append(f"order = [{', '.join(axes)}]")
    schedules = ["gpipe", "one_f_one_b", "interleaved(chunks = 2)", "zbv", "dualpipe"]
    fields.append(f"schedule = {draw(st.sampled_from(schedules))}")
    stages = ["", "stages = auto", "stages = [1, 2]", "stages = [16, 0, 16]"]
    fields.append(draw(st.sampled_from(stages)))
    methods = ["ring", "ulysses", "ulysses_ring(inner = 2, outer = 2)"]
    fields.append(f"cp_method = {draw(st.sampled_from(methods))}")
    model = draw(st.sampled_from(["llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt2-xl"]))
    nodes = draw(st.sampled_from([1, 3, 8]))
    node = draw(st.sampled_from(["dgx-h100", "gb200-nvl72", "a100-pcie-pairs", "laptop"]))
    seq, batch = draw(st.integers(1, 5000)), draw(st.integers(1, 300))
    precision = draw(st.sampled_from(["bf16", "fp32", "fp8"]))
    return (
        f'model from "{model}"\ncluster {{ nodes = {nodes}, node from "{node}" }}\n'
        f"parallel {{ {' '.join(fields)} }}\n"
        f"train {{ seq = {seq}, micro_batch = {draw(SIZES)}, global_batch = {batch}, "
        f"precision = {precision} }}\n"
    )


@settings(
    max_examples=settings.default.max_examples * 2 // 5,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(text=texts())
def test_any_degrees(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.par"
        path.write_text(text)
        job = pipeline.check(path)
    errors = {each.code for each in job.diagnostics if each.severity is Severity.ERROR}
    for each in job.diagnostics:
        for label in each.labels:
            assert 0 <= label.span.start < label.span.end <= len(text)
            assert label.text
        assert not (each.message + " ".join((*each.notes, *each.help))).count(" None")
    [phase] = job.phases
    layout = pipeline.lay_out(phase)
    assert (layout is None) == bool(errors & LAYOUT_CODES)
    if layout is not None:
        assert layout.world == phase.spec.cluster.gpus  # type: ignore[union-attr]
        assert layout.coordinates(layout.world - 1)
