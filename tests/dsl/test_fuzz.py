"""A broken file is answered: never an exception, never a long wait, every place within the text."""

from __future__ import annotations

import re
import time
from pathlib import Path
from random import Random

import pytest
from parlay.dsl.diagnostics import Severity
from parlay.dsl.diagnostics.github import to_github
from parlay.dsl.diagnostics.sarif import to_sarif
from parlay.dsl.diagnostics.terminal import render
from parlay.dsl.diagnostics.to_json import to_json
from parlay.dsl.format import format
from parlay.dsl.parse import parse
from parlay.dsl.read import read
from parlay.dsl.source import Source

pytestmark = pytest.mark.slow

ROUNDS = 300
WORDS = [
    *("{", "}", "[", "]", "(", ")", "=", ",", ".", "-", "+", "/", "//", "<=", ":", ";", "#", '"'),
    *(
        "auto",
        "let",
        "phase",
        "from",
        "in",
        "on",
        "assert",
        "8",
        "8 Ki",
        "x",
        "\n",
        "\\",
        "'",
        "/*",
    ),
    *("\u202e", "é", "\u00a0", "\r", "\t", "9" * 60, "1e99", "“", "\x00"),
]


def survives(source: Source) -> None:
    before = time.process_time()
    file, diagnostics = parse(source)
    for one in diagnostics:
        assert one.span is not None
        for label in one.labels:
            assert 0 <= label.span.start <= label.span.end <= len(source.text)
        for fix in one.fixes:
            for edit in fix.edits:
                assert 0 <= edit.span.start <= edit.span.end <= len(source.text)
    sources = {source.name: source}
    shown = render(diagnostics, sources, color=True, width=80)
    assert shown.count("\n") < 3000
    to_json([(source.name, diagnostics)], sources)
    to_sarif(diagnostics, sources)
    to_github(diagnostics, sources)
    if not any(one.severity is Severity.ERROR for one in diagnostics):
        format(file, source)
    assert time.process_time() - before < 10


@pytest.mark.parametrize("seed", range(4))
def test_words_changed(sample: str, seed: int) -> None:
    random = Random(seed)
    words = re.findall(r'#[^\n]*|"[^"]*"|\w+|\s+|.', sample)
    for _ in range(ROUNDS):
        broken = list(words)
        for _ in range(random.randint(1, 5)):
            place = random.randrange(len(broken))
            match random.randrange(4):
                case 0:
                    del broken[place]
                case 1:
                    broken.insert(place, random.choice(WORDS))
                case 2:
                    broken[place] = random.choice(WORDS)
                case 3:
                    other = random.randrange(len(broken))
                    broken[place], broken[other] = broken[other], broken[place]
        survives(Source("run.par", "".join(broken)))


@pytest.mark.parametrize("seed", range(2))
def test_bytes_changed(sample: str, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "run.par"
    for _ in range(ROUNDS):
        data = bytearray(sample.encode())
        for _ in range(random.randint(1, 8)):
            place = random.randrange(len(data))
            match random.randrange(3):
                case 0:
                    data[place] = random.randrange(256)
                case 1:
                    del data[place : place + random.randint(1, 40)]
                case 2:
                    data[place:place] = bytes(random.randrange(256) for _ in range(3))
        path.write_bytes(data)
        source, diagnostics = read(path)
        if source is None:
            assert len(diagnostics) == 1
        else:
            survives(source)


def test_every_prefix_of_a_file(sample: str) -> None:
    for end in range(0, len(sample), 7):
        survives(Source("run.par", sample[:end]))


def test_a_mistake_anywhere_leaves_most_of_the_tree(sample: str) -> None:
    """One stray sign costs the item it stands in, not the file."""
    whole = len(parse(Source("run.par", sample))[0].statements)
    for place in range(0, len(sample), 11):
        file, diagnostics = parse(Source("run.par", f"{sample[:place]} @ {sample[place:]}"))
        assert len(diagnostics) <= 3
        assert len(file.statements) >= whole - 2
