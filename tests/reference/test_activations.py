"""Each activation of the language, as emitted and in the reference, against `transformers`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
activations = pytest.importorskip("transformers.activations")

from parlay.compiler.backends.torch.model_layer import ACTIVATIONS as EMITTED  # noqa: E402
from parlay.compiler.spec.blocks.model import ACTIVATIONS, GATED  # noqa: E402
from parlay.reference.model import ACTIVATIONS as REFERENCE  # noqa: E402
from parlay.runtime import activation  # noqa: E402
from torch.nn import functional as F  # noqa: E402

pytestmark = pytest.mark.slow  # by what is imported

THEIRS = {
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "quick_geglu": "quick_gelu",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_same_numbers(name: str) -> None:
    x = torch.linspace(-6, 6, 201, dtype=torch.float64)
    up = torch.linspace(2, 3, 201, dtype=torch.float64)
    bent = activations.ACT2FN[THEIRS[name]](x)
    wanted = bent * up if name in GATED else bent
    code = EMITTED[name].format(gate="x", up="up" if name in GATED else "x")
    emitted = eval(code, {"F": F, "activation": activation, "x": x, "up": up})
    ours = REFERENCE[name](x) * (up if name in GATED else 1)
    torch.testing.assert_close(emitted, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_the_two_forms_of_gelu_differ() -> None:
    x = torch.tensor(2.0, dtype=torch.float64)
    assert abs(REFERENCE["gelu"](x) - REFERENCE["gelu_tanh"](x)) > 1e-5
