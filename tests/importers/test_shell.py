"""Launch scripts as they are read, held against what bash makes of the same text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from parlay.compiler.importers import shell
from parlay.compiler.importers.shell_arithmetic import value

BASH = shutil.which("bash")
RUN = "run() { printf '%s\\037' \"$@\"; printf '\\036'; }\n"

TEXT = (Path(__file__).parent / "shell.txt").read_text()
SAME = dict(part.strip("\n").split("\n", 1) for part in TEXT.split("\n----\n"))
"""Name -> script, in which `run` prints its words."""


def of_bash(text: str) -> list[list[str]]:
    assert BASH is not None
    ended = subprocess.run(
        [BASH, "-c", RUN + text],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/bin:/usr/bin"},
    )
    return [line.split("\037")[:-1] for line in ended.stdout.split("\036")[:-1]]


def as_read(text: str) -> list[list[str]]:
    return [words[1:] for words in shell.read(text).commands if words[:1] == ["run"]]


@pytest.mark.skipif(BASH is None, reason="bash is not there")
@pytest.mark.parametrize("name", SAME)
def test_a_script_says_what_bash_makes_of_it(name: str) -> None:
    found = of_bash(SAME[name])
    assert found
    assert as_read(SAME[name]) == found


def drawn(random: Random, depth: int = 0) -> str:
    if depth > 3 or random.random() < 0.3:
        return str(random.randrange(12))
    first, second = drawn(random, depth + 1), drawn(random, depth + 1)
    signs = ["+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "!=", "&&", "||"]
    made = f"{first} {random.choice(signs)} {second}"
    if random.random() < 0.2:
        return f"({made} ? {first} : {second})"
    return f"({made})" if random.random() < 0.6 else f"!({made})" if random.random() < 0.2 else made


@pytest.mark.skipif(BASH is None, reason="bash is not there")
def test_sums_are_those_of_bash() -> None:
    random = Random(6)
    sums = [drawn(random) for _ in range(300)]
    lines = [f'( echo "$(( {each} ))" ) 2>/dev/null || echo none' for each in sums]
    found = subprocess.run(
        [str(BASH), "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60
    ).stdout.split()
    ours = [value(each) for each in sums]
    assert len(found) == len(sums)
    assert ["none" if each is None else str(each) for each in ours] == found


def test_what_no_script_says_is_told() -> None:
    """A branch that hangs on a file or on the environment is taken once, and told."""
    found = shell.read(
        "if [ -f x ]; then A=1\nelse A=2\nfi\nif [ $1 = y ]; then B=1\nfi\n[ -z $Z ] && C=3\n"
        "for I in 1 2; do D=$I; done\nrun $A $B $C $D ${X%/} $(date +%s)/a"
    )
    assert found.commands[-1] == ["run", "1", "1", "3", "1", "${X%/}", "$(date)/a"]
    assert found.branches == [
        "A=1 (taken)",
        "A=2",
        "B=1 (taken)",
        "C=3 (taken)",
        "D=$I (taken)",
    ]
    assert found.notes == ["I=1 (the first of a loop)"]
    assert "X" in found.unknown


def test_options_that_bash_takes_for_a_command_are_told() -> None:
    found = shell.read("run --a 1 \\\n  # why\n  --b 2 \\\n  --c 3\n")
    assert found.commands[0] == ["run", "--a", "1"]
    assert found.notes == ["--b 2 --c 3: the command ends on a line before it"]


def test_what_is_sourced_is_read_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m.sh").write_text("A=(--x 1)\nsource ./b.sh\n")
    (tmp_path / "b.sh").write_text("B=2\nsource b.sh\n")
    (tmp_path.parent / "outside.sh").write_text("C=3\n")
    text = (
        'D="$(cd "$(dirname "$0")" && pwd)"\nsource ${D}/models/m.sh\n. venv/bin/activate\n'
        "source ../outside.sh\nrun ${A[@]} $B $C\n"
    )
    found = shell.read(text, tmp_path)
    assert found.commands[-1] == ["run", "--x", "1", "2", "$C"]
    assert found.notes[-1] == "source ../outside.sh: it is not in the folder of the script"
    assert shell.read(text).notes[0].startswith("source $(cd)/models/m.sh: it is not")


@pytest.mark.parametrize(
    "text",
    [
        '"$("' * 500,
        "${" * 5000,
        "(" * 5000,
        "if [ " * 2000,
        "case x in\n" * 500,
        "A=$((" + "(" * 500 + "))\nrun $A",
        "eval 'eval $A'\n" * 50,
        "A='eval $A'\neval $A\n",
        "bash -c 'bash -c \"$B\"'\n" * 20,
        "$((9**9**9**9))\nrun $((2**63*4))",
        "<<" * 1000,
        "[[ " * 1000,
    ],
)
def test_a_hostile_script_ends(text: str) -> None:
    shell.read(text)
