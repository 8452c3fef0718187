"""How long `parlay check` takes as a process, beside the bare interpreter and `import torch`.

    python bench/startup.py [--repeats N]

All commands take turns, so that a busy machine slows them alike; medians are compared. Then the
same for input that is no job at all: each must end in a diagnostic within a second.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "examples" / "tiny" / "tiny.par"
PARLAY = [sys.executable, "-m", "parlay.compiler.cli"]
MOST = 12  # times the bare interpreter


def bad_inputs(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that are no job, written into `folder`: what it is -> path, code that must be told."""
    noise = random.Random(0).randbytes(4096)
    texts: dict[str, tuple[bytes, str]] = {
        "binary noise": (noise, "P006"),
        "noise without zeros": (noise.replace(b"\0", b"\xff"), "P005"),
        "an empty file": (b"", "P007"),
        "2 MB": (b"# comment\n" * 200_000, "P004"),
        "1,000 nested braces": (b"model { " + b"mla { " * 1000 + b"}" * 1001, "P032"),
        "1,000 nested parentheses": (b"let a = " + b"(" * 1000 + b"1" + b")" * 1000, "P032"),
        "a number of 5,000 digits": (b"let a = " + b"9" * 5000, "P020"),
        "1e999": (b"let a = 1e999", "P021"),
        "an unknown preset": (b'model from "lama3-70b"', "T003"),
        "an unknown field": (b"parallel { tpp = 2 }", "T002"),
        "a field given twice": (b"parallel { tp = 2, tp = 4 }", "T005"),
        "a cycle of two": (b"let a = b\nlet b = a\nparallel { tp = a }", "T013"),
        "a cycle of 10,000 definitions": (
            b"".join(b"let a%d = a%d\n" % (i, (i + 1) % 10_000) for i in range(10_000)),
            "T014",
        ),
    }
    (folder / "folder.par").mkdir()
    inputs = {
        "a missing file": (folder / "missing.par", "P001"),
        "a folder": (folder / "folder.par", "P002"),
    }
    for number, (what, (data, code)) in enumerate(texts.items()):
        path = folder / f"{number}.par"
        path.write_bytes(data)
        inputs[what] = (path, code)
    return inputs


def seconds(command: Sequence[str]) -> float:
    """How long a process takes, its output thrown away."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        'python -c "import typer"': [sys.executable, "-c", "import typer"],
        'python -c "import torch"': [sys.executable, "-c", "import torch"],
        "parlay check examples/tiny/tiny.par": [*PARLAY, "check", str(TINY)],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command)  # files into the page cache, .pyc written
    for _ in range(repeats):
        for name, command in commands.items():
            taken[name].append(seconds(command))
    bare = statistics.median(taken["python -c pass"])
    print(f"{'':36} {'median':>9} {'least':>9} {'ratio':>7}")
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:36} {median * 1e3:6.0f} ms {min(times) * 1e3:6.0f} ms {median / bare:7.1f}")
    ratio = statistics.median(taken["parlay check examples/tiny/tiny.par"]) / bare
    print(f"parlay check is to take at most {MOST} times the bare interpreter: {ratio:.1f}\n")

    print(f"{'bad input':36} {'median':>9}")
    with tempfile.TemporaryDirectory() as name:
        for what, (path, _) in bad_inputs(Path(name)).items():
            median = statistics.median(seconds([*PARLAY, "check", str(path)]) for _ in range(3))
            print(f"{what:36} {median * 1e3:6.0f} ms")
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
