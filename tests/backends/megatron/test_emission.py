"""Arguments of Megatron-LM without Megatron-LM: what each field becomes, and what is refused."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.megatron.experts import pattern
from parlay.compiler.backends.megatron.options import TABLES, table, version_of
from parlay.compiler.backends.megatron.stages import layout_of
from parlay.compiler.importers.megatron import layers_of
from parlay.compiler.importers.megatron_model import pattern as flags_of
from parlay.compiler.spec.blocks import Experts

MODEL = "model { layers = 8, hidden = 1024, heads = 8, ffn = 4096, vocab = 32000 %s }\n"
REST = (
    'cluster { nodes = 2, node from "dgx-h100" }\nparallel { %s }\n'
    "train { seq = 1024, micro_batch = 1, global_batch = 64, steps = 100 %s }\n"
    'data { path = "/it\'s a path/$HOME", format = megatron }\n%s\n'
)
Compile = Callable[..., pipeline.Job]


def text(model: str = "", parallel: str = "tp = 2", train: str = "", rest: str = "") -> str:
    return MODEL % f", {model}" + REST % (parallel, f", {train}" if train else "", rest)


@pytest.fixture
def emitted(tmp_path: Path) -> Callable[..., dict[str, tuple[str, ...]]]:
    """The arguments of a job, option -> values."""

    def compiled(**parts: str) -> dict[str, tuple[str, ...]]:
        path = tmp_path / "job.par"
        path.write_text(text(**parts))
        job = pipeline.check(path, ("megatron",))
        assert not job.errors, [said.message for said in job.errors]
        files = pipeline.emit(job, "megatron").files
        lines = files["megatron/arguments.txt"].splitlines()
        words = [shlex.split(line) for line in lines if line.startswith("--")]
        return {word[0]: tuple(word[1:]) for word in words}

    return compiled


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., list[tuple[str, str]]]:
    """Codes and places of what is told, as the text under each."""

    def checked(**parts: str) -> list[tuple[str, str]]:
        path = tmp_path / "job.par"
        path.write_text(text(**parts))
        found = pipeline.check(path, ("megatron",)).diagnostics
        source = path.read_text()
        return [
            (said.code, source[said.span.start : said.span.end])
            for said in found
            if said.code.startswith("B") and said.span is not None
        ]

    return checked


# ── Fields ────────────────────────────────────────────────────────────────────


def test_what_would_be_read_otherwise_is_written_out(
    emitted: Callable[..., dict[str, tuple[str, ...]]],
) -> None:
    found = emitted()
    assert found["--make-vocab-size-divisible-by"] == ("1",)
    assert found["--expert-tensor-parallel-size"] == ("2",)
    assert found["--kv-channels"] == ("128",)
    assert found["--attention-dropout"] == ("0",)
    assert found["--data-path"] == ("/it's a path/$HOME",)


@pytest.mark.parametrize(
    ("parts", "option", "values"),
    [
        ({"parallel": "tp = 2, pp = 2, order = [tp, cp, pp, dp]"}, "--use-tp-pp-dp-mapping", ()),
        (
            {"parallel": "pp = 4, stages = [1, 3, 3, 1]"},
            "--decoder-first-pipeline-num-layers",
            ("1",),
        ),
        (
            {"parallel": "pp = 4, stages = [1, 2, 3, 2]"},
            "--pipeline-model-parallel-layout",
            ("Et*1|t*2|t*3|t*2L",),
        ),
        (
            {"parallel": "pp = 2, schedule = interleaved(chunks = 4)"},
            "--num-virtual-stages-per-pipeline-rank",
            ("4",),
        ),
        ({"model": "bias = qkv"}, "--add-qkv-bias", ()),
        ({"model": "window(size = 512, every = 4)"}, "--window-size", ("511,0",)),
        ({"model": "rope(theta = 500000)"}, "--rotary-base", ("500000",)),
        ({"model": "rope_scaling = llama3(factor = 32)"}, "--rope-scaling-factor", ("32",)),
        (
            {"model": "rope_scaling = yarn(factor = 32, original = 4096)"},
            "--position-embedding-type",
            ("yarn",),
        ),
        (
            {"model": "rope_scaling = yarn(factor = 32, original = 4096, truncate = off)"},
            "--no-yarn-correction-range-round-to-int",
            (),
        ),
        ({"parallel": "zero = 3"}, "--data-parallel-sharding-strategy", ("optim_grads_params",)),
        (
            {"parallel": "zero = 1, shard = 8"},
            "--num-distributed-optimizer-instances",
            ("2",),
        ),
        ({"train": "recompute = full(first = 2)"}, "--recompute-method", ("block",)),
        ({"rest": 'target "megatron" { options { wgrad_deferral_limit = 8 } }'},
         "--wgrad-deferral-limit", ("8",)),
        ({"rest": 'target "megatron" { options { attention_backend = fused } }'},
         "--attention-backend", ("fused",)),
    ],
)  # fmt: skip
def test_a_field(
    emitted: Callable[..., dict[str, tuple[str, ...]]],
    parts: dict[str, str],
    option: str,
    values: tuple[str, ...],
) -> None:
    assert emitted(**parts)[option] == values


@pytest.mark.parametrize(
    ("parts", "code", "place"),
    [
        ({"model": "activation = geglu"}, "B310", "geglu"),
        ({"model": "position = alibi"}, "B310", "alibi"),
        ({"model": "norm_placement = both"}, "B310", "both"),
        ({"model": "bias = [out]"}, "B310", "[out]"),
        ({"model": "softcap(logits = 30)"}, "B310", "30"),
        ({"model": "window(size = 64, every = 2, theta = 100)"}, "B310", "100"),
        ({"model": "rope_scaling = llama3(factor = 8, low_freq = 2)"}, "B310", "2"),
        (
            {"model": "context = 99, rope_scaling = dynamic(factor = 8)"},
            "B310",
            "dynamic(factor = 8)",
        ),
        (
            {
                "model": "rope_scaling = yarn(factor = 8, original = 99)",
                "rest": 'target "megatron" { version = "0.18" }',
            },
            "B310",
            "yarn(factor = 8, original = 99)",
        ),
        (
            {"model": "rope_scaling = yarn(factor = 8, original = 99, attention_factor = 2)"},
            "B310",
            "2",
        ),
        ({"parallel": "pp = 2, schedule = zbv"}, "B402", "zbv"),
        ({"parallel": "tp = 2, order = [dp, tp]"}, "B310", "[dp, tp]"),
        ({"train": "lora(rank = 8)"}, "B310", "lora(rank = 8)"),
        ({"train": "compile = on"}, "B310", "on"),
        (
            {"model": "mla { kv_rank = 64, nope_dim = 64, rope_dim = 32, v_dim = 64 }"},
            "B310",
            "mla",
        ),
        ({"rest": 'target "megatron" { version = "1.0" }'}, "B311", '"1.0"'),
        ({"rest": 'target "megatron" { options { no_such = 1 } }'}, "B312", "1"),
        ({"rest": 'target "megatron" { options { swiglu = off } }'}, "B313", "off"),
        ({"rest": 'target "megatron" { options { num_experts = 8 } }'}, "B313", "8"),
        ({"rest": 'checkpoint { path = "x", every = 5, keep = 2 }'}, "B314", "2"),
    ],
)
def test_what_is_refused_or_told(
    told: Callable[..., list[tuple[str, str]]], parts: dict[str, str], code: str, place: str
) -> None:
    assert (code, place) in told(**parts)


# ── Files ─────────────────────────────────────────────────────────────────────


def started(job: Path, stub: str, **environment: str) -> list[str]:
    """The lines of the real script with a torchrun of ours in its folder."""
    folder = job.parent
    files = pipeline.emit(pipeline.check(job, ("megatron",)), "megatron").files
    assert files
    for name, content in files.items():
        (folder / Path(name).name).write_text(content)
    fake = folder / "torchrun"
    fake.write_text(f"#!/bin/sh\n{stub}\n")
    fake.chmod(0o755)
    ended = subprocess.run(
        ["bash", folder / "pretrain.sh"],
        env={"PATH": f"{folder}:/usr/bin:/bin", "MEGATRON_LM": "/mlm", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.splitlines()


def test_the_script_tells_nccl_of_the_fabric(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    fabric = "fabric { kind = roce }"
    path.write_text(
        'model from "llama3-8b"\n'
        f'cluster {{ node from "dgx-h100", nodes = 2, {fabric} }}\n'
        "parallel { tp = 8, dp = 2 }\n"
        "train { seq = 8Ki, micro_batch = 1, global_batch = 8, steps = 9 }\n"
        'data { path = "data/corpus", format = megatron }\n'
    )
    stub = 'echo "$NCCL_IB_TIMEOUT $NCCL_IB_GID_INDEX"'
    assert started(path, stub) == ["22 3"]
    assert started(path, stub, NCCL_IB_TIMEOUT="23") == ["23 3"]


def test_the_script_passes_every_word(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(text())
    words = started(path, "for word; do printf '%s\\n' \"$word\"; done")
    assert words[words.index("--data-path") + 1] == "/it's a path/$HOME"
    assert "/mlm/pretrain_gpt.py" in words
    assert words[-1] == "transformer_engine"


def test_every_option_that_is_emitted_is_in_every_table() -> None:
    folder = Path(__file__).parents[3] / "compiler" / "backends" / "megatron"
    import re

    named = {
        option
        for path in folder.glob("*.py")
        if path.name not in ("codes.py",)
        for option in re.findall(r'"(--[a-z0-9-]+)"', path.read_text())
    }
    assert len(named) > 90
    for version in TABLES:
        # Those of yarn are asked for before they are used.
        used = {option for option in named if not option.startswith("--yarn-")}
        assert sorted(used - set(table(version)) - {"--no-", "--disable-"}) == []


def test_versions() -> None:
    assert version_of("0.19.2") == "0.19"
    assert version_of("0.19\nrm") is None
    assert version_of("19") is None


@pytest.mark.parametrize(("first", "every"), [(0, 1), (3, 1), (0, 2), (1, 2), (2, 3), (8, 1)])
@pytest.mark.parametrize("layers", [8, 9])
def test_the_pattern_of_experts(first: int, every: int, layers: int) -> None:
    experts = Experts(count=8, top_k=2, ffn=1, shared_ffn=1, dense_layers=first, every=every)
    written = pattern(experts, layers)
    assert flags_of(written, layers) == [experts.holds(layer) for layer in range(layers)]


def test_layouts() -> None:
    assert layout_of([3, 4, 3], mtp=1) == "Et*3|t*4|t*3m*1L"
    assert layers_of("Et*3|t*4|t*3m*1L") == [3, 4, 3]
    assert layers_of("Ettt|(tt|)*29,m|L") == [3, *([2] * 29), 0, 0]
    assert layers_of("E$(x)") is None


DASHED = ("-x", "--save", "--", "-1", "-1.5", "-.5", "-1e5", "-x y", "-", "a-b", "-é")


@pytest.mark.parametrize("value", DASHED)
def test_a_value_that_argparse_takes_for_an_option_is_refused(
    told: Callable[..., list[tuple[str, str]]], value: str
) -> None:
    """Held against argparse itself, which Megatron-LM parses with."""
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--save")
    parser.add_argument("--data-path", nargs="*")
    try:
        found, unknown = parser.parse_known_args(["--data-path", value])
        passes = found.data_path == [value] and not unknown
    except argparse.ArgumentError:
        passes = False
    saved = f'checkpoint {{ path = "{value}", every = 3 }}'
    given = f'target "megatron" {{ options {{ load = "{value}" }} }}'
    for rest in (saved, given):
        assert told(rest=rest) == ([] if passes else [("B310", f'"{value}"')])
