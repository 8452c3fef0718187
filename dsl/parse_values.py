"""Values and expressions: precedence climbing over the cursor."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, cast

from parlay.dsl import faults, slips
from parlay.dsl.cursor import CLOSES, Cursor, Lost
from parlay.dsl.odd import quoted
from parlay.dsl.syntax import (
    Argument,
    Auto,
    Binary,
    Call,
    Expr,
    Group,
    ListExpr,
    Name,
    Number,
    Ref,
    String,
    Switch,
    Unary,
)
from parlay.dsl.tokens import KEYWORDS, Token
from parlay.dsl.units import UNITS

TALLEST = 128
"""Nodes of a value that may lie above one another: a walk over it must not exhaust the stack."""

COMPARES = frozenset({"<", "<=", ">", ">=", "==", "!="})
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2}
_STARTS = frozenset({"name", "number", "string", "on", "off", "auto", "(", "[", "-"})


def describe(token: Token) -> str:
    """A token in words."""
    if token.kind == "end":
        return "the end of the file"
    if token.kind == "string":
        return f"the string {quoted(token.text)}"
    if token.kind == "number":
        return f"the number {quoted(token.text)}"
    if token.kind in KEYWORDS:
        return f"the word `{token.text}`"
    return quoted(token.text)


class Values(Cursor):
    """Each method takes what it reads. `Lost` is raised once the mistake is told."""

    height = 0
    """Of the expression read last."""

    def value(self, what: str) -> Expr:
        """A field's value: `auto …` or an expression."""
        late = self.here.kind == "name" and not self.same_line(self.before, self.here)
        if late and self.after().kind in ("=", "==", ":", "{", "from"):
            self.no_value(what)
        if self.here.kind == "auto":
            value: Expr = self.auto()
            if self.here.kind in _BINDING:
                raise self.fail(faults.auto_inside(value.span))
        else:
            value = self.expression(what)
        while self.here.kind in COMPARES:
            # What is compared is read too, so that one mistake is told once.
            self.tell(faults.comparison_outside(self.of(self.here), self.here.kind))
            self.advance()
            self.expression(what)
        return value

    def auto(self) -> Auto:
        """`auto`, `auto in […]`, `auto <= limit`."""
        word = self.advance()
        span = self.of(word)
        sign = self.here
        if sign.kind == "in":
            self.advance()
            if self.here.kind != "[":
                raise self.fail(faults.auto_restriction(self.of(self.here), "in"))
            choices = self.list_()
            return Auto(choices.items, None, span.to(choices.span))
        if sign.kind in COMPARES:
            self.advance()
            limit = self.expression("the limit of `auto`")
            if sign.kind != "<=":
                self.tell(faults.auto_restriction(self.of(sign), sign.kind))
            return Auto(None, limit, span.to(limit.span))
        self.height = 1
        return Auto(None, None, span)

    def expression(self, what: str, binding: int = 1) -> Expr:
        """Operators that bind at least as tightly as `binding`; all group from the left."""
        left = self.operand(what)
        height = self.height
        while (power := _BINDING.get(self.here.kind, 0)) >= binding:
            operator = self.advance()
            right = self.expression(f"the right side of `{operator.kind}`", power + 1)
            height = self.grow(max(height, self.height), operator)
            sign = cast('Literal["+", "-", "*", "/", "//"]', operator.kind)
            left = Binary(sign, left, right, left.span.to(right.span))
        self.height = height
        return left

    def grow(self, height: int, place: Token) -> int:
        """One more node above an expression of `height`."""
        if height >= TALLEST:
            raise self.fail(faults.too_large(self.of(place), TALLEST))
        return height + 1

    def operand(self, what: str) -> Expr:
        """A primary with any number of minus signs before it."""
        signs: list[Token] = []
        while self.here.kind == "-":
            signs.append(self.advance())
        operand = self.primary("the sign `-`" if signs else what)
        for sign in reversed(signs):
            self.height = self.grow(self.height, sign)
            operand = Unary("-", operand, self.of(sign).to(operand.span))
        return operand

    def primary(self, what: str) -> Expr:
        """Anything without an operator of its own."""
        token = self.here
        self.height = 1
        match token.kind:
            case "number":
                return self.number()
            case "name":
                return self.call() if self.after().kind == "(" else self.path()
            case "string":
                return self.string()
            case "on" | "off":
                self.advance()
                return Switch(token.kind == "on", self.of(token))
            case "[":
                return self.list_()
            case "(":
                return self.group()
            case "auto":
                raise self.fail(faults.auto_inside(self.of(token)))
            case "+":
                while self.here.kind in ("+", "-"):
                    last = self.advance()
                self.tell(faults.plus_sign(self.span(token.start, last.end)))
                return self.primary("the sign `+`")
            case _:
                return self.no_value(what)

    def no_value(self, what: str) -> Expr:
        """Tells that the current token is no value."""
        # At the end of a line the place is where the value was due, not the next line.
        late = self.here.kind == "end" or not self.same_line(self.before, self.here)
        place = self.gap() if late else self.of(self.here)
        raise self.fail(faults.value_missing(place, what, describe(self.here)))

    def string(self) -> String:
        """`"…"`."""
        token = self.advance()
        return String(cast(str, token.value), self.of(token))

    def number(self) -> Number:
        """A number; a unit after a space is told and taken with it."""
        token = self.advance()
        unit, end = token.unit, token.end
        if not unit and self.here.kind == "name" and self.same_line(token, self.here):
            unit = self.loose_unit()
            if unit:
                gap = self.span(end, self.here.start)
                end = self.here.end
                self.advance()
                if "/" in unit:
                    self.advance()
                    end = self.advance().end
                whole = self.span(token.start, end)
                self.tell(slips.space_before_unit(whole, gap, token.text, unit))
        if token.value is None:
            self.spoiled = True
        text = self.source.text[token.start : end]
        value = cast(Fraction, token.value or Fraction(0))
        return Number(value, unit, text, self.span(token.start, end))

    def loose_unit(self) -> str:
        """The unit that the current name is, where it cannot be the start of the next item."""
        word, slash, per = self.here, self.after(), self.after(2)
        if slash.kind == "/" and word.end == slash.start and slash.end == per.start:
            unit = f"{word.text}/{per.text}"
            return unit if unit in UNITS else ""
        if word.text not in UNITS or slash.kind in ("=", "==", ":", "(", "{", "from", "."):
            return ""
        labelled = slash.kind in ("name", "string") and per.kind in ("{", "from")
        return "" if labelled else word.text

    def path(self) -> Ref:
        """`name` or `name.name…`."""
        names = [self.name("a path")]
        while self.here.kind == ".":
            self.advance()
            names.append(self.name("a path"))
        return Ref(tuple(names), names[0].span.to(names[-1].span))

    def name(self, what: str) -> Name:
        """A name, told where it is missing or a keyword."""
        token = self.here
        if token.kind == "name":
            self.advance()
            if not token.text.isascii():
                self.spoiled = True
            return Name(token.text, self.of(token))
        if token.kind in KEYWORDS:
            told = faults.keyword_as_name(self.of(token), token.text, f"a name in {what}")
            if self.after().kind not in ("=", ":", "=="):
                raise self.fail(told)
            self.tell(told)
            self.advance()
            return Name(token.text, self.of(token))
        late = token.kind == "end" or not self.same_line(self.before, token)
        place = self.gap() if late else self.of(token)
        raise self.fail(faults.name_missing(place, what, describe(token)))

    # ── Brackets ──────────────────────────────────────────────────────────────

    def group(self) -> Expr:
        """`( … )`."""
        start = self.here
        if self.enter() is None:
            return self.nothing(start)
        inner = self.expression("a parenthesis")
        height = self.grow(self.height, start)
        if self.here.kind not in (")", "]"):
            self.not_closed("the parenthesis", "`)`")
        self.leave()
        self.height = height
        return Group(inner, self.span(start.start, self.before.end))

    def list_(self) -> ListExpr:
        """`[a, b]`."""
        start = self.here
        if self.enter() is None:
            return self.nothing(start)
        items: list[Expr] = []
        height = 0
        commas_told = False
        while self.here.kind not in ("]", ")"):
            items.append(self.value("a list"))
            height = max(height, self.height)
            commas_told = self.separator("the list", commas_told)
        self.height = self.grow(height, start)
        self.leave()
        return ListExpr(tuple(items), self.span(start.start, self.before.end))

    def call(self) -> Call:
        """`name(a, b = c)`."""
        name = self.name("a call")
        start = self.here
        if self.enter() is None:
            return Call(name, (), name.span.to(self.nothing(start).span))
        arguments: list[Argument] = []
        height = 0
        commas_told = False
        while self.here.kind not in (")", "]"):
            arguments.append(self.argument())
            height = max(height, self.height)
            commas_told = self.separator(f"{quoted(name.text)}", commas_told)
        self.height = self.grow(height, start)
        self.leave()
        return Call(name, tuple(arguments), self.span(name.span.start, self.before.end))

    def argument(self) -> Argument:
        """`name = value` or a value."""
        first, sign = self.here, self.after()
        name = None
        if sign.kind in ("=", "==", ":") and (first.kind == "name" or first.kind in KEYWORDS):
            name = self.name("an argument")
            self.equals(name)
        value = self.value(f"the argument {quoted(name.text)}" if name else "an argument")
        return Argument(name, value, name.span.to(value.span) if name else value.span)

    def equals(self, name: Name) -> None:
        """The `=` after a name, or what stands for it by mistake."""
        sign = self.advance()
        if sign.kind == "=":
            return
        end, text = sign.end, sign.kind
        if sign.kind == ":" and self.here.kind == "=" and self.here.start == sign.end:
            end, text = self.advance().end, ":="
        spaced = name.span.end < sign.start
        self.tell(faults.not_equals(self.span(sign.start, end), text, name.text, spaced=spaced))

    def separator(self, where: str, told: bool) -> bool:
        """What stands after an item of a list or call; True once a missing comma is told."""
        if self.here.kind in (")", "]") or self.take(","):
            return told
        if self.here.kind == ";":
            self.tell(faults.semicolon(self.of(self.here), ","))
            self.advance()
            return told
        if self.goes_on():
            if not told:
                opener = self.of(self.open[-1])
                found = faults.comma_missing(self.gap(), describe(self.here), where, opener)
                self.tell(found)
            return True
        self.not_closed(where, f"`,` or `{CLOSES[self.open[-1].kind]}`")
        return told

    def goes_on(self) -> bool:
        """The current token seems to be the next item of the innermost bracket."""
        token = self.here
        if token.kind not in _STARTS:
            return False
        if self.same_line(self.before, token):
            return True
        if self.open[-1].kind == "[" and self.after().kind in ("=", "{", "from"):
            return False
        return self.indent(token) > self.indent(self.item)

    def not_closed(self, where: str, wanted: str) -> None:
        """Raises: the innermost bracket cannot go on with the current token."""
        opener = self.open[-1]
        if self.here.kind not in ("end", "}") and self.same_line(self.before, self.here):
            found = describe(self.here)
            place = self.of(self.here)
            raise self.fail(faults.closer_missing(place, found, wanted, where, self.of(opener)))
        self.open.pop()
        self.unclosed(opener)
        raise Lost

    def nothing(self, start: Token) -> ListExpr:
        """What stands in the tree for a bracket that lies too deep."""
        self.height = 1
        return ListExpr((), self.span(start.start, self.before.end))
