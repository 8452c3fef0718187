"""The text of a shell script to statements, and those to words, with their quotes as written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_DEEPEST: Final = 40
_HEREDOC: Final = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_PARENTHESIS: Final = {"(": ")", "{": "}"}


def closed(text: str, index: int, depth: int = 0) -> int:
    """The place behind what opens at `index`: a quote, `$(`, `${`, or a parenthesis."""
    if depth > _DEEPEST:
        return len(text)
    if text[index] == "$":
        index += 1
    opener = text[index]
    if opener in "'`":
        return _quoted(text, index)
    end = index + 1
    closer = _PARENTHESIS.get(opener, '"')
    while end < len(text) and text[end] != closer:
        if text[end] == "\\":
            end += 2
        elif text.startswith(("$(", "${", "`"), end) or (
            closer != '"' and (text[end] in "'\"" or text[end] == opener)
        ):
            end = closed(text, end, depth + 1)
        else:
            end += 1
    return min(end + 1, len(text))


def _quoted(text: str, index: int) -> int:
    quote, end = text[index], index + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote != "'" else 1
    return min(end + 1, len(text))


def opens(text: str, index: int) -> bool:
    """Whether a quote or a substitution begins here."""
    return text[index] in "'\"`" or text.startswith(("$(", "${"), index)


def statements(text: str) -> Iterator[tuple[str, str]]:
    """Statements, each with what ends it: `;`, `;;`, `&&`, `||`, `|`, `&` or the end of a line.

    Comments and here-documents are left out, continued lines joined; arrays, quotes and `[[ … ]]`
    stay whole.
    """
    text = text.replace("\r\n", "\n")
    kept: list[str] = []
    start = index = depth = 0
    awaited: list[str] = []
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
        elif opens(text, index):
            index = closed(text, index)
        elif char == "#" and (index == 0 or text[index - 1] in " \t\n;("):
            end = text.find("\n", index)
            kept.append(text[start:index])
            start = index = len(text) if end < 0 else end
        elif text.startswith("<<<", index):
            index += 3
        elif (here := _HEREDOC.match(text, index)) is not None:
            awaited.append(here[2])
            index = here.end()
        elif char == "\n" and awaited:
            kept.append(text[start:index])
            start = index = _behind(text, index, awaited)
        elif ended := _ender(text, index, depth):
            kept.append(text[start:index])
            yield from _whole(kept, ended.strip() or "\n")
            kept = []
            start = index = index + len(ended)
        else:
            depth = max(0, depth + _deeper(text, index))
            index += 1
    kept.append(text[start:])
    yield from _whole(kept, "\n")


def _whole(kept: list[str], ended: str) -> Iterator[tuple[str, str]]:
    whole = "".join(kept).replace("\\\n", " ").strip()
    if whole or ended == ";;":
        yield whole, ended


def _behind(text: str, index: int, awaited: list[str]) -> int:
    """The end of the line on which the last of the here-documents ends."""
    while awaited:
        name = awaited.pop(0)
        found = re.compile(rf"^[ \t]*{name}[ \t]*$", re.MULTILINE).search(text, index + 1)
        index = found.end() if found else len(text)
    return index


def _ender(text: str, index: int, depth: int) -> str:
    """What ends a statement here, if anything does."""
    if depth:
        return ""
    for ended in (";;", "&&", "||"):
        if text.startswith(ended, index):
            return ended
    if text[index] == "&":
        redirects = text[index - 1 : index] in ("<", ">") or text.startswith("&>", index)
        return "" if redirects else "&"
    return text[index] if text[index] in "\n;|" else ""


def _deeper(text: str, index: int) -> int:
    """+1 where an array, a subshell or `[[` opens, -1 where one closes."""
    if text[index] in "()":
        return 1 if text[index] == "(" else -1
    before = text[index - 1 : index]
    if before in ("", " ", "\t", "\n", ";", "!") and re.match(r"\[\[\s", text[index : index + 3]):
        return 1
    return -1 if before.isspace() and text.startswith("]]", index) else 0


def words(text: str) -> Iterator[str]:
    """Words as they are written, with their quotes."""
    index = start = depth = 0
    while index < len(text):
        if text[index] == "\\":
            index += 2
            continue
        if opens(text, index):
            index = closed(text, index)
            continue
        depth += (text[index] == "(") - (text[index] == ")")
        if text[index].isspace() and depth <= 0:
            if text[start:index]:
                yield text[start:index]
            start = index + 1
        index += 1
    if text[start:]:
        yield text[start:]


_REDIRECTION: Final = re.compile(r"(?:\d*|&)(?:>>|>\||>|<)(&\d|&-)?")


def without_redirections(found: list[str]) -> list[str]:
    """Words without `2>&1`, `> file` and their like."""
    out: list[str] = []
    skip = False
    for word in found:
        if skip:
            skip = False
            continue
        redirection = _REDIRECTION.match(word)
        if redirection is None or word.startswith(("<(", ">(")):
            out.append(word)
        else:
            skip = redirection[1] is None and redirection.end() == len(word)
    return out
