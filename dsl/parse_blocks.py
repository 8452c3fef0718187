"""Statements, blocks and fields by recursive descent, with recovery at the next of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar, cast

from parlay.dsl import faults, faults_statements
from parlay.dsl.cursor import STATEMENTS, Enough, Lost
from parlay.dsl.parse_fields import GIVES, VALUE_AHEAD, Fields
from parlay.dsl.parse_values import COMPARES, describe
from parlay.dsl.source import Span
from parlay.dsl.syntax import (
    Allow,
    Assert,
    Block,
    Field,
    Import,
    Let,
    Name,
    Statement,
    String,
)
from parlay.dsl.tokens import KEYWORDS, Token

_Read = TypeVar("_Read", Statement, Field | Block)


class Blocks(Fields):
    """Reads what `file` promises; every other method reads one thing or raises `Lost`."""

    forgiven = 0
    """How many closing braces may come too much, their opener having been told as not closed."""

    def file(self) -> tuple[tuple[Statement, ...], tuple[Name, ...]]:
        """All statements up to the end of the text, and what could not be read."""
        statements: list[Statement] = []
        lost: list[Name] = []
        try:
            while self.here.kind != "end":
                self.attempt(self.statement, statements, lost)
        except Enough:
            pass
        return tuple(statements), tuple(lost)

    def attempt(
        self, read: Callable[[], _Read | None], items: list[_Read], lost: list[Name]
    ) -> bool:
        """Reads one item into `items`, or its name into `lost` where a mistake is in it.

        False where its end was not found: then the cursor is where the next item may start.
        """
        self.begin()
        first, following, outer = self.item, self.after(), self.spoiled
        depth = len(self.open)
        self.spoiled = False
        self.slashes = -1
        try:
            item = read()
        except Lost:
            pending = len(self.open) - depth
            del self.open[depth:]
            self.recover(pending)
            self.take(",")
            item = None
        # A `//` of the item before, read as division, was the comment that this item tells of.
        if items and items[-1].span.end > self.slashes > items[-1].span.start:
            lost.extend(_names(items.pop()))
        broken = self.spoiled or self.is_lost(first.start, self.before.end - 1)
        self.spoiled = outer
        if item is not None and (isinstance(item, Block) or not broken):
            items.append(item)
            return True
        name = following if first.kind == "let" else first
        if name.kind == "name":
            lost.append(Name(name.text, self.of(name)))
        return item is not None

    # ── Statements ────────────────────────────────────────────────────────────

    def statement(self) -> Statement | None:
        """One statement; None where only a mistake was passed over."""
        token = self.here
        match token.kind:
            case "let":
                return self.let()
            case "import":
                return self.import_()
            case "assert":
                return self.assertion()
            case "allow":
                return self.allow()
            case "phase":
                return self.phase()
            case "name":
                if self.field_ahead():
                    field = self.field()
                    self.tell(faults_statements.field_outside(field.name.span, field.name.text))
                    self.take(",")
                    return None
                return self.block()
        self.misplaced(token, "a statement", top=True)
        return None

    def misplaced(self, token: Token, wanted: str, *, top: bool) -> None:
        """Tells of, and passes over, a token that starts neither statement, field nor block."""
        place = self.of(token)
        match token.kind:
            case "}" if top and self.forgiven:
                self.forgiven -= 1
            case "}" | "]" | ")":
                self.tell(faults.stray_closer(place, token.kind))
            case ",":
                self.tell(faults.stray_comma(place, top))
            case ";":
                self.tell(faults.semicolon(place, ""))
            case _:
                raise self.fail(faults.unexpected(place, describe(token), wanted))
        self.advance()

    def let(self) -> Let:
        """`let name = value`."""
        word = self.advance()
        name = self.name("`let`")
        if self.here.kind == ".":
            raise self.fail(faults.path_as_field(name.span, name.text + ".…", None, name.span))
        if self.here.kind in GIVES:
            self.equals(name)
        elif self.here.kind in VALUE_AHEAD or self.here.kind in ("name", "("):
            self.tell(faults.equals_missing(name.span, name.text))
        value = self.value(f"`let {name.text}`")
        return Let(name, value, self.of(word).to(value.span))

    def import_(self) -> Import:
        """`import "path"`."""
        word = self.advance()
        if self.here.kind != "string":
            raise self.fail(faults_statements.path_needed(*self.raw()))
        path = self.string()
        return Import(path, self.of(word).to(path.span))

    def raw(self) -> tuple[Span, str]:
        """The rest of the line up to a brace, and its text; passed over. Empty: the gap before."""
        first = self.here
        if first.kind in ("end", "{", "}", "=") or not self.same_line(self.before, first):
            return self.gap(), ""
        last = first
        while self.here.kind not in ("end", "{", "}") and self.same_line(last, self.here):
            last = self.advance()
        self.forget(first.start, last.end)
        return self.span(first.start, last.end), self.source.text[first.start : last.end]

    def assertion(self) -> Assert:
        """`assert left OP right`."""
        word = self.advance()
        left = self.expression("`assert`")
        sign = self.here
        if sign.kind in COMPARES:
            self.advance()
        else:
            late = sign.kind == "end" or not self.same_line(self.before, sign)
            place = self.gap() if late else self.of(sign)
            found = faults_statements.comparison_needed(
                place, "a value alone" if late else describe(sign)
            )
            if sign.kind != "=":
                raise self.fail(found)
            self.tell(found)
            self.advance()
        right = self.expression(f"the right side of `{sign.kind}`")
        more = self.here
        if more.kind in COMPARES or more.text in ("and", "or", "&", "|"):
            raise self.fail(faults_statements.comparison_twice(self.of(more), more.text))
        operator = cast('Literal["<", "<=", ">", ">=", "==", "!="]', sign.kind)
        return Assert(left, operator, right, self.of(word).to(right.span))

    def allow(self) -> Allow:
        """`allow CODE "reason"`."""
        word = self.advance()
        # A name on the next line is the next statement's, unless a reason follows it.
        given = self.after().kind == "string" or self.same_line(word, self.here)
        if self.here.kind != "name" or not given:
            raise self.fail(faults_statements.allow_incomplete(self.gap(), "the code of a rule"))
        code = self.name("`allow`")
        if self.here.kind != "string":
            raise self.fail(
                faults_statements.allow_incomplete(self.gap(), "a reason in quotation marks")
            )
        reason = self.string()
        return Allow(code, reason, self.of(word).to(reason.span))

    def phase(self) -> Block:
        """`phase "name" { blocks }`."""
        word = self.advance()
        label: String | None = None
        if self.here.kind == "string":
            label = self.string()
        else:
            self.tell(faults_statements.phase_name_needed(*self.raw()))
            if self.here.kind != "{":
                raise Lost
        if self.here.kind != "{":
            late = not self.same_line(self.before, self.here)
            place = self.gap() if late else self.of(self.here)
            raise self.fail(faults_statements.phase_body_needed(place, describe(self.here)))
        body, lost = self.body(phase=True)
        keyword = Name(word.text, self.of(word))
        return Block(keyword, label, None, body, keyword.span.to(self.of(self.before)), lost)

    # ── Blocks ────────────────────────────────────────────────────────────────

    def block(self) -> Block:
        """`kind LABEL? (from "preset")? { … }?`; with neither preset nor body it is told."""
        keyword = self.name("a block")
        if self.here.kind in ("=", ":", "=="):
            self.tell(faults.equals_before_block(self.of(self.here), keyword.text))
            self.advance()
        label: Name | String | None = None
        # A name at the start of the next line is the next block's where this one cannot go on so.
        if self.here.kind == "string":
            label = self.string()
        elif self.here.kind == "name" and self.label_ahead():
            label = self.name("a block")
        preset: String | None = None
        if self.take("from"):
            if self.here.kind == "string":
                preset = self.string()
            else:
                place, written = self.raw()
                self.tell(faults_statements.preset_needed(place, written))
                preset = String(written, place)
        body: tuple[Field | Block, ...] | None = None
        lost: tuple[Name, ...] = ()
        if self.here.kind != "{" and preset is None:
            self.bare_head(keyword)
        if self.here.kind == "{":
            body, lost = self.body(phase=False)
        return Block(keyword, label, preset, body, keyword.span.to(self.of(self.before)), lost)

    def label_ahead(self) -> bool:
        """The current name is a block's label: a brace or preset follows, or the line goes on."""
        return self.after().kind in ("{", "from") or (
            self.same_line(self.before, self.here) and self.after().kind not in GIVES
        )

    def bare_head(self, keyword: Name) -> None:
        """Tells of a block's head without `{`; goes on to one on the same line, else raises."""
        ahead = next(
            (
                token
                # Looking further would find the brace of something else.
                for token in self.tokens[self.at : self.at + 10]
                if token.kind in ("{", "}", "end") or not self.same_line(self.before, token)
            ),
            self.here,
        )
        if ahead.kind != "{" or not self.same_line(self.before, ahead):
            raise self.fail(faults_statements.body_missing(keyword.span, keyword.text))
        found = faults_statements.head_too_long(
            self.of(self.here), describe(self.here), keyword.text
        )
        if not self.was_comment(self.here.start):
            self.tell(found)
        while self.here.kind not in ("{", "end"):
            self.advance()

    def body(self, *, phase: bool) -> tuple[tuple[Field | Block, ...], tuple[Name, ...]]:
        """`{ … }`: its fields and blocks, in a phase blocks alone; and what could not be read."""
        opener = self.enter()
        if opener is None:
            return (), ()
        items: list[Field | Block] = []
        lost: list[Name] = []

        def read() -> Field | Block | None:
            return self.inside(opener, phase)

        while self.here.kind not in ("}", "end"):
            if self.left(opener):
                self.open.pop()
                self.unclosed(opener)
                self.missing -= 1
                self.forgiven += 1
                return tuple(items), tuple(lost)
            if self.attempt(read, items, lost):
                self.between()
        self.begin()
        self.leave()
        return tuple(items), tuple(lost)

    def left(self, opener: Token) -> bool:
        """A statement or block no deeper than the line of `opener`: a brace is missing before."""
        token, following = self.here, self.after()
        return (
            self.missing > 0
            and (token.kind in STATEMENTS or following.kind in ("{", "from", "name", "string"))
            and self.starts_line(token)
            and self.indent(token) <= self.indent(opener)
        )

    def between(self) -> None:
        """What may stand after an item."""
        if self.here.kind == ";":
            self.tell(faults.semicolon(self.of(self.here), ","))
            self.advance()
        else:
            self.take(",")

    def inside(self, opener: Token, phase: bool) -> Field | Block | None:
        """One field or block; None where only a mistake was passed over."""
        token, sign = self.here, self.after()
        if token.kind == "name":
            if not self.field_ahead():
                return self.block()
            field = self.field()
            if not phase:
                return field
            self.tell(faults_statements.field_in_phase(field.name.span, field.name.text))
            self.take(",")
            return None
        if token.kind in KEYWORDS and sign.kind in GIVES:
            what = "the name of a field"
            self.tell(faults.keyword_as_name(self.of(token), token.text, what))
            self.given(Name(self.advance().text, self.of(token)))
            self.take(",")
            return None
        if token.kind in STATEMENTS:
            self.tell(
                faults_statements.statement_inside(self.of(token), token.text, self.of(opener))
            )
            self.statement()
            return None
        if token.kind == "string" and sign.kind in ("=", ":") and self.after(2).kind != "{":
            name = cast(str, self.advance().value)
            self.tell(faults.quoted_name(self.of(token), name))
            return self.given(Name(name, self.of(token)))
        self.misplaced(token, "a field or block", top=False)
        return None


def _names(item: Statement | Field) -> list[Name]:
    """The name under which an item would be missed."""
    match item:
        case Let() | Field():
            return [item.name]
        case Block():
            return [item.keyword]
    return []
