"""Canonical text, before and after."""

from __future__ import annotations

import pytest
from parlay.dsl.equal import same_tree
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.source import Source


def formatted(text: str) -> str:
    """The canonical text; it says the same, keeps every comment, and does not change again."""
    source = Source("run.par", text)
    file, diagnostics = parse(source)
    assert diagnostics == ()
    after = format(file, source)
    again = Source("run.par", after)
    second, diagnostics = parse(again)
    assert diagnostics == ()
    assert same_tree(file.statements, second.statements)
    comments = sorted(comment.text.rstrip() for comment in file.comments)
    assert comments == sorted(comment.text for comment in second.comments)
    assert format(second, again) == after
    return after


def test_the_sample_stays_but_for_the_columns_of_its_comments(sample: str) -> None:
    lines = [line.split("#")[0].rstrip() for line in sample.splitlines()]
    after = formatted(sample)
    assert [line.split("#")[0].rstrip() for line in after.splitlines()] == lines
    assert "  dp = auto  # 64 / (8 * 4 * 1) = 2\n" in after
    assert "  parallel { cp = 4, dp = auto }  # 256 / (8 * 4 * 4) = 2\n" in after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("let x=1+2*(3-y)//-4", "let x = 1 + 2 * (3 - y) // -4\n"),
        ("let x=10GB/stages", "let x = 10GB / stages\n"),
        ("let x = 1_000 let y = 3E-4", "let x = 1_000\nlet y = 3E-4\n"),
        ('import   "a.par"', 'import "a.par"\n'),
        ('allow N201\n"why\\n"', 'allow N201 "why\\n"\n'),
        ("assert a.b<=90%*c", "assert a.b <= 90% * c\n"),
        ("a{b=1}", "a { b = 1 }\n"),
        ("a{b=1 c=2,}", "a { b = 1, c = 2 }\n"),
        ("a\n{ b = 1 }", "a { b = 1 }\n"),
        ("a {\nb=1 c=2\n}", "a {\n  b = 1\n  c = 2\n}\n"),
        ("a { }", "a {}\n"),
        ("a {\n\n}", "a {}\n"),
        ('a m from "x"', 'a m from "x"\n'),
        ('a from "x" {b=1}', 'a from "x" { b = 1 }\n'),
        ("a { b { c { d=1 } } }", "a { b { c { d = 1 } } }\n"),
        ("a {\nb { c { d=1 } } }", "a {\n  b { c { d = 1 } }\n}\n"),
        ("a { b=[1,2 , 3,] c=f( x=1,on , ) }", "a { b = [1, 2, 3], c = f(x = 1, on) }\n"),
        (
            "a { b=auto in[1,2] c=auto<=8 d=auto }",
            "a { b = auto in [1, 2], c = auto <= 8, d = auto }\n",
        ),
        ("a { rope( theta=5e5 ) }", "a { rope(theta = 5e5) }\n"),
        ('phase "x"{a{b=1}}', 'phase "x" { a { b = 1 } }\n'),
        ("\n\n\na {}\n\n\n\nb {}\nc {}\n\n", "a {}\n\nb {}\nc {}\n"),
        ("a {\n\n b = 1\n\n\n c = 2\n\n}", "a {\n  b = 1\n\n  c = 2\n}\n"),
        ("a {\r\n b = 1\r\n\r\n\r\n c = 2\r\n}\r\n", "a {\n  b = 1\n\n  c = 2\n}\n"),
        ("a { b = [\n 1,\n 2\n] }", "a {\n  b = [1, 2]\n}\n"),
        ("# x\n\n\n# y\na {} # z  \n# end", "# x\n\n# y\na {}  # z\n# end\n"),
        ("a { # x\n b = 1 # y\n # z\n}", "a {  # x\n  b = 1  # y\n  # z\n}\n"),
        ("a { b = 1, # x\n c = 2 # y\n , d = 3 }", "a {\n  b = 1  # x\n  c = 2  # y\n  d = 3\n}\n"),
        ("a # x\n{ b = 1 }", "# x\na { b = 1 }\n"),
        ("let x = 1 + # why\n 2", "# why\nlet x = 1 + 2\n"),
        ("a {\n b = # x\n 1\n}", "a {\n  # x\n  b = 1\n}\n"),
        (
            "a { b = [1, # one\n 2 # two\n # rest\n] }",
            "a {\n  b = [\n    1,  # one\n    2,  # two\n    # rest\n  ]\n}\n",
        ),
        (
            "a { b = f(x = 1, # one\n y = [ # list\n 2])}",
            "a {\n  b = f(\n    x = 1,  # one\n    y = [  # list\n      2,\n    ],\n  )\n}\n",
        ),
        ("let x = [ # none\n]", "let x = [  # none\n]\n"),
    ],
)
def test_before_and_after(before: str, after: str) -> None:
    assert formatted(before) == after


def test_what_does_not_fit_is_broken_one_item_a_line() -> None:
    items = [f"{n}0_000_000" for n in range(1, 8)]
    one_line = f"a {{ b = [{', '.join(items)}], c = f(x = 1) }}"
    assert len(one_line) > 100
    assert formatted(one_line) == f"a {{\n  b = [{', '.join(items)}]\n  c = f(x = 1)\n}}\n"
    longer = f"let b = [{', '.join(items)}]"
    assert formatted(longer.replace("]", ", 100_000]")) == "\n".join(
        ["let b = [", *(f"  {item}," for item in items), "  100_000,", "]", ""]
    )


def test_a_file_of_comments_is_kept() -> None:
    source = Source("run.par", "#a\n\n\n  # b")
    assert format(parse(source)[0], source) == "#a\n\n# b\n"


def test_the_same_tree_is_one_that_says_the_same() -> None:
    def tree(text: str) -> object:
        return parse(Source("run.par", text))[0]

    assert same_tree(tree("a { b = 1 }"), tree("a{b=1,}"))
    for other in ("a { b = 1.0 }", "a { b = 2 }", "a { c = 1 }", "a { b = 1 } # x", "a { b(1) }"):
        assert not same_tree(tree("a { b = 1 }"), tree(other))
