"""The renderers, against texts written by hand."""

from __future__ import annotations

import json

from parlay.dsl.diagnostics import Diagnostic, Edit, Fix, Label, Severity, error, note, warning
from parlay.dsl.diagnostics.github import to_github
from parlay.dsl.diagnostics.order import in_order
from parlay.dsl.diagnostics.sarif import to_sarif
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.diagnostics.to_json import to_json
from parlay.dsl.parse import parse
from parlay.dsl.source import Source, Span

TEXT = """\
# a job
model {
  kv_heads = 6
}









parallel {
  tp = 8
}
"""
SOURCES = {"run.par": Source("run.par", TEXT)}


def at(words: str, text: str = TEXT, file: str = "run.par") -> Span:
    start = text.index(words)
    return Span(file, start, start + len(words))


DIVIDES = error(
    "L203",
    "tp = 8 does not divide kv_heads = 6",
    at("8"),
    "each TP rank needs a whole number of key/value heads",
    also=[(at("6"), "6 key/value heads")],
    notes=["6 / 8 leaves 6"],
    help=["tp = 2, pp = 4, dp = 8 keeps 64 GPUs and fits (61.2 GB of 85.5 GB)"],
)


def test_a_conflict_of_two_lines() -> None:
    assert (
        render([DIVIDES], SOURCES)
        == """\
error[L203]: tp = 8 does not divide kv_heads = 6
  --> run.par:15:8
   |
 3 |   kv_heads = 6
   |              - 6 key/value heads
15 |   tp = 8
   |        ^ each TP rank needs a whole number of key/value heads
   |
   = note: 6 / 8 leaves 6
   = help: tp = 2, pp = 4, dp = 8 keeps 64 GPUs and fits (61.2 GB of 85.5 GB)

run.par: 1 error
"""
    )


def test_several_labels_on_one_line_and_a_fix() -> None:
    text = "\tp = f(a, b, c)  # 名前\n"
    source = Source("run.par", text)
    told = warning(
        "W001",
        "three of them",
        at("a", text),
        "first",
        also=[(at("b", text), "second"), (at("c)", text), "third"), (at("p = f", text), "")],
        notes=["one\nand more"],
        fixes=[Fix("take `b` out", (Edit(at("b", text), ""),))],
    )
    assert (
        render([told], {"run.par": source})
        == """\
warning[W001]: three of them
 --> run.par:1:8
  |
1 |     p = f(a, b, c)  # 名前
  |     ----- ^  -  -- third
  |           |  |
  |           |  second
  |           first
  |
  = note: one
          and more
  = fix: take `b` out

run.par: 1 warning
"""
    )


def test_labels_in_several_files() -> None:
    sources = {**SOURCES, "base.par": Source("base.par", "model { heads = 6 }")}
    place = Span("base.par", 16, 17)
    told = error("L1", "m", at("8"), "here", also=[(place, "there"), (Span("gone", 0, 1), "lost")])
    assert (
        render([told], sources)
        == """\
error[L1]: m
  --> run.par:15:8
   |
15 |   tp = 8
   |        ^ here
  ::: base.par:1:17
   |
 1 | model { heads = 6 }
   |                 - there
  ::: gone: lost

run.par: 1 error
"""
    )


def test_a_place_less_diagnostic_and_the_closing_line() -> None:
    missing = Diagnostic("P001", Severity.ERROR, "no such file", "x.par", help=("look",))
    assert (
        render([missing], {})
        == """\
error[P001]: no such file
 --> x.par
  = help: look

x.par: 1 error
"""
    )
    many = [missing, DIVIDES, warning("W1", "w", at("6")), note("N1", "n", at("6"))]
    assert render(many, SOURCES).endswith("\n2 files: 2 errors, 1 warning\n")
    assert render([note("N1", "n", at("6"))], SOURCES).endswith("run.par: 1 note\n")
    assert render([], SOURCES) == ""
    assert "1 error\n" not in render([missing], {}, summary=False)


def test_a_long_line_is_cut_around_its_mark() -> None:
    text = f"let x = [{'1, ' * 5000}: {'2, ' * 5000}]\n"
    source = Source("run.par", text)
    shown = render(parse(source)[1][:1], {"run.par": source}, width=60)
    line, mark = shown.splitlines()[3:5]
    assert len(line) == 60
    assert line.startswith("1 | …") and line.endswith("…")
    assert line[mark.index("^")] == ":"
    tail = Source("run.par", f"let x = [{'1, ' * 500}2")
    shown = render(parse(tail)[1], {"run.par": tail}, width=60)
    assert max(len(line) for line in shown.splitlines()[3:5:2]) <= 60


def test_wide_and_combining_characters_keep_the_mark_in_its_column() -> None:
    text = 'b { f = "名前 e\u0301" : }'
    source = Source("run.par", text)
    lines = render(parse(source)[1], {"run.par": source}).splitlines()
    # Two wide characters push the mark two columns on, a combining one pulls it one back.
    assert lines[4].index("^") - len("1 | ") == text.index(":") + 2 - 1


def test_nothing_of_a_text_reaches_the_terminal_as_a_command() -> None:
    text = 'import "\x1b[31m\u202e\u200b\x9b" \x07 # \x1b]0;title\x07\nb { f: "\udc80" }'
    source = Source("\x1b[2J.par", text)
    told = [*parse(source)[1], error("X1", "a\x1bb", Span(source.name, 0, 6), "c\nd\x1b")]
    shown = render(told, {source.name: source})
    assert set(filter(lambda c: ord(c) < 32 or 0x7F <= ord(c) < 0xA0, shown)) == {"\n"}
    assert not any(character in shown for character in "\u202e\u200b\udc80")
    assert "␛[31m\\u{202E}" in shown
    shown.encode()


def test_text_from_right_to_left_does_not_reorder_the_line() -> None:
    source = Source("run.par", 'b { f: "שלום" }')
    shown = render(parse(source)[1], {"run.par": source})
    assert "\\u{5E9}" in shown


def test_color_adds_codes_and_nothing_else() -> None:
    plain = render([DIVIDES], SOURCES)
    colored = render([DIVIDES], SOURCES, color=True)
    assert colored.startswith("\x1b[1;31merror[L203]\x1b[0m")
    import re

    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_the_order_is_by_file_and_place_and_each_is_told_once() -> None:
    first, second = error("A", "x", at("6")), error("B", "x", at("8"))
    other = error("C", "x", Span("a.par", 0, 1))
    nowhere = Diagnostic("D", Severity.ERROR, "x", "run.par")
    again = error("A", "x", at("6"), "another label")
    told = in_order([second, other, first, again, nowhere])
    assert [one.code for one in told] == ["D", "A", "B", "C"]
    assert told[1] is first
    same_place = [error("Z", "x", at("6")), error("Y", "x", at("6"))]
    assert [one.code for one in in_order(same_place)] == ["Z", "Y"]


def test_json_has_the_shape_of_the_command() -> None:
    fixed = error("L1", "m", at("8"), "l", fixes=[Fix("t", (Edit(at("8"), "2"),))])
    missing = Diagnostic("P001", Severity.ERROR, "no such file", "x\udc80.par")
    document = to_json([("run.par", [fixed]), ("x\udc80.par", [missing])], SOURCES)
    place = {"line": 15, "column": 8, "end_line": 15, "end_column": 9}
    start = at("8").start
    assert document == {
        "version": 1,
        "files": [
            {
                "file": "run.par",
                "diagnostics": [
                    {
                        "code": "L1",
                        "severity": "error",
                        "message": "m",
                        "file": "run.par",
                        **place,
                        "labels": [{"file": "run.par", **place, "text": "l"}],
                        "notes": [],
                        "help": [],
                        "fixes": [
                            {
                                "title": "t",
                                "edits": [
                                    {
                                        "file": "run.par",
                                        "start": start,
                                        "end": start + 1,
                                        "text": "2",
                                    }
                                ],
                            }
                        ],
                    }
                ],
            },
            {
                "file": "x?.par",
                "diagnostics": [
                    {
                        "code": "P001",
                        "severity": "error",
                        "message": "no such file",
                        "file": "x?.par",
                        **dict.fromkeys(place),
                        "labels": [],
                        "notes": [],
                        "help": [],
                        "fixes": [],
                    }
                ],
            },
        ],
        "summary": {"errors": 2, "warnings": 0},
    }
    json.dumps(document, allow_nan=False).encode()


def test_sarif() -> None:
    fix = Fix("t", (Edit(at("8"), "2"), Edit(at("6"), "8")))
    told = [
        error("L1", "m", at("8"), also=[(at("6"), "why")], notes=["n"], fixes=[fix]),
        note("A1", "x", at("6")),
        Diagnostic("P001", Severity.WARNING, "gone", "a b.par"),
    ]
    log = to_sarif(told, SOURCES, version="0.1.0", titles={"L1": "a title"})
    (run,) = log["runs"]
    assert log["version"] == "2.1.0" and run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["A1", "L1", "P001"]
    assert rules[1]["shortDescription"] == {"text": "a title"}
    six, eight, gone = run["results"]
    assert [rules[one["ruleIndex"]]["id"] for one in run["results"]] == ["A1", "L1", "P001"]
    assert [six["level"], eight["level"], gone["level"]] == ["note", "error", "warning"]
    assert eight["message"]["text"] == "m\nn"
    region = eight["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (15, 8, 9)
    assert eight["relatedLocations"][0]["message"] == {"text": "why"}
    (change,) = eight["fixes"][0]["artifactChanges"]
    assert [one["insertedContent"]["text"] for one in change["replacements"]] == ["2", "8"]
    assert change["replacements"][0]["deletedRegion"]["charOffset"] == at("8").start
    assert gone["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "a%20b.par"}}}]
    json.dumps(log, allow_nan=False)


def test_github_annotations() -> None:
    told = [
        error("L1", "100% wrong:\nreally", at("8"), "why", help=["do"]),
        warning("W1", "w", Span("run.par", 0, 20)),
        Diagnostic("P001", Severity.NOTE, "gone", "a,b:c.par"),
    ]
    lines = to_github(told, SOURCES).splitlines()
    assert lines == [
        "::warning file=run.par,line=1,endLine=3,title=W1::w",
        "::error file=run.par,line=15,col=8,endColumn=8,title=L1"
        "::100%25 wrong:%0Areally%0Awhy%0Ahelp: do",
        "::notice file=a%2Cb%3Ac.par,title=P001::gone",
    ]


def test_a_label_without_words_is_a_mark_alone() -> None:
    told = Diagnostic("X", Severity.ERROR, "m", "run.par", at("8"), (Label(at("8"), ""),))
    assert "|        ^\n" in render([told], SOURCES)
