"""What `parlay check` imports: nothing that takes longer than checking."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "torch",
    "numpy",
    "rich",
    "jinja2",
    "lark",
    "pydantic",
    "transformers",
    "asyncio",
    "tempfile",
}

CHECK = """
import sys
sys.argv = ["parlay", *sys.argv[1:]]
from parlay.compiler.cli import main
try:
    main()
except SystemExit as end:
    print("MODULES", *sys.modules)
    sys.exit(end.code)
"""


def imported(*arguments: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", CHECK, *arguments], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    last = ended.stdout.splitlines()[-1].split()
    assert last[0] == "MODULES"
    return {name.partition(".")[0] for name in last[1:]} | set(last[1:])


def test_check_imports_nothing_heavy() -> None:
    found = imported("check", str(ROOT / "examples" / "tiny" / "tiny.par"))
    assert found & HEAVY == set()
    pure = {"axes", "timeline", "timeline_split"}
    runtime = {name for name in found if name.startswith("parlay.runtime.")}
    assert runtime <= {f"parlay.runtime.{name}" for name in pure}


def test_a_page_needs_no_check() -> None:
    assert imported("explain", "P001") & HEAVY == set()
