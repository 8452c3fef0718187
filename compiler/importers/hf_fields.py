"""The fields of a `config.json`, each read by its type, and what nothing has read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from parlay.compiler.importers.written import in_range

Values = dict[str, Any]


class Unreadable(Exception):
    """Why a file gives no model, in words for its reader."""


def shown(value: object) -> str:
    """A value as a message has it."""
    return repr(value)[:60]


_SAYS_NOTHING: Final = re.compile(
    r"_.*|model_type|architectures|(torch_)?dtype|transformers_version|auto_map|use_cache"
    r"|.*token(_id|_ids)?|pretraining_tp|output_.*|task_specific_params|summary_.*|reorder_.*"
)
"""Keys of the library, of its tokenizer and of inference."""

NESTED: Final = ("rope_scaling", "rope_parameters")
"""Where files say how rotary positions turn: older ones and newer ones."""
STRETCHED: Final = ("linear", "dynamic", "llama3", "yarn", "longrope")
"""Kinds of stretched positions that the language has a word for."""

LAYERS: Final = ("full_attention", "sliding_attention")
"""Kinds of layers that newer files have rope settings for each of."""

_USUAL: Final = {
    **{f"rope_parameters.{kind}.rope_type": "default" for kind in LAYERS},
    "rope_parameters.rope_type": "default",
    "rope_scaling.rope_type": "default",
    "rope_scaling.type": "default",
    "use_sliding_window": True,
    "ep_size": 1,
    "norm_type": "layer_norm",
    "mlp_type": "default",
    "seq_aux": True,
}
"""Values that say what holds anyway."""


def _kinds(values: Values) -> list[str]:
    """The attention of each layer, as newer files spell it out."""
    window = re.search(r"every = (\d+)", str(values.get("window", "")))
    every = int(window[1]) if window else 0 if "window" in values else 1
    return [
        "full_attention" if every and (layer + 1) % every == 0 else "sliding_attention"
        for layer in range(min(values["layers"], 10_000))
    ]


class Config:
    """Typed access: a field of the wrong type is told like one that is missing."""

    def __init__(self, fields: Mapping[str, Any], taken: set[str] | None = None) -> None:
        self._fields = fields
        self._taken: set[str] = set() if taken is None else taken

    def _get(self, name: str) -> Any:
        self._taken.add(name)
        return self._fields.get(name)

    def whole(self, *names: str, default: int | None = None) -> int:
        """The first of `names` that is there, a positive whole number."""
        for name in names:
            value = self._get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise Unreadable(f"{name} = {shown(value)} is no whole number")
            return value
        if default is None:
            raise KeyError(names[0])
        return default

    def number(self, *names: str, default: float) -> float:
        """The first of `names` that is there, a number."""
        for name in names:
            value = self._get(name)
            if value is None:
                continue
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if not plain or value < 0 or not in_range(value):
                raise Unreadable(f"{name} = {shown(value)} is no number")
            return float(value)
        return default

    def numbers(self, name: str) -> list[float]:
        """A list of numbers above 0."""
        value = self._get(name)
        found = value if isinstance(value, list) else [value]
        plain = [each for each in found if isinstance(each, int | float) and in_range(each)]
        if len(plain) != len(found) or any(each is True or each <= 0 for each in plain):
            raise Unreadable(f"{name} = {shown(value)} is no list of factors")
        return [float(each) for each in plain]

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self._get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Unreadable(f"{name} = {shown(value)} is neither true nor false")
        return value

    def text(self, name: str, default: str) -> str:
        """A string."""
        value = self._get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise Unreadable(f"{name} = {shown(value)} is no string")
        return value

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self._get(name) is not None

    def rope(self) -> Config:
        """Rope settings: `rope_parameters` of newer files, the top level and `rope_scaling` of
        older ones."""
        nested: dict[str, Any] = {}
        for name in NESTED:
            inside = self._fields.get(name)
            nested |= inside if isinstance(inside, dict) else {}
        return Config({**self._fields, **nested}, self._taken) if nested else self

    def of_layers(self, kind: str) -> Config:
        """The file as if all layers turned as those of a kind do, where newer files have rope
        settings for each."""
        inside = self._fields.get("rope_parameters")
        own = inside.get(kind) if isinstance(inside, dict) else None
        if not isinstance(own, dict):
            return self
        return Config({**self._fields, "rope_parameters": own}, self._taken)

    def kind_of_rope(self) -> str:
        """`default`, or the word for how positions are stretched, which is taken where known."""
        found = self._fields.get("rope_type", self._fields.get("type"))
        kind = found if isinstance(found, str) else "default"
        if kind in ("su", "yarn") and self._fields.get("model_type") == "phi3":
            kind = "longrope"  # what the first files of the family call it
        if kind in STRETCHED:
            self._taken |= {"rope_type", "type"}
        return kind

    def rest(self, values: Values) -> list[str]:
        """What nothing took, and says something of the model, a key and its value each."""
        fields = dict(self._fields)
        for name in NESTED:
            inside = self._fields.get(name)
            if isinstance(inside, dict):
                del fields[name]
                for key, value in inside.items():
                    of_layers = value if isinstance(value, dict) and key in LAYERS else {"": value}
                    for end, each in of_layers.items():
                        fields[f"{name}.{key}.{end}".rstrip(".")] = each
        if fields.get("use_sliding_window") is False:
            fields |= dict.fromkeys(("sliding_window", "max_window_layers"))
        if fields.get("layer_types") == _kinds(values):
            del fields["layer_types"]
        return [
            f"{name} = {str(value)[:200]}"
            for name, value in fields.items()
            if name.rpartition(".")[2] not in self._taken
            and value not in (None, False, [], {})
            and not _SAYS_NOTHING.fullmatch(name)
            and _USUAL.get(name) != value
        ]
