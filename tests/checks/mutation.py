"""`python -m tests.checks.mutation [MODULE …]`: mutants of the rules, and what tells them.

mutmut makes the mutants: all those of a file in one, switched by `MUTANT_UNDER_TEST`. It would then
start a pytest for each of eight thousand. Here pytest collects once, sees which tests run which
function, and asks each mutant in a copy of that process, one a module, until a test fails.

Every rule runs in almost every test: the mutants of one are asked by the tests of that rule alone
(`test_jobs[L203]` and those of its page), those of what the rules share by the tests of that, then
by the quickest that run it. A mutant that no test fails for counts against the figure, whatever the
reason.

`--show` prints what the mutants that no test told change; `build/mutation/ended.json` has them all.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper
from pathlib import Path
from time import process_time
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutation"
CHECKS = Path("parlay", "compiler", "checks")
ENDED = FOLDER / "ended.json"
ROOMS = ("dsl", "compiler", "runtime", "templates")
BESIDE = ("tests", "docs", "examples", "pyproject.toml")
MOST = 60
"""Tests that a mutant of what the rules share is asked by."""
LATE = 10.0
"""Seconds of processor time after which a mutant has been told."""
BROAD = ("targets", "published", "reports", "properties")
"""Files of tests that run everything for long, and would hardly be asked."""
TESTS = (
    *("-q", "--rootdir=.", "--assert=plain", "--tb=native", "-m", "not slow", "tests/checks"),
    *(f"--ignore=tests/checks/test_{name}.py" for name in BROAD),
)


# ── Making the mutants ────────────────────────────────────────────────────────


def link() -> None:
    """A folder of links in which the code lies as it is imported: mutants are named by paths."""
    (FOLDER / "parlay").mkdir(parents=True, exist_ok=True)
    pairs = {FOLDER / "parlay" / room: ROOT / room for room in ROOMS}
    pairs |= {FOLDER / name: ROOT / name for name in BESIDE}
    for place, target in pairs.items():
        with suppress(FileExistsError):
            place.symlink_to(os.path.relpath(target, place.parent))


def make() -> None:
    """mutmut's copy of the code and the tests, with all the mutants, in `mutants`."""
    from mutmut import __main__ as mutmut

    Path("mutants").mkdir(exist_ok=True)
    mutmut.set_mutant_under_test("mutant_generation")
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    with mutmut.CatchOutput(spinner_title="making mutants"):
        mutmut.create_mutants(1)
    mutmut.setup_source_paths()


def mutants(module: str) -> list[str]:
    """The names of a module's mutants."""
    meta = FOLDER / "mutants" / CHECKS / f"{module}.py.meta"
    return list(json.loads(meta.read_text())["exit_code_by_key"])


# ── Asking the tests ──────────────────────────────────────────────────────────


class Late(BaseException):
    """A mutant that does not end."""


class Asking:
    """A pytest plugin: instead of running the tests once, it asks the mutants of `modules`."""

    def __init__(self, modules: list[str]) -> None:
        from parlay.compiler.checks import rules

        assert Path("mutants") in [*Path(rules.__file__).relative_to(FOLDER).parents]
        self.code = {name: code for code, name in rules.MODULES.items()}
        self.modules = modules
        self.running: dict[str, list[pytest.Item]] = defaultdict(list)
        self.seconds: dict[pytest.Item, float] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            for function in self.functions(item):
                self.running[function].append(item)
        ended = json.loads(ENDED.read_text()) if ENDED.exists() else {}
        for module in self.modules:
            kept = FOLDER / f"{module}.json"
            kept.unlink(missing_ok=True)
            child = os.fork()
            if child == 0:
                kept.write_text(json.dumps({name: self.ask(name) for name in mutants(module)}))
                os._exit(0)
            os.waitpid(child, 0)
            ended[module] = json.loads(kept.read_text())
            kept.unlink()
            ENDED.write_text(json.dumps(ended, indent=1))
            say(line(module, ended[module]))
        return True

    def functions(self, item: pytest.Item) -> set[str]:
        """The functions that a test runs; none for a test that fails without a mutant."""
        from mutmut.state import state

        state()._stats.clear()
        began = process_time()
        if fails(item, "stats"):
            say(f"{item.nodeid} fails by itself and is left out")
            return set()
        self.seconds[item] = process_time() - began
        return set(state()._stats)

    def ask(self, mutant: str) -> str:
        """The test that fails for a mutant; `late`, `survived`, or `no test` that runs it."""
        function = mutant.partition("__mutmut_")[0]
        module = function.split(".")[3]
        items = self.running[function]
        if module in self.code:
            # Its jobs tell the most, and most of them at the first one.
            jobs = f"test_jobs[{self.code[module]}]"
            own = [item for item in items if item.name.endswith(jobs.removeprefix("test_jobs"))]
            items = sorted(own, key=lambda item: (item.name != jobs, self.seconds[item]))
        else:
            items = sorted(items, key=lambda item: (not about(item, module), self.seconds[item]))
            items = items[:MOST]
        for item in items:
            try:
                if fails(item, mutant):
                    return item.nodeid
            except Late:
                return "late"
        return "survived" if items else "no test"


def about(item: pytest.Item, module: str) -> bool:
    """Whether a test stands in the file of tests for a module, or in one that imports it."""
    file = item.getparent(pytest.Module)
    assert file is not None
    return file.path.stem == f"test_{module}" or hasattr(file.obj, module)


def fails(item: pytest.Item, mutant: str) -> bool:
    """Whether a test fails with one mutant switched on."""
    from _pytest.runner import runtestprotocol
    from mutmut.mutation.trampoline import set_mutant_under_test

    forget()
    set_mutant_under_test(mutant)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0 if mutant == "stats" else LATE)
    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        set_mutant_under_test("")
    return any(report.failed for report in reports)


def forget() -> None:
    """Clears what functions of the rules have kept: a mutant before this one may have made it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("parlay.compiler.checks"):
            for kept in vars(module).values():
                if isinstance(kept, _lru_cache_wrapper):
                    kept.cache_clear()


# ── The figure ────────────────────────────────────────────────────────────────


def told(how: str) -> bool:
    """Whether a mutant ended as it should."""
    return how not in ("survived", "no test")


def line(name: str, ended: dict[str, str]) -> str:
    """`l203_kv_heads   71 of 71`."""
    return f"{name:<24}{sum(map(told, ended.values())):>6,} of {len(ended):>6,}"


def changes(ended: dict[str, dict[str, str]]) -> Iterator[str]:
    """What each mutant that no test told changes."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    for module, each in ended.items():
        for mutant, how in each.items():
            if not told(how):
                difference = get_diff_for_mutant(mutant, path=CHECKS / f"{module}.py")
                yield f"{mutant}: {how}"
                yield from (row for row in difference.splitlines()[2:] if row[0] in "+-")


def say(text: str) -> None:
    """Past pytest, which holds the output."""
    os.write(2, f"{text}\n".encode())


def main() -> int:
    """0 where the tests pass and every mutant was asked."""
    reader = argparse.ArgumentParser(prog="python -m tests.checks.mutation", description=__doc__)
    reader.add_argument("module", nargs="*", help="modules of compiler/checks (default: all)")
    reader.add_argument("--show", action="store_true", help="print what was not told, ask nothing")
    given = reader.parse_args()
    link()
    os.chdir(FOLDER)
    make()
    files = sorted(path.stem for path in Path("parlay/compiler/checks").glob("*.py"))
    every = sorted(files, key=lambda name: not name[1:4].isdigit())
    modules = [name for name in given.module or every if mutants(name)]
    if not given.show:
        os.chdir("mutants")
        signal.signal(signal.SIGVTALRM, raise_late)
        arguments = [*TESTS, "-p", "no:cacheprovider", "-p", "no:xdist"]
        status = pytest.main(arguments, plugins=[Asking(modules)])
        os.chdir(FOLDER)
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(status)
    ended = {name: each for name, each in json.loads(ENDED.read_text()).items() if name in modules}
    if given.show:
        print(*changes(ended), sep="\n")
    every_one = {mutant: how for each in ended.values() for mutant, how in each.items()}
    share = sum(map(told, every_one.values())) / (len(every_one) or 1)
    print(line("all", every_one), f"mutants, {share:.1%};", Counter(map(kind, every_one.values())))
    return 0


def raise_late(*_: Any) -> None:
    """What the clock does."""
    raise Late


def kind(how: str) -> str:
    """`test` for the name of one."""
    return "test" if "::" in how else how


if __name__ == "__main__":
    sys.exit(main())
