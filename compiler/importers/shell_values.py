"""Words of a shell script to their values: variables, defaults, arrays, arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from parlay.compiler.importers import shell_arithmetic, shell_text

NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
LONGEST: Final = 100_000

_ARRAY: Final = re.compile(rf'"?\$\{{({NAME})\[[@*]\]\}}"?')
_PARAMETER: Final = re.compile(
    rf"({NAME}|[0-9]+|[@*#])(?:\[([@*]|[0-9]+)\])?(:?[-=?+].*)?", re.DOTALL
)
_PLAIN: Final = re.compile(rf"\$({NAME}|[0-9@*#])")
_DEEPEST: Final = 20
_MOST_LINES: Final = 200
_HERE: Final = re.compile(
    r"\$\(\s*cat\s*<<-?[ \t]*(['\"]?)(\w+)\1[ \t]*\n(?P<body>(?:.*\n)*?)[ \t]*\2\s*\)"
)
"""`$(cat <<END … END)`, whose text is known."""


@dataclass(slots=True)
class Script:
    """What a script says: its last values of variables, and its commands as words.

    A variable that nothing sets stays as it is written, `$NAME`; `unknown` names those. One that
    only branches set which do not run is empty, as the shell has it. `branches` are what a branch
    does that hangs on what no script says, and other lines that may not be what was meant.
    """

    variables: dict[str, list[str]] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)

    def told(self) -> list[str]:
        """What a person should look at, a line each."""
        lines = [*(f"in a branch: {word}" for word in self.branches), *self.notes]
        more = len(lines) - _MOST_LINES
        return lines if more <= 0 else [*lines[:_MOST_LINES], f"and {more} more lines of branches"]


def expand(script: Script, word: str, *, split: bool = True) -> list[str]:
    """The words that one written word stands for."""
    whole = _ARRAY.fullmatch(word)
    if whole and (whole[1] in script.variables or whole[1] in script.passed):
        items = script.variables.get(whole[1], [])
        # Without quotes around it, the items of an array are split once more.
        return items if word.startswith('"') else [part for item in items for part in item.split()]
    parts = list(_parts(script, word))
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


def _parts(script: Script, word: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a word, expanded, and whether each is kept from being split."""
    index = 0
    while index < len(word):
        if word[index] in "'\"":
            end = shell_text.closed(word, index)
            inside = word[index + 1 : end - 1]
            yield (
                (inside if word[index] == "'" else _substituted(script, inside, quoted=True)),
                True,
            )
        elif shell_text.opens(word, index):
            end = shell_text.closed(word, index)
            whole = not word.startswith("${", index)
            yield _substituted(script, word[index:end], quoted=False), whole
        else:
            end = index + 1
            while end < len(word) and not shell_text.opens(word, end):
                end += 2 if word[end - 1 : end + 1] == "\\" else 1
            yield _substituted(script, word[index:end], quoted=False), False
        index = end


def _substituted(script: Script, text: str, *, quoted: bool, depth: int = 0) -> str:
    """A text with variables, arithmetic and escapes in their places.

    What a command would print is not known: `$(date +%s)` --> `$(date)`
    """
    out: list[str] = []
    index = 0
    while index < len(text):
        end = index + 1
        if text[index] == "\\" and end < len(text):
            end += 1
            out.append(
                text[index + 1] if not quoted or text[end - 1] in '$"\\`' else text[index:end]
            )
        elif text.startswith("$((", index) and text[: shell_text.closed(text, index)][-2:] == "))":
            end = shell_text.closed(text, index)
            out.append(arithmetic(script, text[index + 3 : end - 2], depth))
        elif text.startswith(("$(", "`"), index):
            end = shell_text.closed(text, index)
            if (here := _HERE.fullmatch(text, index, end)) is not None and depth < _DEEPEST:
                body = here["body"].rstrip("\n")
                out.append(
                    body if here[1] else _substituted(script, body, quoted=True, depth=depth + 1)
                )
                index = end
                continue
            named = text[index:end].strip("$()` \t\n").split(maxsplit=1)[:1]
            out.append(f"$({''.join(named)})")
        elif text.startswith("${", index):
            end = shell_text.closed(text, index)
            out.append(_parameter(script, text[index:end], text[index + 2 : end - 1], depth))
        elif (plain := _PLAIN.match(text, index)) is not None:
            end = plain.end()
            out.append(_parameter(script, plain[0], plain[1], depth))
        else:
            out.append(text[index])
        index = end
    return "".join(out)


def _parameter(script: Script, written: str, inside: str, depth: int) -> str:
    """The value of a variable, with its default; as it is written where nothing sets it."""
    found = _PARAMETER.fullmatch(inside)
    if found is None:
        script.unknown += re.findall(rf"{NAME}|[0-9]+", inside)[:1]
        return written
    name, default = found[1], found[3] or ""
    value = script.variables.get(name)
    if value is None and name in script.passed:
        value = [""]
    if value is not None and found[2] not in (None, "@", "*"):
        value = value[int(found[2]) :][:1] if len(found[2]) < 6 else []
    if value is not None and not (value == [""] and default.startswith(":")):
        if default.lstrip(":").startswith("+"):
            return _default(script, default, depth)
        return " ".join(value)
    if default.lstrip(":")[:1] in ("-", "=") and depth < _DEEPEST:
        return _default(script, default, depth)
    if default.lstrip(":").startswith("+"):
        return ""
    script.unknown.append(name)
    return written


def _default(script: Script, default: str, depth: int) -> str:
    text = default.lstrip(":")[1:]
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    return _substituted(script, bare, quoted=True, depth=depth + 1)


def expanded(script: Script, text: str) -> str:
    """A text with the variables of a script in their places, as a here-document has them."""
    return _substituted(script, text, quoted=True)[:LONGEST]


def arithmetic(script: Script, text: str, depth: int) -> str:
    """The value of whole-number arithmetic; as it is written where it is no such thing."""
    inside = _substituted(script, text, quoted=True, depth=depth + 1) if depth < _DEEPEST else text
    named = re.sub(NAME, lambda found: " ".join(script.variables.get(found[0], ["@"])), inside)
    value = shell_arithmetic.value(named)
    return f"$(({text}))" if value is None else str(value)
