"""What every part of the parser stands on: the current token, what is open, what is told."""

from __future__ import annotations

from bisect import bisect_left

from parlay.dsl import faults
from parlay.dsl.diagnostics.record import Diagnostic
from parlay.dsl.slips import slash_comment
from parlay.dsl.source import Source, Span
from parlay.dsl.tokens import MOST_MISTAKES, Lexed, Token

DEEPEST = 64
"""Braces, brackets and parentheses together."""
CLOSES = {"{": "}", "[": "]", "(": ")"}
STATEMENTS = frozenset({"let", "import", "assert", "phase", "allow"})
_CLOSERS = frozenset(CLOSES.values())


class Lost(Exception):
    """The parser's own: the mistake is told, and the rest of the item says nothing."""


class Enough(Exception):
    """The parser's own: so many mistakes are told that the rest would help nobody."""


class Cursor:
    """Invariant: `at` never passes the first token of kind `end`."""

    def __init__(self, source: Source, lexed: Lexed) -> None:
        self.source = source
        # Looking ahead by two never needs to look whether there is so much.
        self.tokens = [*lexed.tokens, lexed.tokens[-1], lexed.tokens[-1]]
        self.lost = lexed.lost
        self.lexical = lexed.diagnostics
        self.told: list[Diagnostic] = []
        self.at = 0
        self.here = self.tokens[0]
        self.open: list[Token] = []
        self.item = self.here
        """The first token of the item being read."""
        self.since = 0
        """Text lost from here on explains what is wrong with the item."""
        self.end_told = False
        """An end of file that came too early is told once."""
        self.spoiled = False
        """The item being read holds a word that was told to be none: its value would be a guess."""
        self.slashes = -1
        """Where the last `//` stands that was meant as comment."""
        kinds = [token.kind for token in lexed.tokens]
        self.missing = kinds.count("{") - kinds.count("}")
        """How many closing braces the text has too few."""

    # ── Going on ──────────────────────────────────────────────────────────────

    def advance(self) -> Token:
        """Takes the current token."""
        token = self.here
        if token.kind != "end":
            self.at += 1
            self.here = self.tokens[self.at]
        return token

    def after(self, count: int = 1) -> Token:
        """The token one or two places on."""
        return self.tokens[self.at + count]

    @property
    def before(self) -> Token:
        """The token taken last."""
        return self.tokens[max(0, self.at - 1)]

    def take(self, kind: str) -> Token | None:
        """Takes the current token where it is of `kind`."""
        return self.advance() if self.here.kind == kind else None

    def span(self, start: int, end: int) -> Span:
        """A place in this file."""
        return Span(self.source.name, start, end)

    def of(self, token: Token) -> Span:
        """The place of a token."""
        return Span(self.source.name, token.start, token.end)

    def gap(self) -> Span:
        """The empty place right after the token taken last."""
        return self.span(self.before.end, self.before.end)

    # ── Lines ─────────────────────────────────────────────────────────────────

    def same_line(self, first: Token, second: Token) -> bool:
        """No line ends between two tokens."""
        return "\n" not in self.source.text[first.end : second.start]

    def starts_line(self, token: Token) -> bool:
        """Nothing but white space stands before it on its line."""
        text, at = self.source.text, token.start - 1
        while at >= 0 and text[at] in " \t\r":
            at -= 1
        return at < 0 or text[at] == "\n"

    def indent(self, token: Token) -> int:
        """How far the line of `token` is indented."""
        text = self.source.text
        start = text.rfind("\n", 0, token.start) + 1
        line = text[start : token.end]
        return len(line) - len(line.lstrip())

    # ── Telling ───────────────────────────────────────────────────────────────

    def tell(self, diagnostic: Diagnostic) -> None:
        """Adds what is wrong, unless it only follows from text the lexer passed over."""
        assert diagnostic.span is not None
        if self.is_lost(self.since, max(diagnostic.span.start, self.here.end)):
            return
        self.told.append(diagnostic)
        if len(self.told) > MOST_MISTAKES:
            raise Enough

    def is_lost(self, start: int, end: int) -> bool:
        """The lexer passed over text between two offsets."""
        first = bisect_left(self.lost, start)
        return first < len(self.lost) and self.lost[first] <= end

    def begin(self) -> None:
        """A new item starts here. What follows lost text on its line belongs to the broken item."""
        self.item = self.here
        goes_on = (
            self.lost
            and self.before.kind not in (",", ";", *CLOSES, *_CLOSERS)
            and self.same_line(self.before, self.here)
            and self.is_lost(self.since, self.here.start)
        )
        if not goes_on:
            self.since = self.here.start

    def fail(self, diagnostic: Diagnostic) -> Lost:
        """Tells and gives the exception to raise."""
        assert diagnostic.span is not None
        if not self.was_comment(diagnostic.span.start):
            self.tell(diagnostic)
        return Lost()

    def was_comment(self, place: int) -> bool:
        """The reason for a mistake at offset `place` is a `//` before it on its line.

        Then that is told, once, and the line passed over with all mistakes in it.
        """
        line = self.source.text.rfind("\n", 0, place) + 1
        # A comment of many words fails at one of its first.
        for index in range(self.at, max(-1, self.at - 50), -1):
            token = self.tokens[index]
            if token.start > place:
                continue
            if token.start < line or token.kind in ("end", *_CLOSERS):
                return False
            if token.kind == ",":
                # `{ dp = world // 8, tp 8 }` divides; a comment would have no brace after it.
                end = self.source.text.find("\n", token.end)
                if "}" in self.source.text[token.end : end if end >= 0 else None]:
                    return False
            if token.kind == "//":
                self._pass_over_line(token)
                return True
        return False

    def _pass_over_line(self, slashes: Token) -> None:
        end = self.source.text.find("\n", slashes.end)
        end = len(self.source.text) if end < 0 else end
        while self.here.kind != "end" and self.here.start < end:
            self.advance()
        self.forget(slashes.end, end)
        self.told.append(slash_comment(self.of(slashes)))
        self.slashes = slashes.start

    def forget(self, start: int, end: int) -> None:
        """Takes back all that was told of a place which is something else as a whole."""
        for told in (self.lexical, self.told):
            told[:] = [one for one in told if one.span is None or not start <= one.span.start < end]
        self.lost[:] = [at for at in self.lost if not start <= at < end]

    # ── Brackets ──────────────────────────────────────────────────────────────

    def enter(self) -> Token | None:
        """Takes an opening bracket; None where it is one too deep: then all of it is taken."""
        opener = self.advance()
        if len(self.open) < DEEPEST:
            self.open.append(opener)
            return opener
        self.tell(faults.too_deep(self.of(opener), DEEPEST))
        if not self.balance():
            self.end_told = True
        return None

    def leave(self) -> Token | None:
        """Takes the closer of the innermost bracket, or tells that another or none is there.

        None where the bracket stays open and the current token belongs to something outside it.
        """
        opener = self.open.pop()
        closer = CLOSES[opener.kind]
        if self.here.kind == closer:
            return self.advance()
        if self.here.kind in _CLOSERS and self.here.kind != "}":
            self.tell(faults.mismatched(self.of(self.here), self.of(opener), opener.kind))
            return self.advance()
        self.unclosed(opener)
        return None

    def unclosed(self, opener: Token) -> None:
        """Tells that `opener` is open where the current token stands; once at the end of file."""
        if self.here.kind == "end":
            if self.end_told:
                return
            self.end_told = True
        place = self.of(opener)
        self.tell(faults.unclosed(place, opener.kind, CLOSES[opener.kind], self.gap()))

    def balance(self) -> bool:
        """Passes over the rest of a bracket just opened; False where it never closes."""
        depth = 1
        while self.here.kind != "end":
            kind = self.advance().kind
            if kind in CLOSES:
                depth += 1
            elif kind in _CLOSERS:
                depth -= 1
                if depth == 0:
                    return True
        return False

    def recover(self, pending: int) -> None:
        """Goes on to where the next item may start.

        `pending` round and square brackets are open inside the broken item. A comma, a closing
        brace, a statement's keyword and the start of a field or block end the search.
        """
        first = self.at
        edge = self.indent(self.item)
        while self.here.kind not in ("end", "}"):
            token = self.here
            fresh = self.at > first or token is not self.item
            if fresh and self._begins_item(token, pending, edge):
                return
            if token.kind == "{":
                self.advance()
                self.balance()
                continue
            if token.kind in ("(", "["):
                pending += 1
            elif token.kind in (")", "]"):
                pending = max(0, pending - 1)
            elif token.kind == "," and not pending:
                return
            self.advance()

    def _begins_item(self, token: Token, pending: int, edge: int) -> bool:
        if token.kind in STATEMENTS:
            return not pending or self.starts_line(token)
        if token.kind != "name":
            return False
        if self.starts_line(token):
            return not pending or self.indent(token) <= edge
        return not pending and self.after().kind in ("=", "{")
