"""Launch scripts read and never run: what they say comes back out of the back end."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.importers import megatron, shell
from parlay.compiler.importers.hf import Unreadable

SCRIPTS = sorted((Path(__file__).parent / "scripts").iterdir())
NODES = {"llama3-8b-fp8": "dgx-h200"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_published_script_imports_and_checks(path: Path, tmp_path: Path) -> None:
    found = megatron.read(path, node=NODES.get(path.stem, "dgx-h100"))
    out = tmp_path / "job.par"
    out.write_text(found.text)
    checked = pipeline.check(out, ("megatron",))
    assert [said.message for said in checked.errors] == []
    assert pipeline.emit(checked, "megatron").files


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_nothing_of_a_script_is_lost(path: Path) -> None:
    """Every option is a field, an option of the target, or a line of what was not understood."""
    from parlay.compiler.importers import arguments

    given = arguments.read(path)
    found = megatron.read(path)
    taken = found.text.replace("_", "-")
    for name, _ in given.rest():
        known = name in named() or name[2:] in taken
        assert known or any(name in line for line in found.lost), name


def named() -> set[str]:
    """The options that the importer names, with those that it puts together."""
    folder = Path(megatron.__file__).parent
    found = {
        option
        for module in ("megatron", "megatron_model", "megatron_recipe")
        for option in re.findall(r'"(--[a-z0-9-]+)"', (folder / f"{module}.py").read_text())
    }
    ends = {f"--decoder-{end}-pipeline-num-layers" for end in ("first", "last")}
    latent = ("q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim")
    return found | ends | {f"--{name}" for name in (*latent, "attention-dropout", "hidden-dropout")}


def lines(files: Any, name: str) -> list[str]:
    text = files[f"megatron/{name}"]
    return sorted(line for line in text.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize("seed", range(12))
def test_emit_after_import_keeps_every_setting(
    seed: int, tmp_path: Path, drawn: Callable[[Random], str]
) -> None:
    random = Random(seed)
    path = tmp_path / "job.par"
    while True:
        text = drawn(random)
        path.write_text(text)
        checked = pipeline.check(path, ("megatron",))
        if not checked.errors:
            break
    before = pipeline.emit(checked, "megatron").files
    folder = tmp_path / "emitted"
    folder.mkdir()
    for name, content in before.items():
        (folder / Path(name).name).write_text(content)
    node = next(name for name in ("dgx-b200", "dgx-h100", "dgx-a100") if name in text)
    found = megatron.read(folder, node=node)
    assert found.lost == ()
    back = tmp_path / "back.par"
    back.write_text(found.text)
    again = pipeline.check(back, ("megatron",))
    assert [said.message for said in again.errors] == []
    after = pipeline.emit(again, "megatron").files
    for name in ("arguments.txt", "pretrain.sh"):
        diff = difflib.unified_diff(lines(before, name), lines(after, name), lineterm="")
        assert list(diff) == []


# ── The shell ─────────────────────────────────────────────────────────────────


def words(text: str) -> list[str]:
    return shell.read(text).commands[-1]


def test_the_shell_as_it_is_read() -> None:
    assert words("A=1\nB=${A}2\nrun $B \"$B x\" '$B'") == ["run", "12", "12 x", "$B"]
    assert words("A=(a 'b c' # no\n  d)\nA+=(e)\nrun \"${A[@]}\"") == ["run", "a", "b c", "d", "e"]
    assert words('A=("--x 1")\nrun ${A[@]}') == ["run", "--x", "1"]
    assert words("N=$((2*(3+1)/2))\nrun ${N:-9} ${M:-$N} \\\n  end") == ["run", "4", "4", "end"]
    assert words("run $(rm -rf /) `rm -rf /` $UNKNOWN")[-1] == "$UNKNOWN"
    assert words("if [ $X ]; then\n  A=1\nelse\n  A=2\nfi\nrun $A") == ["run", "1"]


def test_a_script_that_would_grow_without_end_does_not(tmp_path: Path) -> None:
    path = tmp_path / "grow.sh"
    grow = "".join(f'A{n + 1}="$A{n}$A{n}"\n' for n in range(60))
    path.write_text(f"A0=xxxxxxxx\n{grow}torchrun p.py --num-layers $A60 --seq-length 8\n")
    with pytest.raises(Unreadable):
        megatron.read(path)


def test_what_is_unreadable(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    path = tmp_path / "x.sh"
    path.write_text("echo hello\n")
    ended = parlay("import", "megatron", path)
    assert ended.status == 1
    assert "gives no job" in ended.err
    assert parlay("import", "megatron", tmp_path / "none").status == 1
    path.write_text("--num-layers 4 --hidden-size 'x\n")
    assert parlay("import", "megatron", path).status == 1


SMALL = (
    "--num-layers {} --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
    "--micro-batch-size 1 --pipeline-model-parallel-size 4 "
)


@pytest.mark.parametrize(
    ("layout", "layers", "said"),
    [
        ("Ett|tt|tt|ttL", 8, "stages = [2, 2, 2, 2]"),
        ("Et*3|(tt|)*2tL", 8, "stages = [3, 2, 2, 1]"),
        ("Et|(tt|)*6L", 13, "stages = auto"),
        ("Et*3|(tt|)*29,m|L", 61, "schedule = interleaved(chunks = 8)"),
    ],
)
def test_layouts_written_out(tmp_path: Path, layout: str, layers: int, said: str) -> None:
    """Stages without a layer, which the language lacks, are told and balanced instead."""
    path = tmp_path / "run.sh"
    options = SMALL.format(layers) + f"--pipeline-model-parallel-layout '{layout}'"
    path.write_text(f"torchrun pretrain_gpt.py {options}\n")
    found = megatron.read(path)
    assert said in found.text
    assert bool(found.lost) == ("stages = auto" in found.text)


@pytest.mark.parametrize("name", ["pretrain_bert.py", "x/pretrain_t5.py", "pretrain_hybrid.py"])
def test_what_trains_no_decoder_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun {name} {SMALL.format(8)}\n")
    with pytest.raises(Unreadable, match="another kind of model"):
        megatron.read(path)


def test_the_command(tmp_path: Path, parlay: Callable[..., Any]) -> None:
    out = tmp_path / "job.par"
    assert parlay("import", "megatron", SCRIPTS[0], "-o", out).status == 0
    assert out.read_text() == megatron.read(SCRIPTS[0]).text
    ended = parlay("import", "megatron", SCRIPTS[0], "-o", out)
    assert (ended.status, "nothing was changed" in ended.err) == (1, True)
