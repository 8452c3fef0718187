"""Launch scripts of the shell, read and never run: variables, arrays, continued lines, quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT: Final = re.compile(rf"({_NAME})(\+?)=")
_EXPANSION: Final = re.compile(
    rf"\$(?:\{{({_NAME}|[0-9@*])(\[[@*]\])?(:?[-=?+][^}}]*)?\}}|({_NAME})|([0-9@*#]))"
)
_UNQUOTED: Final = re.compile(r"(?:\$\{[^}]*\}|[^'\"])+")
"""What stands outside of quotes; those inside of `${NAME:-"default"}` are a part of it."""

_ARITHMETIC: Final = re.compile(r"[0-9+*/() -]+")
_BRANCHES: Final = ("if", "elif", "else", "case", "while", "for", "until")
_DEEPEST: Final = 20
_MOST_WORDS: Final = 100_000
_LONGEST: Final = 100_000


@dataclass(slots=True)
class Script:
    """What a script says: its last values of variables, and its commands as words.

    A variable that nothing sets stays as it is written, `$NAME`; `unknown` names those.
    """

    variables: dict[str, list[str]] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)


def read(text: str) -> Script:
    """The script of a text; nothing in it is run."""
    script = Script()
    branch = 0
    set_in_branch: set[str] = set()
    for raw in _statements(text):
        words = list(_raw_words(raw))
        while words and words[0] in ("then", "do", "else", "elif", "{", "}", "!", "time", "exec"):
            words.pop(0)
        if not words:
            continue
        if words[0] in _BRANCHES:
            branch += 1
            set_in_branch = set_in_branch if branch > 1 else set()
            continue
        if words[0] in ("fi", "done", "esac"):
            branch = max(0, branch - 1)
            continue
        if words[0] in ("export", "declare", "local", "readonly", "set"):
            words = [word for word in words[1:] if not word.startswith("-")]
        while words and _ASSIGNMENT.match(words[0]):
            _assign(script, words.pop(0), branch > 0, set_in_branch)
        if words:
            expanded = [each for word in words for each in _expand(script, word)]
            script.commands.append(expanded[:_MOST_WORDS])
    return script


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
        items = [each for raw in _raw_words(inside) for each in _expand(script, raw)]
    else:
        items = [" ".join(_expand(script, value, split=False))]
    if sum(map(len, items)) > _LONGEST:
        script.unknown.append(name)
        return
    if more and value.startswith("("):
        script.variables[name] = [*script.variables.get(name, []), *items]
    elif more:
        script.variables[name] = ["".join([*script.variables.get(name, []), *items])]
    else:
        script.variables[name] = items


# ── Text to statements to words ───────────────────────────────────────────────


def _statements(text: str) -> Iterator[str]:
    """Statements without comments, continued lines joined; arrays and quotes stay whole."""
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    start, index, depth = 0, 0, 0
    before: list[str] = []
    out: list[str] = []
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
            continue
        if char in "'\"`":
            index = _closed(text, index)
            continue
        if char == "#" and (index == 0 or text[index - 1] in " \t\n;("):
            end = text.find("\n", index)
            before.append(text[start:index])
            start = index = len(text) if end < 0 else end
            continue
        if char == "(":
            depth += 1
        elif char == ")":
            depth = max(0, depth - 1)
        if depth == 0 and (char in "\n;|" or text.startswith("&&", index)):
            out.append("".join([*before, text[start:index]]))
            before = []
            index += 2 if text.startswith(("&&", "||"), index) else 1
            start = index
            continue
        index += 1
    out.append("".join([*before, text[start:]]))
    yield from (one.strip() for one in out if one.strip())


def _closed(text: str, index: int) -> int:
    """The place behind the quote that opens at `index`."""
    quote = text[index]
    end = index + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote != "'" else 1
    return end + 1


def _raw_words(text: str) -> Iterator[str]:
    """Words as they are written, with their quotes."""
    index = start = depth = 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
            continue
        if char in "'\"`":
            index = _closed(text, index)
            continue
        depth += (char == "(") - (char == ")")
        if char.isspace() and depth <= 0:
            if text[start:index]:
                yield text[start:index]
            start = index + 1
        index += 1
    if text[start:]:
        yield text[start:]


# ── Expansion ─────────────────────────────────────────────────────────────────


def _expand(script: Script, word: str, *, split: bool = True) -> list[str]:
    """The words that one written word stands for."""
    whole = re.fullmatch(rf'"?\$\{{({_NAME})\[[@*]\]\}}"?', word)
    if whole and whole[1] in script.variables:
        items = script.variables[whole[1]]
        # Without quotes around it, the items of an array are split once more.
        return items if word.startswith('"') else [part for item in items for part in item.split()]
    parts: list[tuple[str, bool]] = []
    index = 0
    while index < len(word):
        char = word[index]
        if char == "'":
            end = _closed(word, index)
            parts.append((word[index + 1 : end - 1], True))
        elif char == '"':
            end = _closed(word, index)
            parts.append((_substituted(script, word[index + 1 : end - 1], quoted=True), True))
        else:
            found = _UNQUOTED.match(word, index)
            assert found is not None
            end = found.end()
            parts.append((_substituted(script, found[0], quoted=False), False))
        index = end
    if not split or all(quoted for _, quoted in parts):
        return ["".join(text for text, _ in parts)]
    out: list[str] = [""]
    for text, quoted in parts:
        if quoted:
            out[-1] += text
            continue
        pieces = re.split(r"\s+", text)
        out[-1] += pieces[0]
        out += pieces[1:]
    return [piece for piece in out if piece]


def _substituted(script: Script, text: str, *, quoted: bool, depth: int = 0) -> str:
    text = re.sub(
        r"\$\(\((.*?)\)\)", lambda found: _arithmetic(script, found[1], depth), text, flags=re.S
    )

    def replaced(found: re.Match[str]) -> str:
        name = found[1] or found[4] or found[5]
        value = script.variables.get(name)
        default = found[3] or ""
        if value is not None and not (value == [""] and default.startswith(":")):
            return "" if default.startswith(":+") else " ".join(value)
        if default.lstrip(":")[:1] in ("-", "=") and depth < _DEEPEST:
            return _expand_text(script, default.lstrip(":")[1:], depth + 1)
        script.unknown.append(name)
        return found[0]

    text = _EXPANSION.sub(replaced, text)
    escaped = r'\\([$"\\`])' if quoted else r"\\(.)"
    return re.sub(escaped, r"\1", text, flags=re.S)


def expanded(script: Script, text: str) -> str:
    """A text with the variables of a script in their places, as a here-document has them."""
    return _substituted(script, text, quoted=True)[:_LONGEST]


def _expand_text(script: Script, text: str, depth: int) -> str:
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    return _substituted(script, bare, quoted=True, depth=depth)


def _arithmetic(script: Script, text: str, depth: int) -> str:
    """The value of whole-number arithmetic; as it is written where it is no such thing."""
    inside = _substituted(script, text, quoted=True, depth=depth + 1) if depth < _DEEPEST else text
    named = re.sub(_NAME, lambda found: " ".join(script.variables.get(found[0], ["?"])), inside)
    if len(named) > 200 or not _ARITHMETIC.fullmatch(named):
        return f"$(({text}))"
    value = _Sum(named).value()
    return f"$(({text}))" if value is None else str(value)


class _Sum:
    """Whole-number sums and products, as a shell computes them."""

    def __init__(self, text: str) -> None:
        self._tokens = re.findall(r"\d+|[-+*/()]", text)
        self._at = 0

    def value(self) -> int | None:
        """The value; None for what does not parse, or a division by nothing."""
        try:
            found = self._sum()
        except (IndexError, ValueError, ZeroDivisionError, RecursionError):
            return None
        return found if self._at == len(self._tokens) else None

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _sum(self) -> int:
        value = self._product()
        while self._next() in ("+", "-"):
            self._at += 1
            sign = 1 if self._tokens[self._at - 1] == "+" else -1
            value += sign * self._product()
        return value

    def _product(self) -> int:
        value = self._atom()
        while self._next() in ("*", "/"):
            self._at += 1
            times = self._tokens[self._at - 1] == "*"
            other = self._atom()
            value = value * other if times else value // other
        return value

    def _atom(self) -> int:
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":
            value = self._sum()
            if self._tokens[self._at] != ")":
                raise ValueError
            self._at += 1
            return value
        return int(token)
