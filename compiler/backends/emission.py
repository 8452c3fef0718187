"""What a back end gives, and what it says it can express."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parlay.dsl.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class Emission:
    """The files of one target by their paths inside the output folder, or why there are none."""

    files: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()

    def files_of(self, folder: str) -> dict[str, str]:
        """The files of one folder, by their names inside it."""
        return {
            path.removeprefix(f"{folder}/"): text
            for path, text in self.files.items()
            if path.startswith(f"{folder}/")
        }

    def folders(self) -> dict[str, dict[str, str]]:
        """The files by folder: `torch`, or `PHASE/torch`."""
        names = dict.fromkeys(path.rpartition("/")[0] for path in self.files)
        return {name: self.files_of(name) for name in names}
