"""What the torch target says of latents and adapters that it has no code for, at the field."""

from __future__ import annotations

from pathlib import Path

import pytest
from parlay.compiler import pipeline

TEXT = """
model {{ layers = 4, hidden = 64, heads = 8, ffn = 160, vocab = 1000 {model} }}
cluster {{ node from "laptop" {{ gpus = 2 }} }}
parallel {{ {parallel} }}
train {{
  seq = 64, micro_batch = 2, global_batch = 16, steps = 10, precision = fp32
  optimizer = adamw(lr = 1e-3) {train}
}}
"""
MLA = "mla { q_rank = 24, kv_rank = 16, nope_dim = 8, rope_dim = %d, v_dim = 8 }"
WEIGHTS = 'weights = "folder"'
LORA = "lora = lora(rank = 4)"

REFUSED = {
    "positions": (f"{MLA % 4} position = none", "", "", "without rotary positions"),
    "a share": (f"{MLA % 4} rope(partial = 0.5)", "", "", "a partial rotation"),
    "pairs": (MLA % 3, "", "", "3 rotated features of a head"),
    "norms": (f"{MLA % 4} qk_norm = per_head", "", "", "norms of queries and keys"),
    "groups": (f"{MLA % 4} kv_heads = 4", "", "", "grouped heads"),
    "widths": (f"{MLA % 4} head_dim = 8", "", "", "heads of 8 features"),
    "nothing that turns": (
        "position = none, rope_scaling = llama3(factor = 8)",
        "",
        "",
        "`rope_scaling` without rotary positions",
    ),
    "stretched twice": (
        "rope(scaling = 4), rope_scaling = llama3(factor = 8)",
        "",
        "",
        "stretched twice",
    ),
    "bands without an inside": (
        "rope_scaling = llama3(factor = 8, low_freq = 4)",
        "",
        "",
        "bands without anything between them",
    ),
    "a base without a context": (
        "rope_scaling = dynamic(factor = 8)",
        "",
        "",
        "`dynamic` without `context`",
    ),
    "a base of one wave": (
        "context = 32, head_dim = 2, rope_scaling = dynamic(factor = 8)",
        "",
        "",
        "`dynamic` of two features",
    ),
    "waves of one length": (
        "rope(theta = 1), rope_scaling = yarn(factor = 8, original = 64)",
        "",
        "",
        "`yarn` of theta = 1",
    ),
    "factors of others": (
        "rope_scaling = longrope(factor = 8, original = 64, short = [1, 2], long = [1, 2])",
        "",
        "",
        "2 factors of 4 pairs of features",
    ),
    "one base of windows": ("window(size = 8, theta = 10)", "", "", "beside no other"),
    "a base of windows that turn nothing": (
        "position = none, window(size = 8, every = 2, theta = 10)",
        "",
        "",
        "without rotary positions",
    ),
    "a base of latents' windows": (
        f"{MLA % 4} window(size = 8, every = 2, theta = 10)",
        "",
        "",
        "under latent attention",
    ),
    "clamps": ("glu_clamp = 7", "", "", "`glu_clamp` with `activation = swiglu`"),
    "latents": (MLA % 4, "tp = 2", LORA, "adapters with `mla`"),
    "gradients put off": ("", "pp = 2, schedule = zero_bubble", LORA, "adapters with `schedule`"),
    "no family": ("embedding_norm = on", "", WEIGHTS, "knows no family of Hugging Face models"),
    "weights and adapters": ("", "", f"{WEIGHTS} {LORA}", "under adapters from their `base`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    model, parallel, train, words = REFUSED[name]
    path = tmp_path / "job.par"
    path.write_text(TEXT.format(model=model, parallel=parallel, train=train))
    told = [error.message for error in pipeline.check(path, ["torch"]).errors]
    assert any(words in message for message in told), told


def test_copies_of_stages_are_whole(tmp_path: Path) -> None:
    """Until the step ends: alone, or with the state alone cut."""
    for zero, gpus, refused in ((1, 4, False), (2, 4, True), (2, 2, False)):
        parallel = f"pp = 2, schedule = dualpipe, zero = {zero}"
        text = TEXT.format(model="", parallel=parallel, train="").replace("16, steps", "32, steps")
        (tmp_path / "job.par").write_text(text.replace("gpus = 2", f"gpus = {gpus}"))
        told = [error.message for error in pipeline.check(tmp_path / "job.par", ["torch"]).errors]
        said = "target torch cannot express `zero = 2` beside `dualpipe` yet"
        assert told == ([said] if refused else [])
