"""Where in a half-typed text a cursor stands: read from the tokens before it, no tree needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from parlay.dsl.source import Source
from parlay.dsl.tokens import Token, tokenize


class Wants(StrEnum):
    """What may stand at the cursor."""

    NOTHING = "nothing"
    ITEM = "item"
    """A statement, or in a block a field or block."""
    VALUE = "value"
    OPTION = "option"
    """An option's name, a bare word or a plain value inside a call's parentheses."""
    STRING = "string"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Context:
    """`path` is the block, `field` the one whose value is asked for, `option` one of its options.

    `start` is the offset where the word under the cursor begins, `prefix` the word up to it (a
    whole path: `model.hea`); `word` is the keyword or block that a string belongs to; `given` what
    the innermost block or call has already.
    """

    wants: Wants
    start: int
    prefix: str = ""
    path: str = ""
    field: str = ""
    option: str = ""
    call: str = ""
    word: str = ""
    phase: str | None = None
    given: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Open:
    """A bracket that is open, the name before it, and the names met inside it."""

    kind: str
    name: str
    label: str | None = None
    given: set[str] = field(default_factory=set)
    current: str = ""
    """The field or option whose value is being read; empty between items."""


def context(text: str, offset: int) -> Context:
    """What may stand at `offset` of `text`, whatever stands after it."""
    before = text[:offset]
    line = before[before.rfind("\n") + 1 :]
    if _in_comment(line):
        return Context(Wants.NOTHING, offset)
    quote = _open_quote(line)
    if quote is not None:
        start = offset - len(line) + quote + 1
        tokens = _tokens(before[: start - 1])
        return _string(tokens, _nesting(tokens), start, before[start:])
    tokens = _tokens(before)
    start, prefix, tokens = _word(before, tokens)
    if tokens and tokens[-1].kind == "number" and tokens[-1].end == offset:
        return Context(Wants.NOTHING, offset)
    return _plain(tokens, start, prefix)


def _tokens(text: str) -> list[Token]:
    return tokenize(Source("", text)).tokens[:-1]


def _in_comment(line: str) -> bool:
    quoted = False
    for place, character in enumerate(line):
        if character == '"' and (place == 0 or line[place - 1] != "\\"):
            quoted = not quoted
        elif character == "#" and not quoted:
            return True
    return False


def _open_quote(line: str) -> int | None:
    """Where the string starts that the line's end is in."""
    start = None
    for place, character in enumerate(line):
        if character == '"' and (start is None or line[place - 1] != "\\"):
            start = place if start is None else None
    return start


def _word(before: str, tokens: list[Token]) -> tuple[int, str, list[Token]]:
    """The path or name that ends at the cursor, and the tokens before it."""
    end, kept = len(before), len(tokens)
    start = end
    while kept:
        token = tokens[kept - 1]
        wordy = token.kind == "." or (token.text[:1].isalpha() or token.text[:1] == "_")
        if token.end != start or not wordy:
            break
        start = token.start
        kept -= 1
    return start, before[start:end], tokens[:kept]


def _nesting(tokens: list[Token]) -> list[_Open]:
    """The brackets that are open after `tokens`, outermost first; the file itself is the first."""
    stack = [_Open("", "")]
    for index, token in enumerate(tokens):
        inner = stack[-1]
        match token.kind:
            case "{":
                name, label = _head(tokens[:index])
                inner.given.add(name)
                inner.current = ""
                stack.append(_Open("{", name, label))
            case "(" | "[":
                before = tokens[index - 1] if index else None
                called = before is not None and before.kind == "name" and token.kind == "("
                name = before.text if before is not None and called else ""
                if called and not inner.current and inner.kind == "{":
                    inner.given.add(name)
                    inner.current = name
                stack.append(_Open(token.kind, name))
            case "}" | ")" | "]":
                closes = {"}": "{", ")": "(", "]": "["}[token.kind]
                if any(each.kind == closes for each in stack):
                    while stack[-1].kind != closes:
                        stack.pop()
                    stack.pop()
            case ",":
                if inner.kind != "[":
                    inner.current = ""
            case "=":
                before = tokens[index - 1] if index else None
                if before is not None and before.kind == "name":
                    inner.given.add(before.text)
                    inner.current = before.text
            case "name":
                # In a call, a bare word is given; a block's fields need no comma between lines.
                if inner.kind == "(" and not inner.current:
                    inner.given.add(token.text)
                follows = tokens[index + 1].kind if index + 1 < len(tokens) else ""
                if inner.kind in ("{", "") and follows in ("{", "="):
                    inner.current = ""
    return stack


def _head(tokens: list[Token]) -> tuple[str, str | None]:
    """The keyword and the string label of the block that opens after `tokens`."""
    index = len(tokens) - 1
    label = None
    if index >= 1 and tokens[index].kind == "string" and tokens[index - 1].kind == "from":
        index -= 2
    if index >= 1 and tokens[index].kind == "string":
        label = str(tokens[index].value)
        index -= 1
    elif index >= 1 and tokens[index].kind == "name":
        above = tokens[index - 1]
        on_line = above.kind == "name" and (index < 2 or tokens[index - 2].kind not in ("=", "."))
        # `model tiny {`: the keyword is the word before, if it starts an item.
        if on_line and above.text == "model":
            index -= 1
    return (tokens[index].text, label) if index >= 0 else ("", None)


def _where(stack: list[_Open]) -> tuple[str, str | None]:
    """The path of the innermost block, and the phase it lies in."""
    names: list[str] = []
    phase = None
    for each in stack:
        if each.kind != "{":
            continue
        if each.name == "phase" and not names:
            phase = each.label
        elif each.name == "target" and not names:
            names.append(f"target.{each.label}")
        else:
            names.append(each.name)
    return ".".join(names), phase


def _string(tokens: list[Token], stack: list[_Open], start: int, prefix: str) -> Context:
    path, phase = _where(stack)
    word = tokens[-1].text if tokens else ""
    if word == "from":
        name, _ = _head(tokens[:-1])
        path = f"{path}.{name}" if path else name
    return Context(Wants.STRING, start, prefix, path, stack[-1].current, word=word, phase=phase)


def _plain(tokens: list[Token], start: int, prefix: str) -> Context:
    stack = _nesting(tokens)
    path, phase = _where(stack)
    inner = stack[-1]
    last = tokens[-1].kind if tokens else ""
    outer = next((each for each in reversed(stack) if each.kind in ("{", "")), stack[0])
    calls = [each for each in stack if each.kind == "(" and each.name]
    call = calls[-1].name if calls else ""
    given = frozenset(inner.given)

    def made(wants: Wants, field: str = "", option: str = "") -> Context:
        return Context(wants, start, prefix, path, field, option, call, phase=phase, given=given)

    if last == "allow":
        return made(Wants.CODE)
    if last in ("let", "import", "phase", "from"):
        return made(Wants.NOTHING)
    if inner.kind in ("(", "["):
        option = inner.current or (calls[-1].current if calls and inner.kind == "[" else "")
        if inner.kind == "(" and inner.name and last in ("(", ","):
            return made(Wants.OPTION, outer.current)
        return made(Wants.VALUE, outer.current, option)
    follows = ("=", "+", "-", "*", "/", "//", "<", "<=", ">", ">=", "==", "!=", "assert", "in")
    if last in follows:
        return made(Wants.VALUE, outer.current if last != "assert" else "")
    return made(Wants.ITEM)
