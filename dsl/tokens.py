"""Text to tokens. Whatever the text, there are tokens, comments and what is wrong with it."""

from __future__ import annotations

import re
from bisect import bisect_left
from fractions import Fraction
from typing import NamedTuple

from parlay.dsl import slips
from parlay.dsl.diagnostics.record import Diagnostic, Severity
from parlay.dsl.number_token import scan_number
from parlay.dsl.odd import HIDDEN, QUOTES, plain_symbol, plain_word
from parlay.dsl.source import Source, Span
from parlay.dsl.syntax import Comment

KEYWORDS = frozenset(
    {"let", "import", "from", "assert", "phase", "allow", "auto", "on", "off", "in"}
)


MOST_MISTAKES = 100
"""A text with more lexical mistakes is no `.par` file: the lexer stops there."""
_LONGEST_FOREIGN = 200


class Token(NamedTuple):
    """`kind` is `name`, `number`, `string`, `end`, or the keyword or sign itself.

    `value` is a number's bare value, None where it was told to be none, or a string with its
    escapes undone.
    """

    kind: str
    text: str
    start: int
    end: int
    value: Fraction | str | None = None
    unit: str = ""


class Lexed(NamedTuple):
    """The last token is of kind `end`. `lost` are the offsets where text was passed over: what a
    parser makes of the tokens around them says nothing new."""

    tokens: list[Token]
    comments: list[Comment]
    diagnostics: list[Diagnostic]
    lost: list[int]


_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\n]|\r\n)+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*+(?!\w))"
    r"|(?P<sign>//|<=|>=|==|!=|[-+*=<>{}()\[\],:;]|/(?!\*)|\.(?![0-9]))"
    r"|(?P<whole>[0-9]{1,40}+(?![\w.%$]))"
    r"|(?P<number>[0-9])"
    rf'|(?P<string>"[^"\\\t\n{HIDDEN}]*+")'
    r"|(?P<comment>#[^\n]*)"
)
_HIDDEN = re.compile(f"[{HIDDEN}]+")
_BAD_IN_STRING = re.compile(f"[\\t{HIDDEN}]+")
_WORD = re.compile(r"\w+")
_OPERAND = re.compile(r"\w|[ \t]+[\w(]")
_AFTER_STRAY = re.compile(rf"[\w\s\"'`{{}}()\[\]=,#.;:+*/<>%$\-{HIDDEN}]")


class _Lexer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.tokens: list[Token] = []
        self.comments: list[Comment] = []
        self.diagnostics: list[Diagnostic] = []
        self.lost: list[int] = []

    def run(self) -> Lexed:
        text, tokens, match, keywords = self.text, self.tokens, _TOKEN.match, KEYWORDS
        at, end = 0, len(text)
        while at < end:
            found = match(text, at)
            if found is None:
                at = self.odd(at)
                if len(self.diagnostics) > MOST_MISTAKES:
                    break
                continue
            kind, stop = found.lastgroup, found.end()
            if kind == "name":
                word = found.group()
                tokens.append(Token(word if word in keywords else "name", word, at, stop))
            elif kind == "sign":
                sign = found.group()
                tokens.append(Token(sign, sign, at, stop))
            elif kind == "whole":
                digits = found.group()
                tokens.append(Token("number", digits, at, stop, Fraction(int(digits))))
            elif kind == "number":
                stop = self.number(at)
            elif kind == "string":
                tokens.append(Token("string", found.group(), at, stop, text[at + 1 : stop - 1]))
            elif kind == "comment":
                stop = self.comment(at, stop)
            at = stop
        tokens.append(Token("end", "", end, end))
        return Lexed(tokens, self.comments, self.diagnostics, self.lost)

    def span(self, start: int, end: int) -> Span:
        return Span(self.source.name, start, end)

    def lose(self, diagnostic: Diagnostic, at: int) -> None:
        """Tell of text that is passed over."""
        self.diagnostics.append(diagnostic)
        self.lost.insert(bisect_left(self.lost, at), at)

    def number(self, at: int) -> int:
        value, unit, end, diagnostic = scan_number(self.source, at)
        if diagnostic is not None:
            self.diagnostics.append(diagnostic)
        good = value if diagnostic is None else None
        self.tokens.append(Token("number", self.text[at:end], at, end, good, unit))
        return end

    def comment(self, at: int, end: int) -> int:
        text = self.text[at:end]
        if text.endswith("\r") and self.text.startswith("\n", end):
            text = text[:-1]
        # A lone carriage return ends the line on some screens: what follows it is no comment.
        text = text.partition("\r")[0]
        span = self.span(at, at + len(text))
        self.comments.append(Comment(text, span))
        for hidden in _HIDDEN.finditer(text):
            place = self.span(at + hidden.start(), at + hidden.end())
            told = slips.hidden_characters(place, hidden.group(), "a comment")
            self.diagnostics.append(told.at(Severity.WARNING))
        return span.end

    # ── Text of other kinds ───────────────────────────────────────────────────

    def odd(self, at: int) -> int:
        """Whatever no token starts with: tells it, takes it, returns where to go on."""
        text = self.text
        character = text[at]
        if character == '"':
            return self.string(at)
        if character in QUOTES:
            return self.foreign_string(at)
        if text.startswith("/*", at):
            return self.block_comment(at)
        if character == ".":
            return self.bare_fraction(at)
        if character in "%$":
            return self.loose_unit(at)
        if hidden := _HIDDEN.match(text, at):
            span = self.span(at, hidden.end())
            self.lose(slips.hidden_characters(span, hidden.group(), "the text"), at)
            return hidden.end()
        if word := _WORD.match(text, at):
            return self.foreign_word(at, word.end())
        plain = plain_symbol(character)
        if plain is not None:
            self.diagnostics.append(slips.look_alike(self.span(at, at + 1), character, plain))
            if plain != " ":
                self.tokens.append(Token(plain, character, at, at + 1))
            return at + 1
        # A run of strange signs is one mistake; it ends before one that has words of its own.
        after = _AFTER_STRAY.search(text, at + 1)
        stop = after.start() if after else len(text)
        own = (i for i in range(at + 1, stop) if plain_symbol(text[i]) or text[i] in QUOTES)
        stop = next(own, stop)
        self.lose(slips.stray_characters(self.span(at, stop), text[at:stop]), at)
        return stop

    def foreign_word(self, at: int, end: int) -> int:
        word = self.text[at:end]
        plain = plain_word(word)
        span = self.span(at, end)
        if plain is None:
            self.diagnostics.append(slips.foreign_letters(span, word))
            self.tokens.append(Token("name", word, at, end))
        else:
            self.diagnostics.append(slips.look_alike(span, word, plain))
            if plain.isdigit():
                self.tokens.append(Token("number", word, at, end, Fraction(int(plain[:40]))))
            else:
                kind = plain if plain in KEYWORDS else "name"
                self.tokens.append(Token(kind, plain, at, end))
        return end

    def bare_fraction(self, at: int) -> int:
        """`.5`: a number but for its zero, unless the dot belongs to a path."""
        before = self.tokens[-1] if self.tokens else None
        if before and before.end == at and before.kind in ("name", ")", "]"):
            self.tokens.append(Token(".", ".", at, at + 1))
            return at + 1
        value, unit, end, diagnostic = scan_number(self.source, at)
        self.diagnostics.append(diagnostic or slips.bare_fraction(self.span(at, at)))
        good = value if diagnostic is None else None
        self.tokens.append(Token("number", self.text[at:end], at, end, good, unit))
        return end

    def loose_unit(self, at: int) -> int:
        """`%` or `$/h` away from its number."""
        text = self.text
        unit = "%" if text[at] == "%" else "$/h" if text.startswith("$/h", at) else ""
        end = at + max(1, len(unit))
        before = self.tokens[-1] if self.tokens else None
        if unit and before and before.kind == "number" and not before.unit:
            gap = text[before.end : at]
            # `8 % 3` is rather a remainder, which the language does not have.
            if gap.strip(" \t") == "" and not _OPERAND.match(text, end):
                span = self.span(before.end, at)
                whole = self.span(before.start, end)
                self.diagnostics.append(slips.space_before_unit(whole, span, before.text, unit))
                self.tokens[-1] = before._replace(text=text[before.start : end], end=end, unit=unit)
                return end
        self.lose(slips.stray_characters(self.span(at, end), text[at:end]), at)
        return end

    def block_comment(self, at: int) -> int:
        close = self.text.find("*/", at + 2)
        end = self.line_end(at) if close < 0 else close + 2
        self.diagnostics.append(slips.block_comment(self.source, at, end, closed=close >= 0))
        return end

    # ── Strings ───────────────────────────────────────────────────────────────

    def line_end(self, at: int) -> int:
        found = self.text.find("\n", at)
        if found < 0:
            return len(self.text)
        return found - (self.text[found - 1] == "\r")

    def string(self, at: int) -> int:
        """A string that is more than plain text between two quotation marks."""
        text = self.text
        limit = self.line_end(at)
        end = _closing(text, at + 1, limit)
        if end is None:
            return self.open_string(at, limit)
        self.tokens.append(Token("string", text[at:end], at, end, self.unescape(at + 1, end - 1)))
        return end

    def unescape(self, start: int, end: int) -> str:
        """The value of the text between the quotation marks, with what is wrong in it told."""
        text = self.text[start:end]
        for bad in _BAD_IN_STRING.finditer(text):
            span = self.span(start + bad.start(), start + bad.end())
            self.diagnostics.append(slips.hidden_characters(span, bad.group(), "a string"))

        def undo(found: re.Match[str]) -> str:
            character = found.group(1)
            if character == "n":
                return "\n"
            if character not in '"\\':
                place = self.span(start + found.start(), start + found.end())
                self.diagnostics.append(slips.unknown_escape(place, character))
            return character

        return re.sub(r"\\(.)", undo, text, flags=re.DOTALL)

    def open_string(self, at: int, limit: int) -> int:
        """A string without its closing mark on the line."""
        text = self.text
        after = limit + (2 if text.startswith("\r\n", limit) else 1)
        if after < len(text):
            next_end = self.line_end(after)
            # An odd number of marks on the next line: the string seems to go on there.
            if text.count('"', after, next_end) % 2 == 1:
                end = _closing(text, after, next_end)
                if end is not None:
                    told = slips.line_break_in_string(self.span(at, end), self.span(limit, after))
                    self.diagnostics.append(told)
                    self.tokens.append(
                        Token("string", text[at:end], at, end, text[at + 1 : end - 1])
                    )
                    return end
        line = text[at:limit]
        comment = re.search(r"\s#", line)
        if comment:
            line = line[: comment.start()]
        # Brackets and commas at the end of the line are rather the file's than the string's.
        end = at + max(1, len(line.rstrip(" \t,)]}{")))
        self.diagnostics.append(slips.open_string(self.span(at, end)))
        self.tokens.append(Token("string", text[at:end], at, end, text[at + 1 : end]))
        return end

    def foreign_string(self, at: int) -> int:
        """A string in quotation marks of another kind."""
        text = self.text
        limit = self.line_end(at)
        closers = QUOTES[text[at]]
        # A mark that closes nothing may stand anywhere: the search for its partner is kept short.
        limit = min(limit, at + _LONGEST_FOREIGN)
        close = next((i for i in range(at + 1, limit) if text[i] in closers), None)
        if close is None:
            self.lose(slips.stray_characters(self.span(at, at + 1), text[at]), at)
            return at + 1
        inner = text[at + 1 : close]
        self.diagnostics.append(slips.foreign_quotes(self.span(at, close + 1), text[at], inner))
        self.tokens.append(Token("string", text[at : close + 1], at, close + 1, inner))
        return close + 1


def _closing(text: str, start: int, limit: int) -> int | None:
    """The end of the string whose inside starts at `start`, with its mark; None past `limit`."""
    at = start
    while at < limit:
        if text[at] == '"':
            return at + 1
        at += 2 if text[at] == "\\" else 1
    return None


def tokenize(source: Source) -> Lexed:
    """All tokens, comments and lexical mistakes of `source`, each in the order of the text."""
    return _Lexer(source).run()
