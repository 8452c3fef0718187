"""What well-formed text becomes: the tree and its spans."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from parlay.dsl import syntax
from parlay.dsl.parse import parse
from parlay.dsl.source import Source, Span


def tree(text: str) -> syntax.File:
    file, diagnostics = parse(Source("run.par", text))
    assert diagnostics == ()
    return file


def statement(text: str) -> Any:
    (one,) = tree(text).statements
    return one


def value(text: str) -> Any:
    """The value of a field written as `text`, whose span is checked against the text."""
    block = statement(f"b {{ f = {text} }}")
    (field,) = block.body
    assert field.value.span == Span("run.par", 8, 8 + len(text))
    return field.value


def test_the_sample_has_no_mistake(sample: str) -> None:
    file = tree(sample)
    assert [type(one).__name__ for one in file.statements] == [
        *("Let", "Block", "Block", "Block", "Block", "Assert", "Assert", "Block")
    ]
    assert [comment.text for comment in file.comments][1] == "# 64 / (8 * 4 * 1) = 2"
    assert file.span == Span("run.par", 0, len(sample))


def test_every_span_is_the_text_it_stands_for(sample: str) -> None:
    def walk(node: Any) -> None:
        if isinstance(node, tuple) and not isinstance(node, Span):
            for item in node:
                walk(item)
        elif hasattr(node, "span"):
            written = sample[node.span.start : node.span.end]
            assert written == written.strip() or isinstance(node, syntax.File)
            match node:
                case syntax.Name() | syntax.Comment() | syntax.Number():
                    assert written == node.text
                case syntax.String():
                    assert written == f'"{node.value}"'
                case syntax.Field() | syntax.Argument() if node.name:
                    assert written.startswith(node.name.text)
                case syntax.Call() | syntax.ListExpr() | syntax.Group():
                    assert written[-1] in "])"
                case syntax.Block():
                    assert written.startswith(node.kind) and written[-1] in '}"'
            for name in node.__slots__:
                walk(getattr(node, name))

    walk(tree(sample))


def test_windows_line_ends_change_offsets_and_nothing_else(sample: str) -> None:
    windows = tree(sample.replace("\n", "\r\n"))
    assert len(windows.statements) == len(tree(sample).statements)
    assert [c.text for c in windows.comments] == [c.text for c in tree(sample).comments]


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("8", Fraction(8), ""),
        ("007", Fraction(7), ""),
        ("1_000_000", Fraction(10**6), ""),
        ("0.1", Fraction(1, 10), ""),
        ("3e-4", Fraction(3, 10**4), ""),
        ("1.5E+2", Fraction(150), ""),
        ("1e30", Fraction(10**30), ""),
        ("1e00030", Fraction(10**30), ""),
        ("9" * 40, Fraction(10**40 - 1), ""),
        ("8Ki", Fraction(8), "Ki"),
        ("15.6T", Fraction(156, 10), "T"),
        ("7.5B", Fraction(75, 10), "B"),
        ("81_559MiB", Fraction(81559), "MiB"),
        ("400Gb/s", Fraction(400), "Gb/s"),
        ("3.35TB/s", Fraction(335, 100), "TB/s"),
        ("10GB/s", Fraction(10), "GB/s"),
        ("989TFLOP/s", Fraction(989), "TFLOP/s"),
        ("5us", Fraction(5), "us"),
        ("10min", Fraction(10), "min"),
        ("1e3GB", Fraction(1000), "GB"),
        ("90%", Fraction(90), "%"),
        ("2.5$/h", Fraction(5, 2), "$/h"),
    ],
)
def test_numbers_are_exact(text: str, number: Fraction, unit: str) -> None:
    found = value(text)
    assert (found.value, found.unit, found.text) == (number, unit, text)


def test_a_unit_ends_its_number() -> None:
    divided = value("10GB/stages")
    assert divided.operator == "/"
    assert (divided.left.unit, divided.right.path[0].text) == ("GB", "stages")
    assert value("10GB/s_2").right.path[0].text == "s_2"
    assert value("10GB / s").right.path[0].text == "s"
    assert value("8/s").right.path[0].text == "s"
    assert value("90%*x").operator == "*"
    assert value("8//x").operator == "//"


def test_strings_undo_their_escapes() -> None:
    assert value(r'"a\"b\\c\nd"').value == 'a"b\\c\nd'
    assert value('""').value == ""
    assert value('"größe 名前 # { }"').value == "größe 名前 # { }"


def test_operators_group_from_the_left_and_by_rank() -> None:
    def shape(node: Any) -> Any:
        match node:
            case syntax.Binary():
                return (shape(node.left), node.operator, shape(node.right))
            case syntax.Unary():
                return ("-", shape(node.operand))
            case syntax.Group():
                return [shape(node.inner)]
            case syntax.Number():
                return int(node.value)

    assert shape(value("1 - 2 - 3")) == ((1, "-", 2), "-", 3)
    assert shape(value("1 + 2 * 3 // 4")) == (1, "+", ((2, "*", 3), "//", 4))
    assert shape(value("(1 + 2) * 3")) == ([(1, "+", 2)], "*", 3)
    assert shape(value("- -1 - -2")) == (("-", ("-", 1)), "-", ("-", 2))
    assert shape(value("-1 * 2")) == (("-", 1), "*", 2)


def test_auto_and_its_restrictions() -> None:
    assert (value("auto").choices, value("auto").limit) == (None, None)
    assert [int(c.value) for c in value("auto in [1, 2]").choices] == [1, 2]
    assert value("auto in []").choices == ()
    assert value("auto <= 2 * x").limit.operator == "*"
    assert isinstance(value("f(chunks = auto)").arguments[0].value, syntax.Auto)
    assert isinstance(value("[auto, 2]").items[0], syntax.Auto)


def test_calls_lists_and_switches() -> None:
    call = value('cpu(optimizer, rate = 1e-3, on, "x",)')
    assert [argument.name and argument.name.text for argument in call.arguments] == [
        *(None, "rate", None, None)
    ]
    assert call.arguments[1].span == Span("run.par", 23, 34)
    assert value("f()").arguments == ()
    assert value("[]").items == ()
    assert len(value("[1, [2, 3], f(4),]").items) == 3
    assert (value("on").value, value("off").value) == (True, False)
    assert [name.text for name in value("a.b.c").path] == ["a", "b", "c"]


def test_blocks_in_every_form() -> None:
    def block(text: str) -> tuple[Any, ...]:
        one = statement(text)
        label = (one.label and getattr(one.label, "text", None)) or (one.label and one.label.value)
        preset = one.preset and one.preset.value
        return one.kind, label, preset, one.body and len(one.body)

    assert block("parallel{tp=1}") == ("parallel", None, None, 1)
    assert block("model m { a = 1, b = 2, }") == ("model", "m", None, 2)
    assert block('model from "x"') == ("model", None, "x", None)
    assert block('model m from "x" { a = 1 b = 2 }') == ("model", "m", "x", 2)
    assert block('target "megatron" { }') == ("target", "megatron", None, ())
    assert block('phase "long" { train { seq = 1 } }') == ("phase", "long", None, 1)
    assert block('a { b { c { } } d from "x" e { } }')[3] == 3


def test_a_field_may_be_short() -> None:
    short, long = statement("a { rope(theta = 5e5) rope = rope(theta = 5e5) }").body
    assert (short.short, long.short) == (True, False)
    assert short.name.text == long.name.text == "rope"
    assert isinstance(short.value, syntax.Call) and short.span == short.value.span


def test_fields_need_no_newline_and_no_comma() -> None:
    (block,) = tree("a { b = 1 c = x d = on e = [1] f = 8Ki g(1) h { i = 2 } }").statements
    assert isinstance(block, syntax.Block) and block.body is not None
    assert len(block.body) == 7


def test_white_space_never_matters() -> None:
    (block,) = tree("a\n{\nb\n=\n1\n+\n2\n,\nc = f\n(\n1\n)\n}").statements
    assert isinstance(block, syntax.Block) and block.body is not None
    assert len(block.body) == 2


def test_a_unit_may_also_be_a_name() -> None:
    first, second = statement("a { tp = 8 h = 3 }").body
    assert (first.value.unit, second.name.text) == ("", "h")
    assert [
        item.value.unit for item in statement("a { t = 8\n min(3) }").body if not item.short
    ] == [""]


def test_the_other_statements() -> None:
    let = statement("let x = 1 + y")
    assert (let.name.text, let.span) == ("x", Span("run.par", 0, 13))
    assert statement('import "a.par"').path.value == "a.par"
    allow = statement('allow N201 "fast fabric"')
    assert (allow.code.text, allow.reason.value) == ("N201", "fast fabric")
    for sign in ("<", "<=", ">", ">=", "==", "!="):
        held = statement(f"assert a.b {sign} 90% * c")
        assert (held.operator, held.span.end) == (sign, len(f"assert a.b {sign} 90% * c"))


def test_a_hidden_character_in_a_comment_is_a_warning_only() -> None:
    file, (one,) = parse(Source("run.par", '# a\u202eb\nmodel from "x"'))
    assert len(file.statements) == 1
    assert (one.code, one.severity, one.span) == ("P011", "warning", Span("run.par", 3, 4))
