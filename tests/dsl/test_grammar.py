"""The parser against the grammar: both accept a text or neither does; what both accept formats.

Texts are words of the language at random, and whole files grown from its rules, whole or with a
word changed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from random import Random

import lark
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parlay.dsl.diagnostics import Severity
from parlay.dsl.equal import same_tree
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.source import Source

GRAMMAR = lark.Lark(
    files("parlay.dsl").joinpath("grammar.lark").read_text(encoding="utf-8"),
    parser="lalr",
    lexer="basic",
)
NAMES = ["a", "b", "tp", "Ki", "GB", "s", "h", "min", "_", "x1"]
NUMBERS = ["1", "8Ki", "10GB", "10GB/s", "400Gb/s", "90%", "2.5$/h", "1.5", "3e-4", "1_000", "5min"]
STRINGS = ['"x"', '""', r'"a\"\\\n"', '"größe"']
WORDS = ["let", "import", "from", "assert", "phase", "allow", "auto", "on", "off", "in"]
SIGNS = [*"{}[]()=,.+-*/<>", "//", "<=", ">=", "==", "!="]
ODD = [
    *(
        "10MB/s",
        "5.",
        ".5",
        "1__0",
        "1_",
        "8Kx",
        "1e31",
        "1e",
        "9" * 41,
        "0x1",
        ";",
        ":",
        "%",
        "$/h",
    ),
    *(
        "'",
        '"',
        '"\\q"',
        '"\t"',
        "é",
        "а",
        "\u00a0",
        "\u200b",
        "@",
        "&&",
        "/*",
        "*/",
        "\r",
        "\t",
        "\\",
    ),
    *("# c\n", "#\r\n", "\n", "\r\n"),
]
ALL = [*NAMES, *NUMBERS, *STRINGS, *WORDS, *SIGNS, *ODD]


class Grower:
    """A file from the rules of the language, as a list of its words."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def file(self) -> list[str]:
        made = [self.statement() for _ in range(self.random.randint(1, 4))]
        return [word for statement in made for word in statement]

    def statement(self) -> list[str]:
        one = self.random.choice
        match self.random.randrange(8):
            case 0:
                return ["let", one(NAMES), "=", *self.value(2)]
            case 1:
                return ["import", one(STRINGS)]
            case 2:
                sign = one(["<", "<=", ">", ">=", "==", "!="])
                return ["assert", *self.expression(2), sign, *self.expression(2)]
            case 3:
                return ["allow", one(NAMES), one(STRINGS)]
            case 4:
                return ["phase", one(STRINGS), "{", *self.several(lambda: self.block(2)), "}"]
        return self.block(3)

    def several(self, make: Callable[[], list[str]], comma_needed: bool = False) -> list[str]:
        words: list[str] = []
        for number in range(self.random.randrange(4)):
            if number and (comma_needed or self.random.random() < 0.4):
                words.append(",")
            words += make()
        if words and self.random.random() < 0.2:
            words.append(",")
        return words

    def block(self, depth: int) -> list[str]:
        words = [self.random.choice(NAMES)]
        if self.random.random() < 0.3:
            words.append(self.random.choice([*NAMES, *STRINGS]))
        preset = self.random.random() < 0.3
        if preset:
            words += ["from", self.random.choice(STRINGS)]
        if not preset or self.random.random() < 0.5:
            words += ["{", *self.several(lambda: self.item(depth - 1)), "}"]
        return words

    def item(self, depth: int) -> list[str]:
        kind = self.random.random()
        if depth > 0 and kind < 0.3:
            return self.block(depth)
        if kind < 0.4:
            return self.call(depth)
        return [self.random.choice(NAMES), "=", *self.value(depth)]

    def value(self, depth: int) -> list[str]:
        if self.random.random() < 0.15:
            tail = [[], ["in", *self.list(depth)], ["<=", *self.expression(depth)]]
            return ["auto", *self.random.choice(tail)]
        return self.expression(depth)

    def expression(self, depth: int) -> list[str]:
        words = self.operand(depth)
        while self.random.random() < 0.25:
            words += [self.random.choice(["+", "-", "*", "/", "//"]), *self.operand(depth)]
        return words

    def operand(self, depth: int) -> list[str]:
        one = self.random.choice
        minus = ["-"] * (self.random.random() < 0.1)
        if depth <= 0:
            return [*minus, one([*NAMES, *NUMBERS, "on", "off"])]
        match self.random.randrange(8):
            case 0:
                return [*minus, "(", *self.expression(depth - 1), ")"]
            case 1:
                return [*minus, *self.list(depth - 1)]
            case 2:
                return [*minus, *self.call(depth - 1)]
            case 3:
                return [*minus, one(NAMES), ".", one(NAMES)]
            case 4:
                return [*minus, one(STRINGS)]
        return [*minus, one([*NAMES, *NUMBERS])]

    def list(self, depth: int) -> list[str]:
        return ["[", *self.several(lambda: self.value(depth), comma_needed=True), "]"]

    def call(self, depth: int) -> list[str]:
        arguments = self.several(lambda: self.argument(depth), comma_needed=True)
        return [self.random.choice(NAMES), "(", *arguments, ")"]

    def argument(self, depth: int) -> list[str]:
        name = [self.random.choice(NAMES), "="] if self.random.random() < 0.5 else []
        return [*name, *self.value(depth)]


def written(words: list[str], random: Random) -> str:
    """The words with white space and comments between them, or nothing where none is needed."""
    spaces = [" ", " ", "\n", "\r\n", "\t", "  # a comment\n", " \n\n\n", ""]
    text = ""
    for word in words:
        space = random.choice(spaces)
        # Two words without space between them are one.
        if not space and text and (text[-1].isalnum() or text[-1] in "_%"):
            space = " " if word[0].isalnum() or word[0] == "_" else ""
        text += space + word
    return text


def grammar_accepts(text: str) -> bool:
    try:
        GRAMMAR.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


def agree(text: str) -> bool:
    """Whether both accept `text`, which they must agree about; what they accept is formatted."""
    source = Source("run.par", text)
    file, diagnostics = parse(source)
    accepted = not any(one.severity is Severity.ERROR for one in diagnostics)
    assert accepted == grammar_accepts(text), [one.message for one in diagnostics]
    if not accepted:
        return False
    after = Source("run.par", format(file, source))
    again, diagnostics = parse(after)
    assert not any(one.severity is Severity.ERROR for one in diagnostics)
    assert same_tree(file.statements, again.statements)
    comments = sorted(comment.text.rstrip() for comment in file.comments)
    assert comments == sorted(comment.text for comment in again.comments)
    assert format(again, after) == after.text
    return True


# Not hypothesis' own randoms: each draw of theirs is an input to shrink, and a file has hundreds.
randoms = st.integers(0, 2**32 - 1).map(Random)
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(st.lists(st.sampled_from(ALL), max_size=12), st.sampled_from(["", " "]), st.booleans())
def test_words_at_random(words: list[str], space: str, inside: bool) -> None:
    text = space.join(words)
    agree(f"p {{ {text} }}" if inside else text)


@slow
@given(randoms)
def test_files_from_the_rules_are_accepted(random: Random) -> None:
    assert agree(written(Grower(random).file(), random))


@slow
@given(randoms, st.sampled_from(ALL), st.integers(0, 2))
def test_files_with_a_word_changed(random: Random, word: str, how: int) -> None:
    words = Grower(random).file()
    place = random.randrange(len(words))
    words[place : place + (how > 0)] = [word] if how < 2 else []
    agree(written(words, random))


@pytest.mark.parametrize(
    "text",
    [
        "a { b = 10GB/stages c = 10GB/s d = 10GB/s_ }",
        "a { b = 8 h = 3 }",
        "a { b = 8 h c }",
        "a { b = 8 min(1) }",
        "a { b = x.5 }",
        "a { b = 1.5.5 }",
        "a { b = 90%/s }",
        "a { b = 1e0000030 }",
        f"a {{ b = {'9' * 40} }}",
        "a { b = 1 -2 }",
        "a b { }",
        "a\nb { }",
        'a from "x" b { }',
        "let x = y a { }",
        "let x = auto in [1] a { }",
        "# only",
        "",
        "a { b = f (1) }",
        "a { b = c.d (1) }",
        "lets = 1",
        "let lets = on_",
    ],
)
def test_texts_at_the_edges(text: str) -> None:
    agree(text)


def test_the_sample(sample: str) -> None:
    assert agree(sample)
