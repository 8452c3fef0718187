"""Scripts for DeepSpeed without DeepSpeed: formatted, and the model that the file describes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest
from parlay.compiler import pipeline
from parlay.compiler.backends.deepspeed import script
from parlay.compiler.backends.render import render
from parlay.compiler.backends.torch.structure import Structure
from parlay.compiler.ledger import held, parameters

pytestmark = pytest.mark.slow


def test_code_is_formatted_and_whole(tmp_path: Path, jobs: list[pipeline.Job]) -> None:
    for number, job in enumerate(jobs):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in pipeline.emit(job, "deepspeed").files.items():
            (folder / Path(name).name).write_text(content)
        assert subprocess.run(["bash", "-n", folder / "launch.sh"]).returncode == 0
    ruff = [sys.executable, "-m", "ruff"]
    format = [*ruff, "format", "--check", "--isolated", "--line-length=100", tmp_path]
    ended = subprocess.run(format, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    chosen = "--select=E,F,I,B,UP"
    check = [*ruff, "check", "--isolated", "--line-length=100", chosen, tmp_path]
    ended = subprocess.run(check, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


SENDS = ("deepspeed.runtime.sequence_parallel", "deepspeed.sequence.layer")


def test_parameters_of_the_emitted_model(
    jobs: list[pipeline.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has as many as the ledger counts, over all stages, a tied table once."""
    torch = pytest.importorskip("torch")
    from parlay.runtime.plan import Plan

    # What sends heads around has no parameters.
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.sequence", *SENDS):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr(
        sys.modules["deepspeed.sequence.layer"],
        "DistributedAttention",
        lambda *_: torch.nn.Module(),
    )
    pipelines = 0
    for job in jobs:
        files = pipeline.emit(job, "deepspeed").files
        spec = job.phases[0].spec
        assert spec.model is not None
        model = ModuleType("emitted_model")
        exec(compile(files["deepspeed/model.py"], "model.py", "exec"), model.__dict__)
        plan = Plan.of(json.loads(files["deepspeed/plan.json"]))
        with torch.device("meta"):
            if spec.parallel.pp > 1:
                pipelines += 1
                parts = [model.Stage(plan, stage) for stage in plan.stages]
                parts += [model.Embedding(plan)] if spec.model.tied_embeddings else []
            else:
                parts = [model.Model(plan)]
        counted = sum(each.numel() for part in parts for each in part.parameters())
        expected = parameters.total(spec.model, vocab_rows=held.padded_vocab(spec))
        assert counted == expected, job.path.read_text()
    assert 5 < pipelines < len(jobs)
    assert any(job.phases[0].spec.parallel.cp > 1 for job in jobs)


def test_stages_one_after_the_other_are_the_whole_model(jobs: list[pipeline.Job]) -> None:
    """The loss through the stages of a pipeline is that of the same model in one piece."""
    torch = pytest.importorskip("torch")
    from parlay.runtime import init
    from parlay.runtime.plan import Plan

    pipelines = [job for job in jobs if job.phases[0].spec.parallel.pp > 1]
    assert len(pipelines) > 5
    for job in pipelines:
        [phase] = job.phases
        layout = pipeline.lay_out(phase)
        assert layout is not None and phase.spec.model is not None
        files = pipeline.emit(job, "deepspeed").files
        sizes = json.loads(files["deepspeed/plan.json"])
        sizes["batch"]["seq"] = 16
        plan = Plan.of(sizes)
        cut, one = ModuleType("cut"), ModuleType("one")
        exec(compile(files["deepspeed/model.py"], "model.py", "exec"), cut.__dict__)
        printed = script.context(Structure(phase, job.sources, layout, ()))
        exec(compile(render("torch/model.py.j2", printed), "whole.py", "exec"), one.__dict__)
        whole = one.Model(plan)
        stages = [cut.Stage(plan, stage) for stage in plan.stages]
        table = cut.Embedding(plan) if phase.spec.model.tied_embeddings else None
        for part in [whole, *stages, *([table] if table else [])]:
            init.fill(part, plan=plan)
        tokens = torch.arange(32).view(2, 16) * 7 % plan.model.vocab
        labels = tokens.roll(-1, dims=1)
        x = table(tokens) if table else tokens
        for stage in stages:
            x = stage(x)
        logits = cut.Embedding.logits(table, x) if table else x
        expected = whole(tokens, labels)
        torch.testing.assert_close(cut.loss(plan, logits, labels), expected)
