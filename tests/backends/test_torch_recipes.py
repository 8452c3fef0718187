"""Recipes that the torch target prints, and what of them it tells it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline

JOB = """
model {{ layers = 4, hidden = 64, heads = 8, kv_heads = 4, ffn = 160, vocab = 1000 {model} }}
cluster {{ node from "dgx-h100" {{ gpus = 2 }} }}
parallel {{ {parallel} }}
train {{ seq = 64, micro_batch = 2, global_batch = 16, steps = 10
  lr_schedule = constant
  {optimizer}
  {train} }}
"""
ADAMW = "optimizer = adamw(lr = 1e-3)"


def job(folder: Path, *, parallel: str = "", train: str = "", model: str = "") -> pipeline.Job:
    optimizer = "" if "optimizer = " in train else ADAMW
    text = JOB.format(parallel=parallel, train=train, model=model, optimizer=optimizer)
    (folder / "job.par").write_text(text)
    return pipeline.check(folder / "job.par", ["torch"])


REFUSED = {
    "`compile = on` beside `tp`": ("tp = 2", "compile = on", ""),
    "`compile = on` beside `zero`": ("zero = 3", "compile = on", ""),
    "`compile = on` beside `window`": ("", "compile = on", "window = window(size = 8)"),
    "`offload = cpu(params)`": ("offload = cpu(optimizer, params)", "", ""),
    "`offload` beside `zero = 2`": ("zero = 2, offload = cpu(optimizer)", "", ""),
    "`offload = nvme(optimizer)`": ("offload = nvme(optimizer)", "", ""),
    "`recompute = selective(norm)` beside `norm_placement`": (
        "",
        "recompute = selective(norm)",
        "norm_placement = after",
    ),
    "`precision = fp8`": ("", "precision = fp8", ""),
}


@pytest.mark.parametrize("what", REFUSED)
def test_told_at_the_field(what: str, tmp_path: Path) -> None:
    parallel, train, model = REFUSED[what]
    found = job(tmp_path, parallel=parallel, train=train, model=model).errors
    assert [error.code for error in found] == ["B301"], [error.message for error in found]
    assert found[0].message == f"target torch cannot express {what} yet"


PRINTED = {
    "optimizer = sgd(lr = 1e-2)": ("optimizer = SGD(", "momentum=plan.optimizer.momentum"),
    ADAMW: ("optimizer = AdamW(", "eps=plan.optimizer.eps"),
    "optimizer = adamw(lr = 1e-3, kahan = on)": ("optimizer = LeanAdamW(", "kahan=True"),
    "optimizer = adamw(lr = 1e-3, states = bf16)": ("optimizer = LeanAdamW(",),
    "master = none": ("optimizer = LeanAdamW(",),
    "precision = fp16": (".double() / job.scale.value", "scale(1 / job.scale.value)"),
    "compile = on": ("    compile_layers(model)",),
}


@pytest.mark.parametrize("train", PRINTED)
def test_printed(train: str, tmp_path: Path) -> None:
    made = job(tmp_path, parallel="zero = 1", train=train)
    assert not made.errors, [error.message for error in made.errors]
    text = pipeline.emit(made, "torch").files_of("torch")["train.py"]
    assert all(words in text for words in PRINTED[train])
    for other in {words for told in PRINTED.values() for words in told} - {*PRINTED[train]}:
        assert other not in text or other in PRINTED[ADAMW]
