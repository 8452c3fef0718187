"""A folder of Hugging Face weights: `config.json` and safetensors, read without trust.

Safetensors hold tensors and a JSON header, so that reading them runs no code; pickles are not read.
Their index names files, which have to lie in the folder itself. Symbolic links are followed: the
hub's cache is made of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from parlay.runtime.hf_families import FAMILIES, TIED
from parlay.runtime.saved import CheckpointError
from torch import Tensor

CONFIG: Final = "config.json"
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
FILE: Final = re.compile(r"[\w-][\w.-]*\.safetensors", re.ASCII)
LARGEST: Final = {CONFIG: 1 << 20, INDEX: 64 << 20}
FLOATS: Final = ("F64", "F32", "F16", "BF16")


def is_folder(path: Path) -> bool:
    """Whether `path` looks like one: it has a config.json, and no save's manifest."""
    return (path / CONFIG).is_file() and not (path / "committed.json").exists()


def safetensors() -> Any:
    """The library, which only those need who read or write such files."""
    try:
        import safetensors.torch
    except ImportError:
        raise CheckpointError(
            "Hugging Face weights need the package safetensors: pip install safetensors"
        ) from None
    return safetensors


class WeightsFolder:
    """The tensors in `path` by name; files are opened when they are first read from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = json_of(path / CONFIG)
        self._open: dict[str, Any] = {}
        files = self._files()
        self._bare = _bare(files, self.config.get("model_type"))
        """What names lack in front: a model that was saved without its head has none of it."""
        head = "lm_head.weight"
        self.files = {n if n == head else self._bare + n: file for n, file in files.items()}
        """The file of each tensor."""

    def _files(self) -> Mapping[str, str]:
        if (self.path / SINGLE).exists():
            return dict.fromkeys(self._file(SINGLE).keys(), SINGLE)
        if not (self.path / INDEX).exists():
            pickles = any(self.path.glob("*.bin")) or any(self.path.glob("*.pt*"))
            words = ", only pickles, which can run code" if pickles else ""
            raise CheckpointError(f"{self.path} has neither {SINGLE} nor {INDEX}{words}")
        files = json_of(self.path / INDEX).get("weight_map")
        if not isinstance(files, dict) or not files:
            raise CheckpointError(f"{self.path / INDEX} has no weight_map")
        for name, file in files.items():
            if not isinstance(file, str) or not FILE.fullmatch(file):
                raise CheckpointError(
                    f"{self.path / INDEX} has {name[:80]!r} in {str(file)[:80]!r}, which is no "
                    "safetensors file of the folder"
                )
        return files

    def _file(self, name: str) -> Any:
        if name not in self._open:
            library, path = safetensors(), self.path / name
            if not path.is_file():
                raise CheckpointError(f"{path} is {'no file' if path.exists() else 'missing'}")
            try:
                self._open[name] = library.safe_open(path, framework="pt")
            except (library.SafetensorError, OSError, ValueError, RecursionError) as error:
                raise CheckpointError(f"{path} cannot be read: {error}") from None
        return self._open[name]

    def slice(self, name: str) -> Any:
        """The tensor `name`, of which nothing is read yet; raises KeyError where it is missing."""
        file = self._file(self.files[name])
        try:
            return file.get_slice(name.removeprefix(self._bare))
        except safetensors().SafetensorError:
            raise KeyError(name) from None

    def wrong(self, name: str, shape: Iterable[int]) -> str:
        """Why tensor `name` is not one of this shape; empty where it is."""
        try:
            found = self.slice(name)
        except KeyError:
            return "is missing"
        if found.get_dtype() not in FLOATS:
            known = ", ".join(FLOATS)
            return (
                f"is in {found.get_dtype()}, of which scales are kept elsewhere; read are {known}"
            )
        if list(found.get_shape()) != list(shape):
            return f"is {list(found.get_shape())}, here {list(shape)}"
        return ""

    def read(self, name: str, *ranges: tuple[int, int]) -> Tensor:
        """A part of tensor `name`, a range of each dim."""
        found: Tensor = self.slice(name)[tuple(slice(*one) for one in ranges)]
        return found


def _bare(names: Iterable[str], kind: Any) -> str:
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    front = "" if family is None else family.layers.partition(".")[0] + "."
    return "" if any(name.startswith(front) for name in names) else front


def json_of(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        if path.stat().st_size > LARGEST[path.name]:
            raise CheckpointError(f"{path} is larger than {LARGEST[path.name] >> 20} MiB")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return found


# ── Whether a config says what the job does ───────────────────────────────────

USUAL: Final[Mapping[str, Any]] = {
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "decoder_sparse_step": 1,
}
"""What a config that leaves a key out means."""
OF_FAMILY: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt2": {"hidden_act": "gelu_pytorch_tanh"},
    "gpt_neox": {
        "attention_bias": True,
        "hidden_act": "gelu",
        "partial_rotary_factor": 0.25,
        "use_parallel_residual": True,
    },
    "gpt_oss": {"attention_bias": True},
    "glm4_moe": {"partial_rotary_factor": 0.5},
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh", "use_bias": True},
    "gemma3_text": {
        "hidden_act": "gelu_pytorch_tanh",
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    },
}
"""Where a family means something else."""
SIZED: Final = frozenset(
    {
        *("architectures", "max_position_embeddings", "initializer_range", "router_aux_loss_coef"),
        *("query_pre_attn_scalar", "num_nextn_predict_layers", "rope_scaling", "rope_parameters"),
        *("n_inner", "num_key_value_heads", "head_dim"),
        *("resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout", "attention_dropout"),
        *("residual_dropout", "embedding_dropout", "pad_token_id"),
    }
)
"""Keys that say nothing of what a weight means here, or are compared in another way."""
SAME: Final = {"mistral": ("llama",), "phi3": ("llama", "mistral")}
"""Families that some models of others may have: without windows, turned whole."""
ALTERNATING: Final = ("gemma2", "gpt_oss")
"""Families whose every other layer sees everything, where the config does not say it."""
ACTS: Final = {"gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh", "swish": "silu"}


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Where the folder's config describes another model than the job's, each in words."""
    ours, theirs = _flat(ours), _flat(theirs)
    kind, other = ours["model_type"], theirs.get("model_type")
    if other != kind and kind not in SAME.get(str(other), ()):
        return [f"model_type is {str(other)[:60]!r}, the job's model is one of {kind!r}"]
    found = []
    means = {**USUAL, "tie_word_embeddings": kind in TIED, **OF_FAMILY.get(kind, {})}
    for key, mine in ours.items():
        if key in SIZED or key == "model_type":
            continue
        usual = means.get(key)
        value = usual if theirs.get(key) is None else theirs[key]
        if value is None and key not in theirs:
            continue
        if not _same(mine, value):
            found.append(f"{key} is {shown(value)}, the job has {shown(mine)}")
    return found


def shown(value: Any) -> str:
    """A value of a file as a message has it: on one line, and nothing that a terminal obeys."""
    return "".join(one if one.isprintable() else "?" for one in str(value)[:80])


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what newer files keep apart where older ones have it, and by one name."""
    flat = dict(config)
    for key in ("rope_scaling", "rope_parameters"):
        inside = flat.get(key)
        if isinstance(inside, Mapping) and isinstance(inside.get("full_attention"), Mapping):
            near = inside.get("sliding_attention")
            if isinstance(near, Mapping) and "rope_theta" in near:
                flat["rope_local_base_freq"] = near["rope_theta"]
            inside = inside["full_attention"]
        if isinstance(inside, Mapping):
            flat |= {name: value for name, value in inside.items() if name != "type"}
            flat["rope_type"] = inside.get("rope_type", inside.get("type", "default"))
    flat.setdefault("rope_type", "default")
    if flat.get("model_type") == "phi3" and flat["rope_type"] in ("su", "yarn"):
        flat["rope_type"] = "longrope"  # what the first files of the family call it
    if not flat.get("mscale_all_dim"):  # without it the library takes no `mscale`
        flat.pop("mscale", None)
    if flat.get("use_sliding_window") is False:
        flat["sliding_window"] = None
    flat.setdefault("sliding_window", None)
    names = {
        "num_local_experts": "num_experts",
        "rotary_emb_base": "rope_theta",
        "rotary_pct": "partial_rotary_factor",
        "n_ctx": "n_positions",
        "activation_function": "hidden_act",
        "hidden_activation": "hidden_act",
    }
    for name, usual in names.items():
        if (value := flat.pop(name, None)) is not None:
            flat.setdefault(usual, value)
            flat[usual] = value if flat[usual] is None else flat[usual]
    act = flat.get("hidden_act")
    flat["hidden_act"] = ACTS.get(act, act) if isinstance(act, str) else act
    layers = flat.get("num_hidden_layers")
    if isinstance(layers, int) and layers <= 10_000:
        usual_kind = "sliding_attention" if flat["sliding_window"] else "full_attention"
        other = "full_attention" if flat.get("model_type") in ALTERNATING else usual_kind
        pattern = [usual_kind, other]
        if flat.get("model_type") == "gemma3_text":
            every = flat.get("sliding_window_pattern", 6)
            several = isinstance(every, int) and 1 < every <= 10_000
            pattern = [usual_kind] * (every - 1) + ["full_attention"] if several else pattern
        flat.setdefault("layer_types", (pattern * layers)[:layers])
    return flat


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float | int) and isinstance(theirs, float | int):
        return bool(abs(mine - theirs) <= 1e-9 * max(abs(mine), abs(theirs)))
    return bool((mine or None) == (theirs or None))
