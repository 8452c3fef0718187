"""The public functions of `parlay.compiler`, and the examples of their page."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parlay import compiler

ROOT = Path(__file__).resolve().parents[2]
BROKEN = 'cluster { node from "dgx-h100" }\nparallel { tp = 3 }\n'


def test_the_examples_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "python.md").read_text()
    runner = doctest.DocTestRunner()
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", None, 0)
        runner.run(test, clear_globs=False)
        names = test.globs
    assert runner.failures == 0 and runner.tries > 15


def test_as_the_commands_print_it(parlay: Callable[..., Any], tiny: Path) -> None:
    assert compiler.check(tiny) == json.loads(parlay("check", "--json", tiny).out)
    shown = json.loads(parlay("layout", "--groups", "--json", tiny).out)
    assert compiler.layout(tiny, groups=True) == shown
    shown = json.loads(parlay("ledger", "--formulas", "--json", tiny).out)
    assert json.loads(json.dumps(compiler.ledger(tiny, formulas=True))) == shown


def test_everything_is_plain_data(tiny: Path) -> None:
    for document in (compiler.load(tiny), compiler.layout(tiny), compiler.ledger(tiny)):
        assert json.loads(json.dumps(document)) == document


def test_every_value_has_an_origin(tiny: Path) -> None:
    fields = compiler.load(tiny)["phases"][0]["fields"]
    assert {each["origin"] for each in fields.values()} == {"file", "preset", "default", "derived"}
    for path, each in fields.items():
        if each["shown"] not in ("absent", ""):
            assert each["value"] is not None, path


def test_errors_are_carried(tmp_path: Path) -> None:
    for function in (compiler.layout, compiler.ledger):
        with pytest.raises(compiler.Refused, match="L201") as refused:
            function(tmp_path / "x.par", text=BROKEN)
        assert [one["code"] for one in refused.value.diagnostics] == ["L201"]
    with pytest.raises(compiler.Refused):
        compiler.emit(tmp_path / "none.par", "torch")
    with pytest.raises(KeyError):
        compiler.emit(tmp_path / "none.par", "none")
    with pytest.raises(compiler.Refused, match="model"):
        compiler.ledger("x.par", text='cluster { node from "dgx-h100" }')


def test_open_degrees(tmp_path: Path) -> None:
    text = (
        'model from "llama3-8b"\ncluster { node from "dgx-h100" }\nparallel { tp = auto in [2, 8] }'
    )
    job = compiler.load(tmp_path / "x.par", text=text)
    assert job["phases"][0]["open"]["parallel.tp"] == {"choices": [2, 8], "limit": None}
    with pytest.raises(compiler.Refused):
        compiler.ledger(tmp_path / "x.par", text=text)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )


def test_importing_it_is_cheap() -> None:
    ended = run(
        "import sys; before = set(sys.modules); import parlay.compiler; "
        "print(*sorted(name for name in set(sys.modules) - before if name.startswith('parlay')))"
    )
    assert ended.stdout.split() in (["parlay", "parlay.compiler"], ["parlay.compiler"])


def test_packages_and_functions_of_one_name_stand_side_by_side() -> None:
    ended = run(
        "from parlay.compiler.layout import Layout; import parlay.compiler.ledger.document; "
        "from parlay import compiler; from parlay.compiler import layout, ledger; "
        "print(layout('examples/tiny/tiny.par')['version'], callable(compiler.ledger))"
    )
    assert ended.stdout == "1 True\n", ended.stderr
