"""Tree to canonical text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from parlay.dsl.source import Source, Span
from parlay.dsl.syntax import (
    Allow,
    Argument,
    Assert,
    Auto,
    Binary,
    Block,
    Call,
    Comment,
    Expr,
    Field,
    File,
    Group,
    Import,
    Let,
    ListExpr,
    Name,
    Number,
    Ref,
    Statement,
    String,
    Switch,
    Unary,
)

WIDTH = 100
_STEP = "  "
_Node = TypeVar("_Node", Statement, Field | Block, Expr, Argument)


def format(file: File, source: Source) -> str:
    """The canonical text of `file`, which `source` parsed to without an error.

    Two spaces a level, one field a line, numbers and strings as written. A block that stood on one
    line stays there while it fits; lists and calls are broken only where they do not fit or hold a
    comment. Every comment is kept: beside what it stood beside, else on its own line; one from
    within an expression comes before it. Of blank lines between items one at most is kept. The
    result parses to the same tree, and formatting it again changes nothing.
    """
    printer = _Printer(file.comments, source)
    lines = printer.items(file.statements, 0, len(source.text), "", printer.statement)
    return "".join(f"{line}\n" for line in lines)


class _Printer:
    """`at` is the first comment not printed yet; comments are printed in their order."""

    def __init__(self, comments: Sequence[Comment], source: Source) -> None:
        self.comments = comments
        self.text = source.text
        self.at = 0
        self.hoisted: list[str] = []
        """Comments from within what is being printed, to come before it."""

    # ── Comments ──────────────────────────────────────────────────────────────

    def until(self, end: int) -> list[Comment]:
        """Takes the comments before an offset."""
        first = self.at
        while self.at < len(self.comments) and self.comments[self.at].span.start < end:
            self.at += 1
        return list(self.comments[first : self.at])

    def holds_comment(self, span: Span) -> bool:
        """A comment not printed yet stands within `span`."""
        return self.at < len(self.comments) and self.comments[self.at].span.start < span.end

    def beside(self, end: int) -> tuple[str, int]:
        """Takes the comment that follows offset `end` on its line: `  # …`, and where it ends."""
        if self.at < len(self.comments):
            comment = self.comments[self.at]
            if not self.text[end : comment.span.start].strip(" \t,"):
                self.at += 1
                return f"  {_written(comment)}", comment.span.end
        return "", end

    def hoist(self, span: Span) -> None:
        """What cannot stay within one line comes before it."""
        self.hoisted.extend(_written(comment) for comment in self.until(span.end))

    # ── Items ─────────────────────────────────────────────────────────────────

    def items(
        self,
        nodes: Iterable[_Node],
        start: int,
        end: int,
        indent: str,
        print_one: Callable[[_Node, str], list[str]],
        separator: str = "",
    ) -> list[str]:
        """The lines of everything between two offsets: items, comments, blank lines."""
        lines: list[str] = []
        last = start

        def add(text: list[str], place: int) -> None:
            if lines and self.text.count("\n", last, place) > 1:
                lines.append("")
            lines.extend(text)

        for node in nodes:
            for comment in self.until(node.span.start):
                add([indent + _written(comment)], comment.span.start)
                last = comment.span.end
            outer, self.hoisted = self.hoisted, []
            printed = print_one(node, indent)
            self.hoist(node.span)
            before, self.hoisted = [indent + text for text in self.hoisted], outer
            remark, after = self.beside(node.span.end)
            printed[-1] += separator + remark
            add(before + printed, node.span.start)
            last = after
        for comment in self.until(end):
            add([indent + _written(comment)], comment.span.start)
            last = comment.span.end
        return lines

    def statement(self, node: Statement, indent: str) -> list[str]:
        match node:
            case Block():
                return self.block(node, indent)
            case Let():
                return self.assigned(f"let {node.name.text} = ", node.value, indent)
            case Import():
                return [f"import {self.slice(node.path)}"]
            case Allow():
                return [f"allow {node.code.text} {self.slice(node.reason)}"]
            case Assert():
                return [f"assert {self.flat(node.left)} {node.operator} {self.flat(node.right)}"]

    def inside(self, node: Field | Block, indent: str) -> list[str]:
        if isinstance(node, Block):
            return self.block(node, indent)
        start = "" if node.short else f"{node.name.text} = "
        return self.assigned(indent + start, node.value, indent)

    def block(self, node: Block, indent: str) -> list[str]:
        head = indent + self.head(node)
        if node.body is None:
            return [head]
        last = node.preset or node.label or node.keyword
        # Comments of the head come before it: between its words there is no room for them.
        opener = self.opener(last.span.end)
        self.hoisted.extend(_written(comment) for comment in self.until(opener))
        if "\n" not in self.text[opener : node.span.end]:
            flat = indent + self.flat_block(node)
            if len(flat) <= WIDTH:
                return [flat]
        if not node.body and not self.holds_comment(node.span):
            return [head + " {}"]
        remark, start = self.beside(opener + 1)
        lines = self.items(node.body, start, node.span.end - 1, indent + _STEP, self.inside)
        return [f"{head} {{{remark}", *lines, indent + "}"]

    def opener(self, at: int) -> int:
        """The offset of the bracket after `at`, comments passed over."""
        while self.text[at] not in "{[(":
            at = self.text.index("\n", at) if self.text[at] == "#" else at + 1
        return at

    def head(self, node: Block) -> str:
        words = [node.keyword.text]
        if node.label is not None:
            words.append(
                node.label.text if isinstance(node.label, Name) else self.slice(node.label)
            )
        if node.preset is not None:
            words.append(f"from {self.slice(node.preset)}")
        return " ".join(words)

    def flat_block(self, node: Block) -> str:
        if node.body is None:
            return self.head(node)
        items = [
            self.flat_block(item) if isinstance(item, Block) else self.flat_field(item)
            for item in node.body
        ]
        return f"{self.head(node)} {{ {', '.join(items)} }}" if items else f"{self.head(node)} {{}}"

    def flat_field(self, node: Field) -> str:
        value = self.flat(node.value)
        return value if node.short else f"{node.name.text} = {value}"

    # ── Values ────────────────────────────────────────────────────────────────

    def assigned(self, start: str, value: Expr, indent: str) -> list[str]:
        """`start` and the value on one line, or a list or call with one item a line."""
        flat = start + self.flat(value)
        if isinstance(value, Call):
            opener = self.opener(value.name.span.end)
            brackets = value.name.text + "(", ")"
        else:
            opener = value.span.start
            brackets = "[", "]"
        # Up to the bracket there is no room for a comment.
        self.hoisted.extend(_written(comment) for comment in self.until(opener))
        fits = len(flat) <= WIDTH and not self.holds_comment(value.span)
        if fits or not isinstance(value, ListExpr | Call):
            return [flat]
        remark, first = self.beside(opener + 1)
        deeper, end = indent + _STEP, value.span.end - 1
        if isinstance(value, Call):
            lines = self.items(value.arguments, first, end, deeper, self.argument, ",")
        else:
            lines = self.items(value.items, first, end, deeper, self.item, ",")
        if not lines and not remark:
            return [flat]
        return [f"{start}{brackets[0]}{remark}", *lines, indent + brackets[1]]

    def item(self, node: Expr, indent: str) -> list[str]:
        return self.assigned(indent, node, indent)

    def argument(self, node: Argument, indent: str) -> list[str]:
        name = "" if node.name is None else f"{node.name.text} = "
        return self.assigned(indent + name, node.value, indent)

    def flat(self, node: Expr) -> str:
        match node:
            case Number():
                return node.text
            case String():
                return self.slice(node)
            case Switch():
                return "on" if node.value else "off"
            case Ref():
                return ".".join(name.text for name in node.path)
            case ListExpr():
                return f"[{', '.join(map(self.flat, node.items))}]"
            case Call():
                return f"{node.name.text}({', '.join(map(self.flat_argument, node.arguments))})"
            case Unary():
                return f"-{self.flat(node.operand)}"
            case Binary():
                return f"{self.flat(node.left)} {node.operator} {self.flat(node.right)}"
            case Group():
                return f"({self.flat(node.inner)})"
            case Auto():
                if node.choices is not None:
                    return f"auto in [{', '.join(map(self.flat, node.choices))}]"
                return "auto" if node.limit is None else f"auto <= {self.flat(node.limit)}"

    def flat_argument(self, node: Argument) -> str:
        value = self.flat(node.value)
        return value if node.name is None else f"{node.name.text} = {value}"

    def slice(self, node: String) -> str:
        return self.text[node.span.start : node.span.end]


def _written(comment: Comment) -> str:
    return comment.text.rstrip()
