"""Words of a command line to options of Megatron-LM, each taken once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from parlay.compiler.backends.megatron.options import NEWEST, TABLES, Option, table
from parlay.compiler.importers import shell
from parlay.compiler.importers.folder import within
from parlay.compiler.importers.hf import Unreadable
from parlay.compiler.importers.written import in_range

LARGEST: Final = 1 << 20

RENAMED: Final = {
    "--layernorm-epsilon": "--norm-epsilon",
    "--fp8-hybrid": "--fp8-format",
    "--seq-len": "--seq-length",
}


def option_of(name: str) -> Option | None:
    """The option of that string in the newest table that has it."""
    for version in (NEWEST, *sorted(set(TABLES.values()) - {NEWEST}, reverse=True)):
        if name in table(version):
            return table(version)[name]
    return None


@dataclass(slots=True)
class Arguments:
    """The options of one run; what is taken was understood, `rest` is what was not.

    `script` is the Python file that they go to, `unset` are the variables that nothing sets.
    """

    values: dict[str, tuple[str, ...]]
    launcher: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    unset: frozenset[str] = frozenset()
    script: str = ""
    _taken: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Whether a flag or option is given; it is taken."""
        self._taken.add(name)
        return name in self.values

    def text(self, name: str, default: str | None = None) -> str | None:
        """The one value of an option, taken."""
        values = self.list(name)
        return values[0] if values else default

    def list(self, name: str) -> tuple[str, ...]:
        """All values of an option, taken."""
        values = self.values.get(name, ())
        if name not in self._taken:
            self.lost += [f"{name} {text}: nothing sets it" for text in values if self._asks(text)]
        self._taken.add(name)
        return values

    def _asks(self, text: str) -> bool:
        """Whether a command, or a variable that nothing sets, gives it; another `$` was quoted."""
        return "$(" in text or any(n in self.unset for n in re.findall(r"\$\{?(\w+)", text))

    def whole(self, name: str, default: int | None = None) -> int | None:
        """A whole number; what is none is told and stays out."""
        written = self.text(name)
        if written is None:
            return default
        try:
            found = int(written.replace("_", ""))
            if found < 0:
                raise ValueError
            return found
        except ValueError:
            self.lost.append(f"{name} {written}: no whole number")
            return default

    def real(self, name: str, default: float) -> float:
        """A number; what is none is told and stays out."""
        written = self.text(name)
        try:
            found = default if written is None else float(written)
            if not in_range(found) or found < 0:
                raise ValueError
            return found
        except ValueError:
            self.lost.append(f"{name} {written}: no number")
            return default

    def rest(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What nothing has taken."""
        yield from ((n, v) for n, v in self.values.items() if n not in self._taken)


def read(path: Path) -> Arguments:
    """The arguments of a file: a launch script, a list of options, or a folder with both."""
    if path.is_dir():
        return read(within(path, "pretrain.sh", "arguments.txt"))
    text = _text(path)
    if all(line.startswith(("-", "#")) for line in text.splitlines() if line.strip()):
        return parsed(_words(text))
    script = shell.read(text, path.parent)
    command = _command(script)
    if command is None:
        raise Unreadable("no command in it has options of Megatron-LM")
    # What a caller adds stands in no file.
    command = [word for word in command if word not in ("$@", "$*")]
    beside = path.parent / "arguments.txt"
    if "${arguments[@]}" in command and "arguments.txt" in text and beside.is_file():
        at = command.index("${arguments[@]}")
        command[at : at + 1] = _words(_text(beside))
    found = parsed(command)
    found.unset = frozenset(script.unknown)
    found.environment = {n: " ".join(v) for n, v in script.variables.items() if n.isupper()}
    found.lost += script.told()
    return found


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise Unreadable("it is no file" if path.exists() else "there is no such file")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"it is larger than {LARGEST // 1024} KiB")
        return path.read_text(encoding="utf-8", errors="replace").removeprefix("\ufeff")
    except OSError as failure:
        raise Unreadable(failure.strerror or "it cannot be read") from None


def _words(text: str) -> list[str]:
    try:
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        return [word for line in lines for word in shlex.split(line)]
    except ValueError as why:
        raise Unreadable(f"its quotes do not close: {why}") from None


def _command(script: shell.Script) -> list[str] | None:
    """The last command that trains: one with a known option of the model, or a pretraining script.

    Where none is there, all arrays with options are taken as one command.
    """
    told = [command for command in script.commands if command[0] in ("echo", "printf")]
    run = [command for command in script.commands if command not in told]
    for command in reversed([*told, *run]):
        if any(word.split("=")[0] in _MARKS for word in command) or "${arguments[@]}" in command:
            return command
    lists = [value for value in script.variables.values() if any(w in _MARKS for w in value)]
    return [word for value in lists for word in value] or None


_MARKS: Final = ("--num-layers", "--hidden-size", "--tensor-model-parallel-size", "--seq-length")


def parsed(words: Sequence[str]) -> Arguments:
    """Words to options; those before the Python script are the launcher's."""
    start = next((i + 1 for i, word in enumerate(words) if word.endswith(".py")), 0)
    if start == 0 and words and not words[0].startswith("-"):
        start = next((i for i, word in enumerate(words) if word in _MARKS), 0)
    found = Arguments({}, _launcher(words[:start]))
    found.script = Path(words[start - 1]).name if start and words[start - 1].endswith(".py") else ""
    name = ""
    for word in words[start:]:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            name = RENAMED.get(name, name)
            found.values[name] = (value,) if equals else ()
        elif name:
            known = option_of(name)
            if known is not None and (known.flag or (known.kind == "value" and found.values[name])):
                found.lost.append(f"{word}: a word after {name}")
                continue
            found.values[name] = (*found.values[name], word)
        else:
            found.lost.append(f"{word}: a word before any option")
    return found


def _launcher(words: Sequence[str]) -> dict[str, str]:
    """Options of torchrun and its like: `{"nnodes": "8", "nproc-per-node": "8"}`."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").replace("_", "-").partition("=")
        after = words[index + 1] if index + 1 < len(words) else ""
        found[name] = value if equals else after
    return found
