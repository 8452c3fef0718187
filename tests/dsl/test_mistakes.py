"""Every kind of mistake: its code, its place, its fix, and that nothing else is told."""

from __future__ import annotations

import re
import time

import pytest
from parlay.dsl import parse as front
from parlay.dsl.diagnostics import Diagnostic, Fix
from parlay.dsl.diagnostics.codes import CODES, NOT_RUN
from parlay.dsl.parse import parse
from parlay.dsl.source import Source
from parlay.dsl.syntax import Block, Field

# «» mark the primary place of each mistake; the second text is what the first fix makes of it.
CASES: list[tuple[str, str, str | None]] = [
    ("P010", "b { f = «@» x }", None),
    ("P010", "b { f = 8 «%» 3 }", None),
    ("P010", "b { f = x «&&» y }", None),
    ("P010", "b { f = «$»2/h }", None),
    ("P010", "b { f = «€¡¿» 3 }", None),
    ("P011", "b { f = «\u202e»3 }", "b { f = 3 }"),
    ("P011", 'b { f = "x«\u202e»y" }', 'b { f = "xy" }'),
    ("P011", 'b { f = "x«\x1b»[31m" }', 'b { f = "x[31m" }'),
    ("P011", 'b { f = "x«\t»y" }', 'b { f = "x y" }'),
    ("P011", "# c«\r»b { f = 3 }", "# c\nb { f = 3 }"),
    ("P012", "b { «тp» = 8 }", "b { tp = 8 }"),
    ("P012", "b { f = «８» }", "b { f = 8 }"),
    ("P012", "b { f = 3 «−» 2 }", "b { f = 3 - 2 }"),
    ("P012", "b {«\u00a0»f = 3 }", "b { f = 3 }"),
    ("P012", "b { f = auto «≤» 8 }", "b { f = auto <= 8 }"),
    ("P013", "b { «größe» = 8 }", None),
    ("P014", 'model from «"x»', 'model from "x"'),
    ("P014", 'b { f = «"x» }', 'b { f = "x" }'),
    ("P014", 'b { f = «"x» # c\n}', 'b { f = "x" # c\n}'),
    ("P014", 'model from «"x» {\n}', 'model from "x" {\n}'),
    ("P015", 'b { f = «"x\ny"» }', 'b { f = "x\\ny" }'),
    ("P016", 'b { f = "a«\\q»b" }', 'b { f = "a\\\\qb" }'),
    ("P017", "model from «'x'»", 'model from "x"'),
    ("P017", "model from «“x”»", 'model from "x"'),
    (
        "P018",
        "b { f = 8 «//» eight GPUs, don't ask\n g = 4 }",
        "b { f = 8 # eight GPUs, don't ask\n g = 4 }",
    ),
    ("P018", "b {\n f = 8 «//» eight, as ever\n g = 4 }", "b {\n f = 8 # eight, as ever\n g = 4 }"),
    ("P035", "b { f = x // 8, «g» 4 }", "b { f = x // 8, g = 4 }"),
    ("P018", "«//» the job\nb { }", "# the job\nb { }"),
    ("P018", "b { «//» f = 8, g : 3 %\n g = 4 }", "b { # f = 8, g : 3 %\n g = 4 }"),
    ("P018", "b { f = [1, «//» one\n 2] }", None),
    ("P018", "«/*» a\n * b */\nb { }", "# a\n# b\nb { }"),
    ("P018", "«/*» a */ b { }", None),
    ("P019", "b { f = 8«;» g = 4 }", "b { f = 8, g = 4 }"),
    ("P019", "let x = 3«;»", "let x = 3"),
    ("P020", f"b {{ f = «{'9' * 41}» }}", None),
    ("P020", f"b {{ f = «{'9' * 5000}» }}", None),
    ("P021", "b { f = «1e999» }", None),
    ("P021", "b { f = «1e31» }", None),
    ("P021", "b { f = «1e-999999999999» }", None),
    ("P022", "b { f = 8«Kx» }", "b { f = 8k }"),
    ("P022", "b { f = 400«Gbps» }", "b { f = 400Gb/s }"),
    ("P022", "b { f = 8«µs» }", "b { f = 8us }"),
    ("P022", "b { f = 10«MB/s» }", "b { f = 10Gb/s }"),
    ("P022", "b { f = 8«Кi» }", "b { f = 8Ki }"),
    ("P023", "b { f = «8 Ki» }", "b { f = 8Ki }"),
    ("P023", "b { f = «10 GB/s» }", "b { f = 10GB/s }"),
    ("P023", "b { f = [«8 Ki», 2] }", "b { f = [8Ki, 2] }"),
    ("P023", "b { f = «90 %» }", "b { f = 90% }"),
    ("P023", "b { f = «2 $/h» }", "b { f = 2$/h }"),
    ("P023", "let x = «8 Ki»", "let x = 8Ki"),
    ("P023", "assert a < «8 GB»", "assert a < 8GB"),
    ("P024", "b { f = «.»5 }", "b { f = 0.5 }"),
    ("P024", "b { f = «5.» }", "b { f = 5 }"),
    ("P024", "b { f = «1__0» }", "b { f = 10 }"),
    ("P024", "b { f = «1_» }", "b { f = 1 }"),
    ("P024", "b { f = «0x10» }", "b { f = 16 }"),
    ("P024", "b { f = «1.2.3» }", None),
    ("P024", "b { f = «1e» }", None),
    ("P030", "b «{»\n f = 8", "b {\n f = 8\n}"),
    ("P030", "b «{»\n  f = 8\nc {\n  g = 1\n}", "b {\n  f = 8\n}\nc {\n  g = 1\n}"),
    ("P030", "b «{»\n  f = 8\nlet x = 3", "b {\n  f = 8\n}\nlet x = 3"),
    ("P030", "b {\n f = «[»1, 2\n g = 3\n}", "b {\n f = [1, 2]\n g = 3\n}"),
    ("P030", "b {\n f = g«(»1, 2\n h = 3\n}", "b {\n f = g(1, 2)\n h = 3\n}"),
    ("P030", "b { f = «(»1 + 2 }", "b { f = (1 + 2) }"),
    ("P031", "b { f = [1, 2«)» }", "b { f = [1, 2] }"),
    ("P031", "b { f = 8 } «}»", "b { f = 8 } "),
    ("P031", "b { f = 8 «]» g = 3 }", "b { f = 8  g = 3 }"),
    ("P032", "b { f = " + "(" * 63 + "«(»" + "1" + ")" * 64 + " }", None),
    ("P032", "p " + "{ a " * 64 + "«{» a " * 1 + "{ a " * 1000, None),
    ("P033", "b { f = " + "+".join(["1"] * 128) + "«+»1 }", None),
    ("P034", "b { f = «,» g = 3 }", None),
    ("P034", "b { f =«»\n g = 3 }", None),
    ("P034", "b { f = «=» 3 }", None),
    ("P034", "b { f = 3 *«»\n}", None),
    ("P034", "b { f = «+»3 }", "b { f = 3 }"),
    ("P034", "let x = «let» y = 3", None),
    ("P035", "b { «f» 8 }", "b { f = 8 }"),
    ("P035", "b { «f» bf16 }", "b { f = bf16 }"),
    ("P035", "b { «f» -8 }", "b { f = -8 }"),
    ("P035", 'b { «f» "x" }', 'b { f = "x" }'),
    ("P035", "let «x» 8", "let x = 8"),
    ("P036", "b { f«:» 8 }", "b { f = 8 }"),
    ("P036", "b { f «:» 8 }", "b { f = 8 }"),
    ("P036", "b { f «==» 8 }", "b { f = 8 }"),
    ("P036", "b { f «:=» 8 }", "b { f = 8 }"),
    ("P036", "b { f «<=» 8 }", "b { f = auto <= 8 }"),
    ("P036", "b { f = g(h«:» 8) }", "b { f = g(h = 8) }"),
    ("P037", "b { f = [1«» 2 3] }", "b { f = [1, 2 3] }"),
    ("P037", "b { f = g(h = 8«» i = 9) }", "b { f = g(h = 8, i = 9) }"),
    ("P037", "b { f = g(\n  h = 8«»\n  i = 9\n) }", "b { f = g(\n  h = 8,\n  i = 9\n) }"),
    ("P037", "b { f = [1 «=» 2] }", None),
    ("P037", "b { f = (1 «2») }", None),
    ("P038", "b { f = 1,«,» g = 2 }", "b { f = 1, g = 2 }"),
    ("P038", "b { «,» f = 1 }", "b {  f = 1 }"),
    ("P038", "let x = 1«,» let y = 2", "let x = 1 let y = 2"),
    ("P039", "b { «on» = 3 }", None),
    ("P039", "b { f = x.«in» }", None),
    ("P039", "let «phase» = 3", None),
    ("P040", "b { «8» }", None),
    ("P040", "«8»", None),
    ("P040", 'b { «"x"» }', None),
    ("P040", "b { f = 1 «=» 2 }", None),
    ("P041", "«tp» = 8", None),
    ("P041", "«rope»(theta = 8)", None),
    ("P042", "b {\n «let» x = 3\n}", None),
    ("P042", 'b { «phase» "x" { } }', None),
    ("P043", "«model»", None),
    ("P043", "b { «f»\n g = 3 }", None),
    ("P043", "model m «oops» { f = 3 }", None),
    ("P044", "import «a.par»", 'import "a.par"'),
    ("P044", "import«»", None),
    ("P045", "phase «long» { }", 'phase "long" { }'),
    ("P045", 'phase "x"«»\nmodel { }', None),
    ("P046", "allow«»", None),
    ("P046", "allow N201«»", None),
    ("P047", "assert a«»", None),
    ("P047", "assert a «=» 3", "assert a == 3"),
    ("P048", "assert a < b «<» c", None),
    ("P048", "assert a < 1 «and» b < 2", "assert a < 1 \nassert b < 2"),
    ("P049", "b { f = x «<» 3 }", None),
    ("P049", "b { f = auto <= 8 «<=» 9 }", None),
    ("P050", "let «8» = 3", None),
    ("P050", "b { f = x.«}»", None),
    ("P051", 'b { «"f"» = 8 }', "b { f = 8 }"),
    ("P052", "model from «llama3-70b»", 'model from "llama3-70b"'),
    ("P052", "model from «llama3-70b» {\n f = 3\n}", 'model from "llama3-70b" {\n f = 3\n}'),
    ("P053", 'phase "x" { «f» = 3 }', None),
    ("P055", "b { f = auto «<» 8 }", "b { f = auto <= 8 }"),
    ("P055", "b { f = auto «>=» 8 }", None),
    ("P055", "b { f = auto in «8» }", None),
    ("P056", "«parallel.tp» = 8", "parallel { tp = 8 }"),
    ("P056", "b { «a.b.c» = f(1) }", "b { a { b { c = f(1) } } }"),
    ("P057", "parallel «=» { tp = 8 }", "parallel  { tp = 8 }"),
    ("P057", "b { c«:» { tp = 8 } }", "b { c { tp = 8 } }"),
    ("P058", "b { f = «auto» + 1 }", None),
    ("P058", "b { f = 1 + «auto» }", None),
    ("P058", "b { f = («auto») }", None),
    ("P019", "b { f = [1«;» 2] }", "b { f = [1, 2] }"),
    ("P019", "b { f = g(x = 1«;» y = 2) }", "b { f = g(x = 1, y = 2) }"),
    ("P022", "b { f = 10«foo/s» }", "b { f = 10Gb/s }"),
    ("P024", "b { f = «1__x» }", None),
    ("P024", "b { f = «0b12» }", None),
    ("P024", "b { f = «0x10» }", "b { f = 16 }"),
    ("P024", f"b {{ f = «0x{'f' * 33}» }}", None),
    ("P030", "b { f = «[»1\n2] }", None),
    ("P036", "b { f = g(x «:=» 2) }", "b { f = g(x = 2) }"),
    ("P036", "b { f = g(x «==» 2) }", "b { f = g(x = 2) }"),
    ("P036", "b { f = g(x«:» 2) }", "b { f = g(x = 2) }"),
    ("P037", "b { f = [1 «=» 2] }", None),
]


def told(text: str) -> tuple[Diagnostic, ...]:
    return parse(Source("run.par", text))[1]


def applied(text: str, fix: Fix) -> str:
    for edit in sorted(fix.edits, key=lambda edit: -edit.span.start):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


@pytest.mark.parametrize(("code", "marked", "mended"), CASES)
def test_one_mistake_is_told_once_at_its_place(code: str, marked: str, mended: str | None) -> None:
    start = marked.index("«")
    end = marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")
    before = time.process_time()
    (one,) = told(text)
    assert time.process_time() - before < 10
    assert one.code == code, one.message
    assert one.span is not None
    assert (one.span.start, one.span.end) == (start, end)
    assert one.labels[0].span == one.span
    assert " you" not in f" {one.message} {one.help} {one.notes}".lower()
    if mended is None:
        return
    assert applied(text, one.fixes[0]) == mended
    if "2 3]" not in mended:
        assert told(mended) == ()


def test_every_code_of_the_parser_has_a_case() -> None:
    cases = {code for code, _, _ in CASES}
    assert set(CODES) - NOT_RUN - cases == {"P007"}


def test_every_mistake_of_a_file_is_told_in_one_run() -> None:
    text = """\
parallel {
  tp: 8
  pp = [1, 2
  cp = 8 Ki
}
model from llama
assert a
let x = 3
"""
    file, diagnostics = parse(Source("run.par", text))
    assert [(one.code, one.span and one.span.start) for one in diagnostics] == [
        ("P036", text.index(":")),
        ("P030", text.index("[")),
        ("P023", text.index("8 Ki")),
        ("P052", text.index("llama")),
        ("P047", text.index("\nlet")),
    ]
    # What stands beside a mistake is in the tree.
    assert [type(one).__name__ for one in file.statements] == ["Block", "Block", "Let"]


def test_a_mistake_in_a_block_leaves_the_rest_of_the_block() -> None:
    file, diagnostics = parse(
        Source("run.par", "b {\n f = = 3\n g = 4\n h = * 2, i = 5\n}\nc { j = 6 }")
    )
    assert len(diagnostics) == 2
    first, second = file.statements
    assert [field.name.text for field in first.body] == ["g", "i"]  # type: ignore[union-attr]
    assert [field.name.text for field in second.body] == ["j"]  # type: ignore[union-attr]


def test_a_mistake_within_brackets_does_not_leak() -> None:
    for broken in ("[1, = 2, 3]", "f(1, = 2, [3])", "((1 + ) * 2)", "[1, {2}, 3]"):
        assert len(told(f"b {{\n f = {broken}\n g = 4\n}}")) == 1


def test_a_statement_left_of_an_open_block_closes_it_once() -> None:
    assert [one.code for one in told("a {\n  f = 1\nlet x = 2\nb {\n  g = = 2\n}")] == [
        "P030",
        "P034",
    ]


def test_many_mistakes_end_in_one_note() -> None:
    diagnostics = told("b { f = }\n" * 500)
    assert len(diagnostics) == 101
    assert (diagnostics[-1].code, diagnostics[-1].severity) == ("P070", "note")
    assert len(told("« " * 500)) == 101


def test_the_order_is_that_of_the_text() -> None:
    diagnostics = told("b { f: 1, g = @, h: 2, i = 8Kx, j 3 }")
    places = [one.span.start for one in diagnostics if one.span]
    assert [one.code for one in diagnostics] == ["P036", "P010", "P036", "P022", "P035"]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "text",
    [
        "p " + "{ a " * 1000 + "} " * 1000,
        "b { f = " + "[" * 1000 + "]" * 1000 + " }",
        "b { f = " + "f(" * 1000 + ")" * 1000 + " }",
        "b { f = " + "- " * 5000 + "x }",
        "b { f = " + "1 + " * 5000 + "x }",
        "b { f = " + "1 - (" * 5000 + "x }",
        "b { f = x" + ".y" * 5000 + " }",
        "b {" + " f = 1" * 10_000 + " }",
        "[" * 20_000,
        "«" * 20_000,
        "/*" * 20_000,
        '"' * 20_000,
        "'" * 20_001,
        "\\" * 20_000,
        "\r" * 20_000,
        "b { f = " + "1_" * 20_000 + " }",
        "b { f = " + "8" * 20_000 + " }",
        "b { f = " + "8." * 20_000 + " }",
        "b { f = 1e" + "9" * 20_000 + " }",
        "й" * 20_000,
        "x" * 100_000,
        "\x00" * 1000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_monstrous_texts_are_answered_at_once(text: str) -> None:
    before = time.process_time()
    diagnostics = told(text)
    assert time.process_time() - before < 10
    assert len(diagnostics) <= 101


def test_messages_are_short_whatever_the_text() -> None:
    for text in ("b { " + "x" * 9000 + ": 8 }", "b { f = 8" + "k" * 9000 + " }", "@" * 9000):
        for one in told(text):
            assert len(one.message) < 200
            assert all(len(fix.title) < 100 for fix in one.fixes)


def test_no_message_speaks_to_the_reader() -> None:
    words = re.compile(r"\b(you|your|please|sorry|we|our)\b", re.IGNORECASE)
    for code, (title, page) in CODES.items():
        assert not words.search(title + page), code


def test_parse_is_the_front_door() -> None:
    assert front.parse is parse


@pytest.mark.parametrize(
    ("text", "fields", "lost"),
    [
        ("b { f = = 3, g = 4 }", ["g"], ["f"]),
        ("b { f = 8Kx, g = 4 }", ["g"], ["f"]),
        ("b { f = 1e99 + 2, g = 4 }", ["g"], ["f"]),
        ("b { f = @ 8, g = 4 }", ["g"], ["f"]),
        ("b { größe = 8, g = 4 }", ["g"], ["größe"]),
        ("b { f = 8 // eight GPUs\n g = 4 }", ["g"], ["f", "GPUs"]),
        ("b { f: 8 g 4 }", ["f", "g"], []),
        ("b { f = 8 Ki, c { g = 4Kx } }", ["f", "c"], []),
        ("b { f\n g = 4 }", ["g"], ["f"]),
        ("b { f(x = ) g = 4 }", ["g"], ["f"]),
    ],
)
def test_a_field_that_would_be_a_guess_is_lost_by_name(
    text: str, fields: list[str], lost: list[str]
) -> None:
    file, diagnostics = parse(Source("run.par", text))
    assert len(diagnostics) >= 1
    (block,) = file.statements
    assert isinstance(block, Block) and block.body is not None
    names = [item.name.text if isinstance(item, Field) else item.kind for item in block.body]
    assert names == fields
    assert [name.text for name in block.lost] == lost


def test_lets_and_blocks_are_lost_by_name() -> None:
    text = "let x = 8Kx\nlet y = 3\nmodel\nlet z 4\nlet w = 1 // one two"
    file, _ = parse(Source("run.par", text))
    assert [name.text for name in file.lost] == ["x", "model", "w", "two"]
    assert len(file.statements) == 2


def test_a_brace_missing_in_the_middle_costs_no_block() -> None:
    text = """\
cluster {
  node {
    gpus = 8
  fabric { kind = infiniband }
}
model from "x"
parallel {
  tp = 8
train { seq = 8Ki }
"""
    file, diagnostics = parse(Source("run.par", text))
    assert [(one.code, one.span and one.span.start) for one in diagnostics] == [
        ("P030", text.index("{\n    gpus")),
        ("P030", text.index("{\n  tp")),
    ]
    kinds = [one.kind for one in file.statements if isinstance(one, Block)]
    assert kinds == ["cluster", "model", "parallel", "train"]
    for one in diagnostics:
        text = applied(text, one.fixes[0]) if one is diagnostics[-1] else text
    assert len(told(text)) == 1
