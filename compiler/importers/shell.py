"""Launch scripts of the shell, read and never run: variables, arrays, branches, quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from parlay.compiler.importers import shell_text
from parlay.compiler.importers.shell_conditions import Truth, decide, is_test
from parlay.compiler.importers.shell_values import (
    LONGEST,
    NAME,
    Script,
    arithmetic,
    expand,
    expanded,
)

__all__ = ["Script", "expanded", "read"]

_ASSIGNMENT: Final = re.compile(rf"({NAME})(\+?)=")

_DECLARES: Final = ("export", "declare", "local", "readonly", "set", "typeset")
_PREFIXES: Final = ("{", "}", "!", "time", "exec", "nohup")
_SHELLS: Final = ("bash", "sh")
_DEEPEST: Final = 4
_LARGEST: Final = 1 << 20
_MOST_WORDS: Final = 100_000


@dataclass(slots=True)
class _Frame:
    """An `if`, `case` or loop: whether its arm runs, and what arms before it did.

    `set_here` are the variables that its undecided arms have set, of which the first is taken.
    """

    kind: str
    arm: Truth = None
    before: Truth = False
    subject: str | None = None
    set_here: set[str] = field(default_factory=set)

    def enter(self, value: Truth) -> None:
        """Begins the next arm, whose own condition has that value."""
        if self.before is False:
            self.arm = self.before = value
        else:
            self.arm = False if self.before or value is False else None


def read(text: str, folder: Path | None = None) -> Script:
    """The script of a text, with what it sources of `folder`; nothing in it is run."""
    reader = _Reader(folder)
    reader.whole(text)
    return reader.script


class _Reader:
    def __init__(self, folder: Path | None) -> None:
        self.script = Script()
        self._folder = folder
        self._frames: list[_Frame] = []
        self._asked: list[tuple[str, str]] | None = None
        self._pattern = ""
        self._ender = "\n"
        self._last: Truth = None
        self._tested = False
        self._depth = 0
        self._once: set[str] = set()

    def whole(self, text: str) -> None:
        """Takes every statement of a text."""
        for raw, ended in shell_text.statements(text):
            self.take(raw, ended)

    def take(self, raw: str, ended: str) -> None:
        before, self._ender = self._ender, ended
        first = raw.split(maxsplit=1)[0] if raw else ""
        if self._asked is not None:
            if first not in ("then", "do"):
                self._asked.append((before, raw))
                return
            self._decided()
            raw, first = self._without(raw)
        while first in ("then", "do", "else", "if", "elif", "while", "until", "for", "case"):
            if not self._opened(first, raw):
                return
            raw, first = self._without(raw)
        if first in ("fi", "done", "esac"):
            self._frames = self._frames[:-1]
            self._last, self._pattern = None, ""
        elif self._pattern:
            self._arm_of_case(raw, ended)
        elif raw:
            self._statement(raw, before)
        if ended == ";;" and self._frames and self._frames[-1].kind == "case":
            self._pattern = " "

    def _without(self, raw: str) -> tuple[str, str]:
        rest = raw.split(maxsplit=1)[1:]
        found = rest[0] if rest else ""
        return found, (found.split(maxsplit=1) or [""])[0]

    # ── Branches ──────────────────────────────────────────────────────────────

    def _opened(self, first: str, raw: str) -> bool:
        """Takes a word that begins a branch; whether a statement stands behind it."""
        rest, _ = self._without(raw)
        if first in ("if", "while", "until"):
            self._frames.append(_Frame("if" if first == "if" else "loop"))
            self._asked = [("\n", rest)]
            return False
        if first == "elif":
            self._asked = [("\n", rest)]
            return False
        if first == "for":
            self._frames.append(_Frame("loop"))
            self._loop(rest)
            return False
        if first == "case":
            found = list(shell_text.words(rest))
            subject = self._value(found[0]) if found else None
            self._frames.append(_Frame("case", arm=False, subject=subject))
            self._pattern = " "
            return False
        if first == "else" and self._frames:
            self._frames[-1].enter(True)
        return bool(rest)

    def _decided(self) -> None:
        parts, self._asked = self._asked or [], None
        if self._frames:
            frame = self._frames[-1]
            value = decide(parts, self._value, self._sum) if frame.kind == "if" else None
            frame.enter(value)

    def _loop(self, rest: str) -> None:
        """`NAME in WORDS`: the first of them is read."""
        found = list(shell_text.words(rest))
        if len(found) > 2 and found[1] == "in" and re.fullmatch(NAME, found[0]):
            items = [each for raw in found[2:] for each in expand(self.script, raw)]
            if items:
                self.script.variables[found[0]] = items[:1]
                self.script.notes.append(f"{found[0]}={items[0]} (the first of a loop)")

    def _arm_of_case(self, raw: str, ended: str) -> None:
        """Collects `a | b)`, which the bar cuts, and enters the arm of that pattern."""
        self._pattern += raw + (ended if ended == "|" else " ")
        pattern, closes, rest = self._pattern.strip().removeprefix("(").partition(")")
        if not closes:
            return
        self._pattern = ""
        names = [self._value(name.strip()) for name in pattern.split("|")]
        subject = self._frames[-1].subject
        if subject is None or None in names:
            self._frames[-1].enter(None)
        else:
            self._frames[-1].enter(any(fnmatchcase(subject, name or "") for name in names))
        if rest.strip():
            self._statement(rest.strip(), "\n")

    # ── Statements ────────────────────────────────────────────────────────────

    def _runs(self) -> Truth:
        """Whether what stands here runs: no where one branch around it does not."""
        arms = [frame.arm for frame in self._frames]
        return False if False in arms else None if None in arms else True

    def _statement(self, raw: str, before: str) -> None:
        runs = self._runs()
        if before in ("&&", "||") and self._last is not None:
            runs = runs if self._last == (before == "&&") else False
        elif before in ("&&", "||") and runs and (self._tested or before == "||"):
            runs = None
        if before not in ("&&", "||"):
            self._once = set()
        self._tested = is_test(raw)
        if self._tested:
            value = decide([("\n", raw)], self._value, self._sum)
            self._last = value if runs else self._last if runs is False else None
            return
        if runs is not False:
            self._last = None
        self._do(raw, runs)

    def _do(self, raw: str, runs: Truth) -> None:
        script = self.script
        words = shell_text.without_redirections(list(shell_text.words(raw)))
        while words and words[0] in _PREFIXES:
            words.pop(0)
        if words and words[0] in _DECLARES:
            words = [word for word in words[1:] if _ASSIGNMENT.match(word)]
        undecided = next((frame for frame in self._frames if frame.arm is None), None)
        earlier = undecided.set_here if undecided else self._once
        while words and (found := _ASSIGNMENT.match(words[0])):
            if runs is False:
                script.passed.add(found[1])
                words.pop(0)
            else:
                _assign(script, words.pop(0), runs is None, earlier)
        if not words or runs is False:
            return
        if words[0] == "eval":
            # What is handed to eval is read once more, with the quotes in it.
            self._again(" ".join(each for word in words[1:] for each in expand(script, word)), runs)
            return
        if words[0] in ("source", ".") and len(words) > 1:
            self._source("".join(expand(script, words[1], split=False)))
            return
        if words[0].startswith("--"):
            script.notes.append(f"{' '.join(words)[:200]}: the command ends on a line before it")
        expanded = [each for word in words for each in expand(script, word)][:_MOST_WORDS]
        script.commands.append(expanded)
        for shell, option, text in zip(expanded, expanded[1:], expanded[2:], strict=False):
            if shell.rpartition("/")[2] in _SHELLS and re.fullmatch("-[a-z]*c", option):
                self._again(text, runs)

    def _source(self, name: str) -> None:
        """Reads a file that the script brings in, where it is in the script's own folder."""
        if Path(name).name == "activate":  # an environment of Python
            return
        tails = [Path(*Path(name).parts[-parts:]) for parts in (3, 2, 1)]
        found = [self._folder / tail for tail in tails if self._folder and ".." not in tail.parts]
        file = next((file for file in found if _is_small(file)), None)
        if file is None or self._depth >= _DEEPEST:
            self.script.notes.append(f"source {name}: it is not in the folder of the script")
            return
        self._depth += 1
        self.whole(file.read_text(encoding="utf-8", errors="replace"))
        self._depth -= 1

    def _again(self, text: str, runs: Truth) -> None:
        """A text that another shell reads, with the variables of this one."""
        if self._depth < _DEEPEST:
            self._depth += 1
            for raw, _ in list(shell_text.statements(text[:LONGEST])):
                self._do(raw, runs)
            self._depth -= 1

    def _value(self, word: str) -> str | None:
        """The value of a word; None where a variable in it has none, or a command gives it."""
        known = len(self.script.unknown)
        found = "".join(expand(self.script, word, split=False))
        asks = len(self.script.unknown) > known
        del self.script.unknown[known:]
        return None if asks or "$(" in found or "`" in found else found

    def _sum(self, text: str) -> str:
        return arithmetic(self.script, text, 0)


def _is_small(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= _LARGEST
    except OSError:
        return False


def _assign(script: Script, word: str, branched: bool, earlier: set[str]) -> None:
    found = _ASSIGNMENT.match(word)
    assert found is not None
    name, more, value = found[1], bool(found[2]), word[found.end() :]
    if branched:
        if name in earlier and not more:
            script.branches.append(word)
            return
        earlier.add(name)
        script.branches.append(f"{word} (taken)")
    if value.startswith("("):
        inside = value[1:-1] if value.endswith(")") else value[1:]
        items = [each for raw in shell_text.words(inside) for each in expand(script, raw)]
    else:
        items = [" ".join(expand(script, value, split=False))]
    if sum(map(len, items)) > LONGEST:
        script.unknown.append(name)
        return
    if more and value.startswith("("):
        script.variables[name] = [*script.variables.get(name, []), *items]
    elif more:
        script.variables[name] = ["".join([*script.variables.get(name, []), *items])]
    else:
        script.variables[name] = items
