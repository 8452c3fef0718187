"""A field by another framework's name: what it is called here, and nothing that follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline
from parlay.compiler.spec.problems.elsewhere import ELSEWHERE
from parlay.compiler.spec.resolve import schemas
from parlay.dsl.diagnostics import Diagnostic

JOB = 'model from "llama3-70b"\ncluster { node from "dgx-h100" }\n'


def told(text: str) -> tuple[Diagnostic, ...]:
    path = Path("run.par")
    return pipeline.check(path, (), {path.resolve(): text}).diagnostics


@pytest.mark.parametrize(
    ("block", "word", "field"),
    [
        ("parallel", "tensor_model_parallel_size", "tp"),  # Megatron-LM
        ("parallel", "pipeline_parallel_degree", "pp"),  # torchtitan
        ("parallel", "zero_stage", "zero"),  # Accelerate
        ("train", "train_micro_batch_size_per_gpu", "micro_batch"),  # DeepSpeed
        ("train", "global_batch_size", "global_batch"),
        ("train", "gradient_checkpointing", "recompute"),  # Hugging Face
        ("model", "num_hidden_layers", "layers"),
        ("model", "vocab_size", "vocab"),
        ("model", "n_embd", "hidden"),
    ],
)
def test_the_word_is_translated(block: str, word: str, field: str) -> None:
    [found] = [each for each in told(f"{block} {{ {word} = 8 }}") if each.code == "T002"]
    assert found.help == (f"it is called `{field}` here",) or found.help[0].startswith("nearest: ")
    assert found.fixes[0].title == f"write `{field}`"
    assert [edit.text for edit in found.fixes[0].edits] == [field]


def test_a_field_by_another_name_is_not_missing() -> None:
    text = "train { seq_len = 4096, train_micro_batch_size_per_gpu = 1 }"
    found = [(each.code, each.message) for each in told(text)]
    assert ("T009", "`train` lacks `global_batch`") in found
    assert sorted(code for code, _ in found) == ["T002", "T002", "T009"]


def test_an_option_of_another_field_is_no_rename() -> None:
    [found] = [each for each in told("train { learning_rate = 3e-4 }") if each.code == "T002"]
    assert found.help == ("it is called `optimizer = adamw(lr = …)` here",)
    assert not found.fixes


def test_what_is_near_to_nothing_gets_the_list() -> None:
    [found] = told(f"{JOB}parallel {{ wombat = 3 }}")
    assert found.help[0].startswith("known: `tp`, `sequence_parallel`, `pp`")


def test_every_word_stands_for_a_field() -> None:
    names = {path.rpartition(".")[2] for path in schemas()}
    assert {field for field, _ in ELSEWHERE.values()} <= names
    assert not set(ELSEWHERE) & {"tp", "seq", "micro_batch"}


@pytest.mark.parametrize("block", ["parallel { tensor_parallel = 8 }", "paralel { tp = 8 }"])
def test_memory_is_not_told_of_a_layout_that_is_not_known(block: str) -> None:
    assert {each.code for each in told(JOB + block)} <= {"T001", "T002"}


def test_memory_is_told_beside_a_name_that_does_not_weigh() -> None:
    codes = [each.code for each in told(JOB + "log { lines = 3 }")]
    assert sorted(codes) == ["M201", "T002"]


def test_what_is_no_number_has_a_value() -> None:
    text = JOB + "train { seq = 8Ki, micro_batch = 1, global_batch = model.activation }"
    [found] = [each for each in told(text) if each.code == "T012"]
    assert found.message == "`model.activation` is no number"


@pytest.mark.parametrize(
    ("text", "message", "title"),
    [
        ('target "megatrn" { version = "0.19" }', 'no back end is called "megatrn"', '"megatron"'),
        ('phase "main" { train { seq = 2Ki } }', 'phase "main" is the file without its', None),
        (
            'target "slurm" { options { time = 1h } }\ntarget "slurm" { options { time = 2h } }',
            'target "slurm" is given twice',
            None,
        ),
    ],
)
def test_names_of_targets_and_phases(text: str, message: str, title: str | None) -> None:
    [found] = [each for each in told(f"{JOB}parallel {{ zero = 3 }}\n{text}\n") if "T" in each.code]
    assert found.message.startswith(message)
    assert [fix.title for fix in found.fixes] == ([f"write {title}"] if title else [])


RECIPE = (
    "seq = 8Ki, micro_batch = 1, global_batch = 64, steps = 100, "
    "lr_schedule = cosine(warmup = 500), recompute = selective(experts)"
)


@pytest.mark.parametrize(
    ("parallel", "train", "codes"),
    [
        # The recipe's own faults stand, whatever the misspelled degree was meant to be.
        ("tp = 8, sequence_paralel = on", RECIPE, ["T002", "W207", "W215"]),
        # A misspelled field of the recipe may be what they follow from.
        ("tp = 8", f"{RECIPE}, warm_up = 5", ["T002"]),
        # What a layout weighs is not known without the field that has no name.
        ("tp = 8, zero = 3, sequence_paralel = on", "", ["T002"]),
    ],
)
def test_what_hangs_on_no_unknown_field_is_told(
    parallel: str, train: str, codes: list[str]
) -> None:
    text = f"{JOB}parallel {{ {parallel} }}\n" + (f"train {{ {train} }}\n" if train else "")
    assert sorted(each.code for each in told(text)) == codes
