"""Writing emitted folders: the same bytes each time, and never over somebody else's file."""

from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {"train.py", "model.py", "mesh.py", "launch.sh", "plan.json"}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its path inside it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def emitted(parlay: Any, tiny: Path, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    ended = parlay("compile", tiny, "--target", "torch", "-o", out)
    assert ended.status == 0, ended.err
    return out / "torch"


def test_what_is_written(emitted: Path) -> None:
    assert set(contents(emitted)) >= FILES
    assert os.access(emitted / "launch.sh", os.X_OK)
    assert not os.access(emitted / "plan.json", os.X_OK)
    assert [path.name for path in emitted.parent.iterdir()] == ["torch"], "nothing is left behind"


def test_stdout_names_the_files(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    ended = parlay("compile", tiny, "--target", "torch", "-o", tmp_path / "out")
    (line,) = ended.out.splitlines()
    assert line.startswith(f"{tmp_path / 'out' / 'torch'}/")
    assert all(name in line for name in FILES)


@pytest.mark.parametrize(
    "seed", ["0", *(pytest.param(seed, marks=pytest.mark.slow) for seed in "123")]
)
def test_the_same_bytes_from_any_process(
    process: Any, emitted: Path, tiny: Path, tmp_path: Path, seed: str
) -> None:
    again = tmp_path / "again"
    ended = process("compile", tiny, "-t", "torch", "-o", again, PYTHONHASHSEED=seed)
    assert ended.returncode == 0
    assert contents(again / "torch") == contents(emitted)


@pytest.mark.slow
def test_the_same_diagnostics_from_any_process(process: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model from "nothing"\nparallel { tp = 3, pp = 0, x = 1, y = 2, z = 3 }\n'
        "let a = b\nlet b = c\nlet c = b + a\n"
    )
    told = {
        process("check", path, "--format", "json", PYTHONHASHSEED=seed).stdout for seed in "0123"
    }
    assert len(told) == 1


def test_compiling_again_changes_nothing(parlay: Any, emitted: Path, tiny: Path) -> None:
    before = contents(emitted)
    assert parlay("compile", tiny, "-t", "torch", "-o", emitted.parent).status == 0
    assert contents(emitted) == before


def test_what_was_emitted_and_not_touched_is_replaced(
    parlay: Any, emitted: Path, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.par"
    path.write_text(tiny.read_text().replace("seq = 128", "seq = 64"))
    assert parlay("compile", path, "-t", "torch", "-o", emitted.parent).status == 0
    assert json.loads((emitted / "plan.json").read_text())["batch"]["seq"] == 64


def test_a_file_that_is_no_longer_emitted_goes(
    parlay: Any, emitted: Path, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "one.par"
    text = tiny.read_text().replace("pp = 2", "pp = 1").replace("tp = 2", "tp = 1")
    path.write_text(
        text.replace("sequence_parallel = on", "").replace(
            'node from "laptop"', 'node from "laptop" { gpus = 1 }'
        )
    )
    ended = parlay("compile", path, "-t", "torch", "-o", emitted.parent)
    assert ended.status == 0, ended.err
    assert not (emitted / "mesh.py").exists()


# ── What is not Parlay's ──────────────────────────────────────────────────────


def refused(ended: Any, folder: Path, before: dict[str, bytes], *words: str) -> None:
    assert (ended.status, ended.out) == (1, "")
    assert "parlay: " in ended.err
    assert all(word in ended.err for word in words)
    assert contents(folder) == before


def test_an_edited_file(parlay: Any, emitted: Path, tiny: Path) -> None:
    (emitted / "train.py").write_text("# mine now\n")
    before = contents(emitted)
    again = ("compile", tiny, "-t", "torch", "-o", emitted.parent)
    refused(parlay(*again), emitted, before, "train.py", "--force")
    assert parlay(*again, "--force").status == 0
    assert "mine now" not in (emitted / "train.py").read_text()


def test_a_file_of_somebody_else(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "torch"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("# from another project\n")
    again = ("compile", tiny, "-t", "torch", "-o", folder.parent)
    refused(parlay(*again), folder, contents(folder), "train.py")
    assert parlay(*again, "--force").status == 0


def test_files_of_other_names_stay(parlay: Any, emitted: Path, tiny: Path) -> None:
    (emitted / "notes.md").write_text("mine")
    assert parlay("compile", tiny, "-t", "torch", "-o", emitted.parent, "--force").status == 0
    assert (emitted / "notes.md").read_text() == "mine"


@pytest.mark.parametrize("manifest", ["{", "[]", '{"files": {"../x": "0"}}', '{"files": 3}', "\0"])
def test_a_manifest_that_says_nothing(
    parlay: Any, emitted: Path, tiny: Path, manifest: str
) -> None:
    (emitted / ".parlay.json").write_text(manifest)
    before = contents(emitted)
    refused(parlay("compile", tiny, "-t", "torch", "-o", emitted.parent), emitted, before)


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_link_in_the_folders_place(
    parlay: Any, tiny: Path, tmp_path: Path, force: list[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "torch").symlink_to(elsewhere)
    ended = parlay("compile", tiny, "-t", "torch", "-o", tmp_path / "out", *force)
    refused(ended, elsewhere, {}, "symbolic link")


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_link_in_a_files_place_is_not_written_through(
    parlay: Any, emitted: Path, tiny: Path, tmp_path: Path, force: list[str]
) -> None:
    precious = tmp_path / "precious.py"
    precious.write_text("precious")
    (emitted / "train.py").unlink()
    (emitted / "train.py").symlink_to(precious)
    ended = parlay("compile", tiny, "-t", "torch", "-o", emitted.parent, *force)
    assert ended.status == (0 if force else 1)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_folder_in_a_files_place(
    parlay: Any, emitted: Path, tiny: Path, force: list[str]
) -> None:
    (emitted / "train.py").unlink()
    (emitted / "train.py").mkdir()
    (emitted / "train.py" / "mine").write_text("mine")
    before = contents(emitted)
    ended = parlay("compile", tiny, "-t", "torch", "-o", emitted.parent, *force)
    refused(ended, emitted, before, "train.py")


def test_a_linked_output_folder_is_followed(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert parlay("compile", tiny, "-t", "torch", "-o", tmp_path / "out").status == 0
    assert set(contents(tmp_path / "real" / "torch")) >= FILES


@pytest.mark.parametrize("command", [["compile", "-t", "torch", "-o"], ["run", "--out"]])
def test_a_folder_that_cannot_be_made(
    parlay: Any, tiny: Path, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    name, *options = command
    ended = parlay(name, tiny, *options, tmp_path / "file" / "out")
    assert (ended.status, ended.out) == (1, "")
    assert "cannot be written: Not a directory" in ended.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_may_not_be_written(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    ended = parlay("compile", tiny, "-t", "torch", "-o", tmp_path / "out")
    assert ended.status == 1
    assert "cannot be written: Permission denied" in ended.err


def test_an_error_leaves_no_folder(parlay: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text("parallel { tp = 0 }")
    ended = parlay("compile", path, "-t", "torch", "-o", tmp_path / "out")
    assert (ended.status, ended.out) == (1, "")
    assert "error[T106]" in ended.err
    assert not (tmp_path / "out").exists()


# ── All of them or nothing ────────────────────────────────────────────────────


def everything(folder: Path) -> dict[str, bytes | None]:
    found = sorted(folder.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize(
    ("call", "again"), [(1, False), (3, False), (9, False), (13, False), (1, True), (11, True)]
)
def test_a_disk_that_is_full(
    call: int, again: bool, parlay: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the room ends, of two folders neither is half written, nor a third one left."""
    command = ("compile", "job.par", "-t", "torch,deepspeed", "-o", "new/out")
    monkeypatch.chdir(tmp_path)
    text = tiny.read_text().replace("tp = 2", "tp = 1").replace("sequence_parallel = on", "")
    Path("job.par").write_text(text)
    if again:
        assert parlay(*command).status == 0
        # Another layout, with other files.
        Path("job.par").write_text(text.replace("pp = 2", "pp = 4"))
    before = everything(tmp_path)
    calls = 0

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def once(*given: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            return (full if calls == call else real)(*given, **more)

        return once

    with monkeypatch.context() as patch:
        for name in ("mkdir", "write_bytes", "write_text"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        ended = parlay(*command)
    assert (ended.status, ended.out) == (1, "")
    assert "cannot be written: No space left on device" in ended.err
    assert everything(tmp_path) == before


def test_an_edited_folder_beside_another(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.par"
    job.write_text(tiny.read_text())
    command = ("compile", job, "-t", "torch,slurm", "-o", tmp_path / "out")
    assert parlay(*command).status == 0
    script = tmp_path / "out" / "slurm" / "job.sbatch"
    script.write_text(script.read_text() + "# mine\n")
    job.write_text(tiny.read_text().replace("layers = 4", "layers = 8"))
    before = everything(tmp_path)
    ended = parlay(*command)
    assert (ended.status, ended.out) == (1, "")
    assert "slurm/ holds" in ended.err and "Nothing was changed" in ended.err
    assert everything(tmp_path) == before


# ── Hostile names ─────────────────────────────────────────────────────────────

HOSTILE = [
    'a"""\nimport os; os.system("touch pwned")\n.par',
    "$(touch pwned) `touch pwned`; touch pwned.par",
    "'; touch pwned; '.par",
    "--force.par",
    "{{ 7 * 7 }}{% raw %}.par",
    "\x1b[31mred\x07.par",
    "größe → \U0001f525.par",
    "a b\tc.par",
    "\\u0022\\.par",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_name(parlay: Any, tiny: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    shutil.copy(tiny, path)
    ended = parlay("compile", path, "-t", "torch", "-o", tmp_path / "out")
    assert ended.status == 0, ended.err
    assert "\x1b" not in ended.out + ended.err
    folder = tmp_path / "out" / "torch"
    for script in folder.glob("*.py"):
        tree = ast.parse(script.read_text())
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "os" not in imported
    assert json.loads((folder / "plan.json").read_text())["version"] == 1
    # The script up to its own command, which is replaced by one that does nothing.
    launch = (folder / "launch.sh").read_text().replace("exec torchrun", "exec true")
    subprocess.run(["bash", "-c", launch], cwd=folder, check=True)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.slow
def test_a_file_name_that_is_no_text(process: Any, tiny: Path, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/bad\xff.par"
    name = os.fsdecode(path)
    shutil.copy(tiny, name)
    assert process("check", name, "--json").returncode == 0
    ended = process("compile", name, "-t", "torch", "-o", os.fsdecode(path + b"out"))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("label", ["class", "None", "__class__", "import_os", "_"])
def test_a_model_name_that_python_knows(
    parlay: Any, tiny: Path, tmp_path: Path, label: str
) -> None:
    path = tmp_path / "job.par"
    path.write_text(tiny.read_text().replace("model tiny", f"model {label}"))
    ended = parlay("compile", path, "-t", "torch", "-o", tmp_path / "out")
    assert ended.status == 0, ended.err
    for script in (tmp_path / "out" / "torch").glob("*.py"):
        ast.parse(script.read_text())


def test_phases_have_folders_of_their_own(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    names = ["../../up", "long context", "long/context", "Main", ""]
    path.write_text(
        tiny.read_text()
        + "".join(f'phase "{name}" {{ train {{ steps = 7 }} }}\n' for name in names)
    )
    ended = parlay("compile", path, "-t", "torch", "-o", tmp_path / "out")
    assert ended.status == 0, ended.err
    folders = {str(p.parent.relative_to(tmp_path)) for p in tmp_path.rglob("train.py")}
    assert folders == {
        f"out/{name}/torch"
        for name in ("main", "up", "long-context", "long-context-2", "Main-2", "phase")
    }


# ── The runtime beside it ─────────────────────────────────────────────────────

ONE = """
model tiny { layers = 2, hidden = 64, heads = 4, ffn = 128, vocab = 257 }
cluster { node from "laptop" { gpus = 1 } }
train { seq = 64, micro_batch = 2, global_batch = 4, precision = fp32, steps = 2 }
"""

ALONE = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f).lower()]
sys.path_hooks[:] = [h for h in sys.path_hooks if "editable" not in repr(h).lower()]
sys.path_importer_cache.clear()
folder = sys.argv[1]
sys.path[:] = [folder, *(p for p in sys.path if p and "editable" not in p and p != sys.argv[2])]
runpy.run_path(folder + "/train.py", run_name="__main__")
ours = {m: sys.modules[m].__file__ for m in sys.modules if m.startswith("parlay.")}
assert ours and all(path.startswith(folder) for path in ours.values()), ours
"""


@pytest.fixture
def copied(parlay: Any, tmp_path: Path) -> Path:
    """An emitted folder with the runtime in it."""
    path = tmp_path / "one.par"
    path.write_text(ONE)
    ended = parlay("compile", path, "-t", "torch", "--vendor", "-o", tmp_path / "out")
    assert ended.status == 0, ended.err
    assert ended.out.endswith("  parlay/runtime/\n")
    return tmp_path / "out" / "torch"


def test_the_copied_runtime_is_what_is_imported(copied: Path, tmp_path: Path) -> None:
    files = {name for name in contents(copied) if name.startswith("parlay/")}
    assert "parlay/runtime/weights.py" in files
    assert "parlay/runtime/collectives.py" in files, "imported by what is imported"
    assert not any(name.endswith(("verify.py", "experts.py")) for name in files), "nothing else"
    assert not (copied / "parlay" / "__init__.py").exists(), "an installed parlay stays whole"


def test_a_copied_runtime_that_was_edited(parlay: Any, copied: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with (copied / "parlay/runtime/loss.py").open("a") as file:
        file.write("# mine\n")
    ended = parlay("verify", tmp_path / "one.par", "--code", copied)
    assert (ended.status, "loss.py is not as the installed one" in ended.err) == (1, True)
    again = ("compile", tmp_path / "one.par", "-t", "torch", "-o", tmp_path / "out")
    ended = parlay(*again)
    assert (ended.status, "parlay/runtime/loss.py" in ended.err) == (1, True)
    assert parlay(*again, "--force").status == 0
    assert not list(copied.glob("parlay/runtime/*.py")), "asked for without it"


@pytest.mark.slow
@pytest.mark.distributed
def test_the_folder_runs_where_parlay_is_not(copied: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    ended = subprocess.run(
        [sys.executable, "-c", ALONE, str(copied), str(ROOT)],
        env={**os.environ, **place, "MASTER_PORT": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    assert "step 2/2" in ended.stdout


def test_nothing_is_copied_beside_other_frameworks(parlay: Any, tiny: Path, tmp_path: Path) -> None:
    ended = parlay("compile", tiny, "-t", "slurm,torch", "--vendor", "-o", tmp_path / "out")
    assert ended.status == 0, ended.err
    assert not (tmp_path / "out" / "slurm" / "parlay").exists()
    assert (tmp_path / "out" / "torch" / "parlay").is_dir()


def test_targets_are_listed_without_a_file(parlay: Any, tiny: Path) -> None:
    assert parlay("compile", "--target", "list") == parlay("compile", tiny, "--target", "list")
    ended = parlay("compile", "--target", "torch")
    assert (ended.status, "a .par file is needed" in ended.err) == (2, True)
