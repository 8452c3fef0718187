"""Where the page goes: whole or not at all, and never over what somebody else wrote."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .commands import ROOT, page_of, run
from .reading import numbers, read

EXAMPLES = ROOT / "examples"
KEPT = EXAMPLES / "llama-70b-64gpu" / "report.html"
WRONG = "parallel { tp = 0 }\n"


@pytest.fixture
def job(tmp_path: Path, tiny: Path) -> Path:
    path = tmp_path / "job.par"
    path.write_text(tiny.read_text())
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# ── The same page ─────────────────────────────────────────────────────────────


def test_the_kept_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PARLAY_UPDATE=1` writes it anew; the change is then read in a diff."""
    monkeypatch.chdir(ROOT)
    result = run("report", "examples/llama-70b-64gpu/llama-70b.par", "-o", "-")
    if os.environ.get("PARLAY_UPDATE"):
        KEPT.write_bytes(result.stdout_bytes)
    if result.stdout_bytes != KEPT.read_bytes():
        pytest.fail("the page is another: PARLAY_UPDATE=1 pytest tests/report writes it anew")


@pytest.mark.slow
def test_the_same_bytes_from_any_process() -> None:
    """Even where stdout knows only ASCII: a page is UTF-8, as it says."""
    name = "examples/llama-70b-64gpu/llama-70b.par"
    command = [sys.executable, "-m", "parlay.compiler.cli", "report", name, "-o", "-"]
    odd = {"PYTHONHASHSEED": "7", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **odd}, stdout=subprocess.PIPE, timeout=120
    )
    assert ended.stdout == KEPT.read_bytes()
    assert "–".encode() in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-405b-phases", "sc21-gpt-1t", "qwen3-235b-a22b"])
def test_the_largest_pages_are_below_300_kb(name: str) -> None:
    result = run("report", EXAMPLES / name / f"{name}.par", "-o", "-")
    assert result.exit_code == 0
    assert len(result.stdout_bytes) < 300_000
    read(result.stdout_bytes.decode())


@pytest.mark.slow
def test_16384_gpus_take_less_than_two_seconds(tmp_path: Path) -> None:
    """Of the processor, imports left out: other tests may hold the cores."""
    path = tmp_path / "job.par"
    text = (EXAMPLES / "llama-405b" / "llama-405b.par").read_text()
    path.write_text(re.sub(r"nodes = \d+", "nodes = 2048", text))
    run("report", path, "-o", "-")
    start = time.process_time()
    page = page_of(path)
    assert time.process_time() - start < 2
    assert "16,384 GPUs" in page.text


# ── The file ──────────────────────────────────────────────────────────────────


def test_a_page_is_written_and_replaced(tmp_path: Path, job: Path) -> None:
    out = tmp_path / "deep" / "page.html"
    result = run("report", job, "-o", out)
    assert result.exit_code == 0, result.output
    assert str(out) in result.stdout
    assert [path.name for path in out.parent.iterdir()] == ["page.html"], "nothing is left behind"
    assert out.stat().st_mode & 0o777 == 0o644
    first = out.read_bytes()
    job.write_text(job.read_text().replace("seq = 128", "seq = 64"))
    assert run("report", job, "-o", out).exit_code == 0
    assert out.read_bytes() != first
    read(out.read_text("utf-8"))


@pytest.mark.slow
def test_the_last_line_is_the_hash_of_all_before_it(tmp_path: Path, job: Path) -> None:
    out = tmp_path / "page.html"
    run("report", job, "-o", out)
    *lines, last = out.read_bytes().splitlines(keepends=True)
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    assert last == f"<!-- parlay sha256:{digest} -->\n".encode()


@pytest.mark.parametrize(
    "edit",
    [
        "more",
        *(pytest.param(e, marks=pytest.mark.slow) for e in ("less", "other", "empty", "seal")),
    ],
)
def test_what_somebody_wrote_stays(tmp_path: Path, job: Path, edit: str) -> None:
    out = tmp_path / "page.html"
    run("report", job, "-o", out)
    data = out.read_bytes()
    texts = {
        "more": data + b"<p>mine</p>",
        "less": data[100:],
        "other": data.replace(b"Peak memory", b"Peak Memory"),
        "empty": b"",
        "seal": b"<!-- parlay sha256:0 -->\n",
    }
    out.write_bytes(texts[edit])
    before = contents(tmp_path)
    result = run("report", job, "-o", out)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--force" in result.stderr and "Nothing was changed" in result.stderr
    assert contents(tmp_path) == before
    assert run("report", job, "-o", out, "--force").exit_code == 0
    assert out.read_bytes() == data


@pytest.mark.parametrize("force", [[], pytest.param(["--force"], marks=pytest.mark.slow)])
def test_what_is_never_replaced(tmp_path: Path, job: Path, force: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "there.html").write_text("x")
    (tmp_path / "link.html").symlink_to("there.html")
    (tmp_path / "lost.html").symlink_to("nowhere.html")
    os.mkfifo(tmp_path / "pipe")
    before = contents(tmp_path)
    for name, words in (
        ("folder", "folder is a folder, not a file"),
        ("link.html", "link.html is a symbolic link"),
        ("lost.html", "lost.html is a symbolic link"),
        ("pipe", "pipe is no plain file"),
        ("there.html/page.html", "there.html is a file, not a folder"),
        ("job.par", "is the job itself"),
        (f"{'n' * 300}.html", "cannot be written"),
    ):
        result = run("report", job, "-o", tmp_path / name, *force)
        assert result.exit_code == 1, name
        assert words in result.stderr and "Traceback" not in result.output
        assert contents(tmp_path) == before
    assert not (tmp_path / "nowhere.html").exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails, as on a full disk, leaves what was there."""
    out = tmp_path / "page.html"
    run("report", job, "-o", out)
    before = contents(tmp_path)
    job.write_text(job.read_text().replace("seq = 128", "seq = 64"))
    before["job.par"] = job.read_bytes()

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    result = run("report", job, "-o", out)
    assert result.exit_code == 1
    assert "cannot be written: No space left on device" in result.stderr
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_socket(tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("page.html")
        result = run("report", job, "-o", "page.html", "--force")
    assert result.exit_code == 1 and "no plain file" in result.stderr


# ── Jobs with errors ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WRONG, "error[T106]"),
        ("", "error[P007]"),
        (
            'model from "llama3-70b"\ncluster { node from "dgx-h100" }\nparallel { tp = 16 }',
            "error[",
        ),
        (
            'model from "llama3-8b"\ncluster { node from "dgx-h100" }\nparallel { tp = auto }\n',
            "`parlay report` needs a value for `parallel.tp`",
        ),
    ],
)
def test_errors_have_a_page_without_figures(tmp_path: Path, text: str, words: str) -> None:
    path, out = tmp_path / "job.par", tmp_path / "page.html"
    path.write_text(text)
    out.write_text("mine")
    result = run("report", path, "-o", out)
    assert result.exit_code == 1 and words in result.stderr
    assert "Nothing was changed" in result.stderr and out.read_text() == "mine"
    result = run("report", path, "-o", out, "--force")
    assert result.exit_code == 1 and str(out) in result.stdout
    page = read(out.read_text("utf-8"))
    assert numbers(page) == []
    assert "does not hold: " in page.one("p", class_="verdict").text
    assert "With these errors there are no figures" in page.text
    code = result.stderr.partition("error[")[2].partition("]")[0]
    assert any(code in each.text for each in page.having("article", class_="error"))
    assert "parlay sha256:" in out.read_text("utf-8").splitlines()[-1]


@pytest.mark.parametrize(
    "text",
    [
        'cluster { node from "dgx-h100" }\nparallel { tp = 8 }',
        'model from "llama3-8b"\nparallel { tp = 2 }',
    ],
)
def test_half_a_job_has_no_page(tmp_path: Path, text: str) -> None:
    path, out = tmp_path / "job.par", tmp_path / "page.html"
    path.write_text(text)
    result = run("report", path, "-o", out)
    assert result.exit_code == 1 and "needs a model and a cluster" in result.stderr
    assert result.stdout == "" and not out.exists()
    assert run("report", path, "-o", "-").stdout_bytes == b""
    assert run("report", tmp_path / "no.par", "-o", out).exit_code == 1 and not out.exists()


def test_a_failed_assert_is_an_error_with_figures(tmp_path: Path, tiny: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(tiny.read_text() + "assert memory.peak < 1MB\n")
    result = run("report", path, "-o", tmp_path / "page.html")
    assert result.exit_code == 1 and "A201" in result.stderr
    page = read((tmp_path / "page.html").read_text("utf-8"))
    assert "memory.peak < 1MB fails: " in page.text and "A201" in page.text
    assert len(numbers(page)) > 60


@pytest.mark.slow
def test_a_model_of_parameters_alone(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(
        'model { params = 7B }\ncluster { nodes = 1, node from "dgx-h100" }\nparallel { tp = 8 }\n'
    )
    page = page_of(path)
    assert "7.00B parameters" in page.text
    assert not page.having("svg", class_="timeline")
    assert page.having("svg", class_="memory")


def test_warnings_are_on_the_page_with_place_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    text = (EXAMPLES / "deepseek-v3" / "deepseek-v3.par").read_text()
    path.write_text(text + 'allow N201 "as published"\n')
    page = page_of(path, "--nodes", "256")
    (said,) = [each for each in page.all("article") if "N202" in each.text]
    line = next(n for n, each in enumerate(text.splitlines(), 1) if "ep = 64" in each)
    assert f"job.par:{line}:" in said.text
    assert "touches 8 fast domains" in said.text
    (link,) = said.all("a")
    (target,) = page.having("span", id=link.attributes["href"].removeprefix("#"))
    assert "ep = 64" in target.text
    assert "W290" in page.text and "N201: as published" in page.text
    assert page.having("p", class_="warns")
