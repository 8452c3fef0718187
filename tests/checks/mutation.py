"""`python -m tests.checks.mutation run`: mutmut over the rules.

mutmut names its mutants by their paths, so the folders have to lie as they are imported: it runs
in `build/mutation`, a folder of links, where `parlay/compiler` is `compiler`. Any command of mutmut
may follow (`run PATTERN`, `show NAME`, `results`); after `run`, and with `score`, the figure is
printed: mutants that a test told from the original, and those that ran out of time, of all.

Every rule runs in almost every test. A mutant of one is asked by the tests of that rule alone
(`test_jobs[L203]` and those of its page), one of what they share by the quickest that run it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parlay.compiler.checks.rules import MODULES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutation"
ROOMS = ("dsl", "compiler", "runtime", "templates")
BESIDE = ("tests", "docs", "examples", "pyproject.toml")
MOST = 60
"""Tests that a mutant of what the rules share is asked by."""
TOLD = (1, 3, 36, 24, 152, 255, -24)
"""The exit statuses that mutmut calls killed (1, 3) and timeout."""


def link() -> None:
    """The folder of links."""
    (FOLDER / "parlay").mkdir(parents=True, exist_ok=True)
    pairs = {FOLDER / "parlay" / room: ROOT / room for room in ROOMS}
    pairs |= {FOLDER / name: ROOT / name for name in BESIDE}
    for place, target in pairs.items():
        if not place.is_symlink():
            place.symlink_to(os.path.relpath(target, place.parent))


def asked(function: str, tests: Iterable[str], seconds: dict[str, float]) -> dict[str, None]:
    """Those of the tests that run a function which its mutants are asked by, quickest first."""
    module = function.split(".")[3]
    code = next((code for code, name in MODULES.items() if name == module), "")
    own = [test for test in tests if test.endswith(f"[{code}]")]
    quickest = sorted(own if code else tests, key=lambda test: (seconds[test], test))
    return dict.fromkeys(quickest[:MOST])


def narrow() -> None:
    """Has mutmut ask fewer tests than run a function."""
    from mutmut import __main__ as mutmut
    from mutmut.state import state

    collect = mutmut.collect_or_load_stats

    def collected(*arguments: Any, **named: Any) -> None:
        collect(*arguments, **named)
        now = state()
        for function, tests in now.tests_by_mangled_function_name.items():
            fewer = asked(function, tests, now.duration_by_test)
            now.tests_by_mangled_function_name[function] = fewer  # type: ignore[assignment]

    mutmut.collect_or_load_stats = collected


def statuses() -> dict[str, dict[str, int | None]]:
    """How each mutant ended, by module."""
    found = {}
    for path in sorted((FOLDER / "mutants/parlay/compiler/checks").glob("*.meta")):
        found[path.name.removesuffix(".py.meta")] = json.loads(path.read_text())["exit_code_by_key"]
    return found


def score() -> str:
    """One line a module with survivors, then the figure."""
    lines, total = [], Counter[bool]()
    for module, mutants in statuses().items():
        told = Counter(status in TOLD for status in mutants.values() if status is not None)
        total += told
        if told[False]:
            lines.append(f"{module:<24}{told[True]:>5} of {sum(told.values())}")
    number = sum(total.values())
    lines.append(f"{total[True]:,} of {number:,} mutants told: {total[True] / (number or 1):.1%}")
    return "\n".join(lines)


def main() -> None:
    """Runs mutmut's command line in the folder of links."""
    link()
    os.chdir(FOLDER)
    if sys.argv[1:] == ["score"]:
        print(score())
        return
    from mutmut.__main__ import cli

    narrow()
    sys.argv[0] = "mutmut"
    cli(standalone_mode=False)
    if sys.argv[1:2] == ["run"]:
        print(score())


if __name__ == "__main__":
    main()
