"""Stretched rotary positions against `transformers`: frequencies and factors, from its own
`config.json` through the importer to the code that runs, and whole models by the plain one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from parlay.compiler import pipeline  # noqa: E402
from parlay.compiler.backends import stretched  # noqa: E402
from parlay.compiler.backends.torch import plan_model  # noqa: E402
from parlay.compiler.backends.torch.plan_model import rotary_dim  # noqa: E402
from parlay.compiler.backends.torch.proof import _bands  # noqa: E402
from parlay.reference.model import Config  # noqa: E402
from parlay.reference.waves import steepness, waves  # noqa: E402
from parlay.runtime import stretch  # noqa: E402
from parlay.runtime.plan import Section  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

pytestmark = pytest.mark.slow  # by what is imported

LLAMA = {"rope_theta": 5e5, "hidden_size": 2048, "num_attention_heads": 16}
LATENT = {"rope_theta": 1e4, "qk_rope_head_dim": 64, "num_experts_per_tok": 2}
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096}
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
PHI = {"rope_theta": 1e4, "hidden_size": 64, "num_attention_heads": 4, "pad_token_id": 0}
LONG = {
    "rope_type": "longrope",
    "partial_rotary_factor": 0.5,
    "short_factor": [1.0, 1.25, 1.5, 2.0],
    "long_factor": [1.5, 3.0, 8.0, 40.0],
}

CONFIGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama 3.1": ("Llama", LLAMA, {"rope_type": "llama3", "factor": 8.0, **BANDS}),
    "bands of other ends": (
        "Llama",
        LLAMA,
        {"rope_type": "llama3", "factor": 32.0, **BANDS, "high_freq_factor": 2.5},
    ),
    "deepseek v3": ("DeepseekV3", LATENT, YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}),
    "deepseek v2 lite": (
        "DeepseekV2",
        LATENT,
        YARN | {"mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1},
    ),
    "two scales": ("DeepseekV3", LATENT, YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}),
    "the second scale alone": ("DeepseekV3", LATENT, YARN | {"mscale_all_dim": 0.5}),
    "kimi k2": (
        "DeepseekV3",
        LATENT | {"rope_theta": 5e4},
        YARN
        | {
            "factor": 32.0,
            "beta_fast": 1.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    ),
    "gpt-oss": (
        "GptOss",
        {"rope_theta": 1.5e5, "head_dim": 64},
        YARN | {"factor": 32.0, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0},
    ),
    "a factor that is said": ("Qwen3", LLAMA, YARN | {"factor": 4.0, "attention_factor": 1.25}),
    "a factor that follows": (
        "Qwen3",
        LLAMA | {"max_position_embeddings": 32768},
        {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 8192},
    ),
    "a scale that is passed over": ("Qwen3", LLAMA, YARN | {"mscale": 0.5}),
    "phi-3, long": (
        "Phi3",
        PHI | {"max_position_embeddings": 8192, "original_max_position_embeddings": 512},
        LONG | {"factor": None, "original_max_position_embeddings": 512},
    ),
    "phi-3, short": (
        "Phi3",
        PHI | {"max_position_embeddings": 8192, "original_max_position_embeddings": 2048},
        LONG | {"attention_factor": 1.5, "original_max_position_embeddings": 2048},
    ),
    "dynamic": ("Llama", LLAMA | {"max_position_embeddings": 512}, {"rope_type": "dynamic"}),
}
SEQ = 1024
"""Beyond the positions of `dynamic` alone."""


@pytest.mark.parametrize("name", CONFIGS)
def test_frequencies_and_factors(name: str, tmp_path: Path) -> None:
    kind, fields, asked = CONFIGS[name]
    asked = {"factor": 4.0, **asked, "rope_theta": fields["rope_theta"]}
    rest = {key: value for key, value in fields.items() if key != "rope_theta"}
    theirs = getattr(transformers, f"{kind}Config")(rope_parameters=asked, **rest)
    frequencies, size = ROPE_INIT_FUNCTIONS[asked["rope_type"]](theirs, seq_len=SEQ)
    config = json.loads(theirs.to_json_string(use_diff=False))
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "a.par").write_text('model from "config.json"\n')
    job = pipeline.load(tmp_path / "a.par")
    assert not job.diagnostics, [told.message for told in job.diagnostics]
    model = job.phases[0].spec.model
    assert model is not None and model.rope_scaling is not None and model.rope is not None
    r, options = rotary_dim(model), model.rope_scaling.options
    assert r == 2 * len(frequencies)

    theta = stretched.theta(model, seq=SEQ, turning=r)
    device = torch.device("cpu")
    if model.rope_scaling.name == "dynamic":
        ours = stretch._own(theta, r, device)
    else:
        make = getattr(stretch, model.rope_scaling.name)
        if make is stretch.longrope:
            options = plan_model._stretched(model, model.rope_scaling, seq=SEQ)["longrope"]
        ours = make(theta, r, Section(options, path="plan"), device=device)
    assert torch.allclose(ours, frequencies.double(), rtol=3e-6, atol=0)
    assert stretched.amplitude(model.rope_scaling) == pytest.approx(size, rel=1e-12)

    plain = Config(
        layers=1, hidden=8, heads=1, kv_heads=1, head_dim=r, ffn=8, vocab=8,
        rope_theta=model.rope["theta"], rope_bands=_bands(model), context=model.context,
    )  # fmt: skip
    apart, size_apart = waves(plain, r // 2, SEQ)
    assert torch.allclose(torch.tensor(apart, dtype=torch.float64), ours, rtol=1e-12, atol=0)
    assert size_apart == pytest.approx(size, rel=1e-12)
    if model.mla is not None:
        attention = transformers.models.deepseek_v3.modeling_deepseek_v3
        steep = attention.yarn_apply_mscale(theirs.rope_parameters, 1.0)
        assert stretched.score_factor(model) == pytest.approx(steep, rel=1e-12)
        assert plain.rope_bands is not None
        assert steepness(plain.rope_bands) == pytest.approx(steep, rel=1e-12)


def test_a_head_of_two_ends() -> None:
    """Where both ends of the mixture meet, it is a step."""
    asked = {"factor": 4.0, "original": 6, "beta_fast": 1.0, "beta_slow": 1.0, "truncate": True}
    made = stretch.yarn(10000.0, 8, Section(asked, path="x"), device=torch.device("cpu"))
    own = [10000.0 ** (-pair / 4) for pair in range(4)]
    assert made.tolist() == pytest.approx([own[0], *(each / 4 for each in own[1:])])
