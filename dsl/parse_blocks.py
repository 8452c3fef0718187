"""Statements, blocks and fields by recursive descent, with recovery at the next of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, TypeVar, cast

from parlay.dsl import faults
from parlay.dsl.cursor import STATEMENTS, Enough, Lost
from parlay.dsl.parse_values import COMPARES, Values, describe
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

_Read = TypeVar("_Read")
_VALUE_AHEAD = frozenset({"number", "string", "[", "on", "off", "auto", "-"})
_GIVES = frozenset({"=", "==", ":", "<=", "<", ">", ">=", "!="})


class Blocks(Values):
    """Reads what `file` promises; every other method reads one thing or raises `Lost`."""

    forgiven = 0
    """How many closing braces may come too much, their opener having been told as not closed."""

    def file(self) -> tuple[Statement, ...]:
        """All statements up to the end of the text."""
        statements: list[Statement] = []
        try:
            while self.here.kind != "end":
                if statement := self.attempt(self.statement):
                    statements.append(statement)
        except Enough:
            pass
        return tuple(statements)

    def attempt(self, read: Callable[[], _Read]) -> _Read | None:
        """One item; after a mistake in it, the cursor is where the next may start."""
        self.begin()
        depth = len(self.open)
        try:
            return read()
        except Lost:
            pending = len(self.open) - depth
            del self.open[depth:]
            self.recover(pending)
            self.take(",")
            return None

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
                    self.tell(faults.field_outside(field.name.span, field.name.text))
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
        if self.here.kind in _GIVES:
            self.equals(name)
        elif self.here.kind in _VALUE_AHEAD or self.here.kind in ("name", "("):
            self.tell(faults.equals_missing(name.span, name.text))
        value = self.value(f"`let {name.text}`")
        return Let(name, value, self.of(word).to(value.span))

    def import_(self) -> Import:
        """`import "path"`."""
        word = self.advance()
        if self.here.kind != "string":
            raise self.fail(faults.path_needed(*self.raw()))
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
            found = faults.comparison_needed(place, "a value alone" if late else describe(sign))
            if sign.kind != "=":
                raise self.fail(found)
            self.tell(found)
            self.advance()
        right = self.expression(f"the right side of `{sign.kind}`")
        more = self.here
        if more.kind in COMPARES or more.text in ("and", "or", "&", "|"):
            raise self.fail(faults.comparison_twice(self.of(more), more.text))
        operator = cast('Literal["<", "<=", ">", ">=", "==", "!="]', sign.kind)
        return Assert(left, operator, right, self.of(word).to(right.span))

    def allow(self) -> Allow:
        """`allow CODE "reason"`."""
        word = self.advance()
        # A name on the next line is the next statement's, unless a reason follows it.
        given = self.after().kind == "string" or self.same_line(word, self.here)
        if self.here.kind != "name" or not given:
            raise self.fail(faults.allow_incomplete(self.gap(), "the code of a rule"))
        code = self.name("`allow`")
        if self.here.kind != "string":
            raise self.fail(faults.allow_incomplete(self.gap(), "a reason in quotation marks"))
        reason = self.string()
        return Allow(code, reason, self.of(word).to(reason.span))

    def phase(self) -> Block:
        """`phase "name" { blocks }`."""
        word = self.advance()
        label: String | None = None
        if self.here.kind == "string":
            label = self.string()
        else:
            self.tell(faults.phase_name_needed(*self.raw()))
            if self.here.kind != "{":
                raise Lost
        if self.here.kind != "{":
            late = not self.same_line(self.before, self.here)
            place = self.gap() if late else self.of(self.here)
            raise self.fail(faults.phase_body_needed(place, describe(self.here)))
        body = self.body(phase=True)
        keyword = Name(word.text, self.of(word))
        return Block(keyword, label, None, body, keyword.span.to(self.of(self.before)))

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
                self.tell(faults.preset_needed(*self.raw()))
                preset = String("", self.gap())
        body: tuple[Field | Block, ...] | None = None
        if self.here.kind != "{" and preset is None:
            self.bare_head(keyword)
        if self.here.kind == "{":
            body = self.body(phase=False)
        return Block(keyword, label, preset, body, keyword.span.to(self.of(self.before)))

    def label_ahead(self) -> bool:
        """The current name is a block's label: a brace or preset follows, or the line goes on."""
        return self.after().kind in ("{", "from") or (
            self.same_line(self.before, self.here) and self.after().kind not in _GIVES
        )

    def bare_head(self, keyword: Name) -> None:
        """Tells of a block's head without `{`; goes on to one on the same line, else raises."""
        ahead = self.at
        while self.tokens[ahead].kind not in ("{", "}", "end") and self.same_line(
            self.tokens[ahead], self.tokens[ahead + 1]
        ):
            ahead += 1
        if self.tokens[ahead].kind != "{" or not self.same_line(self.before, self.here):
            raise self.fail(faults.body_missing(keyword.span, self.gap(), keyword.text))
        found = faults.head_too_long(self.of(self.here), describe(self.here), keyword.text)
        if not self.was_comment():
            self.tell(found)
        while self.here.kind not in ("{", "end"):
            self.advance()

    @cached_property
    def braces_match(self) -> bool:
        """As many braces close as open."""
        kinds = [token.kind for token in self.tokens]
        return kinds.count("{") <= kinds.count("}")

    def body(self, *, phase: bool) -> tuple[Field | Block, ...]:
        """`{ … }` with its fields and blocks, or blocks alone in a phase."""
        opener = self.enter()
        if opener is None:
            return ()
        items: list[Field | Block] = []

        def read() -> Field | Block | None:
            return self.inside(opener, phase)

        while self.here.kind not in ("}", "end"):
            if self.left(opener):
                self.open.pop()
                self.unclosed(opener)
                return tuple(items)
            item = self.attempt(read)
            if item is not None:
                items.append(item)
                self.between()
        self.begin()
        self.leave()
        return tuple(items)

    def left(self, opener: Token) -> bool:
        """A statement at the indentation of the block's own line: a brace is missing before it."""
        return (
            self.here.kind in STATEMENTS
            and not self.braces_match
            and self.starts_line(self.here)
            and self.indent(self.here) <= self.indent(opener)
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
            self.tell(faults.field_in_phase(field.name.span, field.name.text))
            self.take(",")
            return None
        if token.kind in KEYWORDS and sign.kind in _GIVES:
            what = "the name of a field"
            self.tell(faults.keyword_as_name(self.of(token), token.text, what))
            self.given(Name(self.advance().text, self.of(token)))
            self.take(",")
            return None
        if token.kind in STATEMENTS:
            self.tell(faults.statement_inside(self.of(token), token.text, self.of(opener)))
            self.statement()
            return None
        if token.kind == "string" and sign.kind in ("=", ":") and self.after(2).kind != "{":
            name = cast(str, self.advance().value)
            self.tell(faults.quoted_name(self.of(token), name))
            self.given(Name(name, self.of(token)))
            self.take(",")
            return None
        self.misplaced(token, "a field or block", top=False)
        return None

    # ── Fields ────────────────────────────────────────────────────────────────

    def field_ahead(self) -> bool:
        """The current name starts a field, well written or not, rather than a block."""
        sign, third = self.after(), self.after(2)
        if sign.kind in _GIVES:
            return third.kind != "{"
        if sign.kind in ("(", "."):
            return True
        if not self.same_line(self.here, sign):
            # Alone on its line: in a block rather a field without value.
            return False
        if sign.kind in ("name", "string"):
            return bool(self.open) and third.kind not in ("{", "from", *_GIVES)
        return sign.kind in _VALUE_AHEAD

    def field(self) -> Field:
        """`name = value` or `name(…)`."""
        sign = self.after()
        if sign.kind == "(":
            call = self.call()
            return Field(call.name, call, True, call.span)
        if sign.kind == ".":
            self.assigned_path()
        return self.given(self.name("a field"))

    def given(self, name: Name) -> Field:
        """The value of the field whose name was taken."""
        if self.here.kind in _GIVES:
            self.equals(name)
        elif not self.was_comment():
            self.tell(faults.equals_missing(name.span, name.text))
        else:
            raise Lost
        value = self.value(f"the field `{name.text}`")
        return Field(name, value, False, name.span.to(value.span))

    def assigned_path(self) -> None:
        """Raises: `parallel.tp = 8`, with its fix where the block can be written in its place."""
        path = self.path()
        text = ".".join(name.text for name in path.path)
        if self.here.kind not in _GIVES:
            raise self.fail(faults.path_as_field(path.span, text, None, path.span))
        self.equals(path.path[-1])
        value = self.value(f"`{text}`")
        blocks = [name.text for name in path.path[:-1]]
        written = self.source.text[value.span.start : value.span.end]
        fix = f"{path.path[-1].text} = {written}"
        for block in reversed(blocks):
            fix = f"{block} {{ {fix} }}"
        whole = path.span.to(value.span)
        raise self.fail(faults.path_as_field(path.span, text, fix, whole))
