"""The TextMate grammar of the VS Code extension, its words from the language's own tables."""

from __future__ import annotations

import json
from typing import Any, Final

from parlay.compiler.spec.blocks import Spec, Target
from parlay.compiler.spec.convert import FUNCTIONS
from parlay.compiler.spec.schema import Free, Nested, fields_of
from parlay.dsl.tokens import KEYWORDS
from parlay.dsl.units import UNITS

CONSTANTS: Final = ("auto", "on", "off")


def blocks() -> list[str]:
    """Every word that a block may start with, but for keywords."""
    found = {"target"}

    def walk(kind: type[Any]) -> None:
        for field in fields_of(kind):
            type_ = field.types[0]
            if isinstance(type_, Free):
                found.add(field.name)
            elif isinstance(type_, Nested):
                found.add(field.name)
                walk(type_.block)

    walk(Spec)
    walk(Target)
    return sorted(found)


def _words(names: list[str]) -> str:
    return "|".join(sorted(names, key=lambda name: (-len(name), name)))


def _units() -> str:
    escaped = [unit.replace("$", "\\$") for unit in UNITS if unit]
    return _words(escaped)


def grammar() -> str:
    """The file `par.tmLanguage.json`."""
    number = r"(?:\d[\d_]*)(?:\.\d[\d_]*)?(?:[eE][-+]?\d+)?"
    opens = r"(?=\s*(?:\{|from\b|\"|[A-Za-z_]\w*\s*(?:\{|from\b)))"
    keywords = _words([word for word in KEYWORDS if word not in CONSTANTS])
    patterns: list[dict[str, Any]] = [
        {"name": "comment.line.number-sign.par", "match": "#.*$"},
        {
            "name": "string.quoted.double.par",
            "begin": '"',
            "end": '"|$',
            "patterns": [{"name": "constant.character.escape.par", "match": r'\\["\\n]'}],
        },
        {
            "match": rf"(?<![\w.])({number})({_units()})?(?![\w.])",
            "captures": {
                "1": {"name": "constant.numeric.par"},
                "2": {"name": "keyword.other.unit.par"},
            },
        },
        {"name": "keyword.control.par", "match": rf"\b({keywords})\b"},
        {"name": "constant.language.par", "match": rf"\b({'|'.join(CONSTANTS)})\b"},
        {
            "match": rf"\b({_words(blocks())})\b{opens}",
            "captures": {"1": {"name": "entity.name.type.par"}},
        },
        {
            "name": "support.function.par",
            "match": rf"\b({'|'.join(FUNCTIONS)})\b(?=\s*\()",
        },
        {"name": "entity.name.function.par", "match": r"\b[A-Za-z_]\w*(?=\s*\()"},
        {
            "match": r"\b([A-Za-z_]\w*)\s*(=)(?!=)",
            "captures": {
                "1": {"name": "variable.other.property.par"},
                "2": {"name": "keyword.operator.assignment.par"},
            },
        },
        {"name": "keyword.operator.par", "match": "//|<=|>=|==|!=|[-+*/<>]"},
    ]
    document = {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "Parlay",
        "scopeName": "source.par",
        "fileTypes": ["par"],
        "patterns": patterns,
    }
    return json.dumps(document, indent=2) + "\n"
