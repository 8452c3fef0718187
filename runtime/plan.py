"""plan.json as frozen attributes: `plan.batch.seq`, `plan.mesh["tp"]`. Pure Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

VERSION = 1
"""The version of plan.json that this runtime reads."""


class Section(Mapping[str, Any]):
    """A frozen JSON object, read by attribute or by key; lists in it are tuples."""

    __slots__ = ("_fields", "_path")

    def __init__(self, fields: Mapping[str, Any], *, path: str) -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(
            self,
            "_fields",
            {name: _frozen(value, path=f"{path}.{name}") for name, value in fields.items()},
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(
                f"{self._path} has no field {name}; it has {', '.join(self._fields)}"
            ) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self._path}.{name} is frozen")

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.to_dict(), self._path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()!r})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object again, a copy."""
        return {name: _thawed(value) for name, value in self._fields.items()}


class Plan(Section):
    """The whole of plan.json; docs/emitted.md says what stands in it."""

    __slots__ = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Plan:
        """The plan with these fields."""
        if fields.get("version") != VERSION:
            raise ValueError(
                f"plan.json has version {fields.get('version')}; this runtime reads {VERSION}"
            )
        return cls(fields, path="plan")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in the file `path`."""
        return cls.of(json.loads(Path(path).read_text(encoding="utf-8")))


def _frozen(value: Any, *, path: str) -> Any:
    if isinstance(value, Mapping):
        return Section(value, path=path)
    if isinstance(value, list | tuple):
        return tuple(_frozen(item, path=f"{path}[{at}]") for at, item in enumerate(value))
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, Section):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_thawed(item) for item in value]
    return value


def _restored(cls: type[Section], fields: dict[str, Any], path: str) -> Section:
    return cls(fields, path=path)
