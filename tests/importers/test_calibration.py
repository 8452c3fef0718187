"""`calibration from "file.json"`: what is read of it, where it shows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parlay.compiler import pipeline
from parlay.compiler.commands.fmt import run as fmt
from parlay.compiler.spec.blocks.calibration import Call, Calls, Product
from parlay.dsl.diagnostics.terminal import render

FIGURES: dict[str, Any] = {
    "device": 'an "odd" \x1b name',
    "bf16": {"rate": 7.01e14, "size": 8192},
    "copy": 2.9e12,
    "host": 5.45e10,
    "link": {
        "ranks": 8,
        "all_reduce": {"bandwidth": 3.7e11, "latency": 1.5e-6},
        "all_to_all": {"bandwidth": 3.3e11, "latency": 1.23456789e-5},
    },
}
PAR = """\
model from "llama3-8b"
cluster {
  nodes = 1
  node from "dgx-h100"
  calibration from "FILE"
}
parallel { tp = 4, zero = 1 }
train { seq = 4096, micro_batch = 1, global_batch = 8, steps = 1 }
"""


def loaded(
    folder: Path, document: object = None, par: str = PAR, name: str = "measured.json"
) -> pipeline.Job:
    """A file that reads `document`, whole where it is None."""
    whole = {"version": 1, "calibration": FIGURES}
    text = document if isinstance(document, str) else json.dumps(document or whole)
    (folder / name).write_text(text)
    path = folder / "job.par"
    path.write_text(par.replace("FILE", name))
    return pipeline.check(path)


def test_every_figure_is_read_exactly(tmp_path: Path) -> None:
    job = loaded(tmp_path)
    assert not job.diagnostics
    cluster = job.phases[0].spec.cluster
    assert cluster is not None and cluster.calibration is not None
    found = cluster.calibration
    assert (found.source, found.device) == ("measured.json", 'an "odd"  name')
    assert found.bf16 == Product(rate_flops=7.01e14, size=8192)
    assert (found.copy_bytes_per_s, found.host_bytes_per_s) == (2.9e12, 5.45e10)
    assert found.link == Calls(
        ranks=8,
        all_reduce=Call(bandwidth_bytes_per_s=3.7e11, latency_s=1.5e-6),
        all_to_all=Call(bandwidth_bytes_per_s=3.3e11, latency_s=1.23456789e-5),
        all_gather=None,
        reduce_scatter=None,
        send=None,
    )
    assert found.fabric is None and found.fp32 is None


def test_a_field_in_the_file_overrides(tmp_path: Path) -> None:
    job = loaded(tmp_path, par=PAR.replace('"FILE"', '"FILE" { copy = 3TB/s }'))
    origins = job.phases[0].origins
    assert origins["cluster.calibration.copy"].shown == "3 TB/s"
    assert origins["cluster.calibration.host"].words == "measured.json"


def test_it_is_found_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    below = tmp_path / "machines"
    below.mkdir()
    loaded(below, par='cluster { nodes = 1, node from "dgx-h100", calibration from "FILE" }\n')
    path = tmp_path / "run.par"
    path.write_text('import "machines/job.par"\nmodel from "llama3-8b"\nparallel { zero = 1 }\n')
    job = pipeline.check(path)
    assert not job.diagnostics
    assert job.phases[0].origins["cluster.calibration.copy"].words == "measured.json"


def test_fmt_keeps_it(tmp_path: Path) -> None:
    job = loaded(tmp_path)
    before = job.path.read_text()
    assert fmt([job.path], check=True, diff=False) == 0
    assert job.path.read_text() == before


def changed(**values: Any) -> dict[str, Any]:
    return {"version": 1, "calibration": {**FIGURES, **values}}


REFUSED: dict[str, tuple[object, str]] = {
    "cut short": (json.dumps(changed())[:200], "no JSON"),
    "a list": ("[1, 2]", "no JSON object"),
    "of another version": ({"version": 2, "calibration": FIGURES}, "version 2 is not known"),
    "without a version": ({"calibration": FIGURES}, "version None is not known"),
    "a true version": ({"version": True, "calibration": FIGURES}, "version True"),
    "without figures": ({"version": 1, "fields": {}}, "has no `calibration`"),
    "an empty one": ({"version": 1, "calibration": {"device": "x"}}, "holds no figure"),
    "not a number": (changed(copy=float("nan")), "copy = nan is no number"),
    "infinite": (changed(copy=float("inf")), "copy = inf is no number"),
    "negative": (changed(copy=-1.0), "copy = -1.0 is not above 0"),
    "nothing": (changed(host=0), "host = 0 is not above 0"),
    "absurd": (changed(bf16={"rate": 1e30, "size": 1}), "at most 1,000 PFLOP/s"),
    "a slow latency": (
        changed(link={"ranks": 2, "send": {"bandwidth": 1e9, "latency": 5}}),
        "link.send.latency = 5 is not above 0 and at most 1 s",
    ),
    "a word": (changed(copy="fast"), "copy = 'fast' is no number"),
    "a switch": (changed(copy=True), "copy = True is no number"),
    "half a product": (changed(bf16={"rate": 7e14}), "bf16 lacks size"),
    "half a side": (changed(bf16={"rate": 7e14, "size": 1.5}), "size = 1.5 is no whole number"),
    "a call without ranks": (
        changed(link={"send": {"bandwidth": 1e9, "latency": 1e-6}}),
        "link lacks ranks",
    ),
    "no call": (changed(link={"ranks": 2, "send": 5}), "link.send = 5 is no object"),
    "an unknown figure": (changed(fp7=3), "'fp7' is no figure"),
    "its own source": (changed(source="elsewhere"), "'source' is no figure"),
    "a device of numbers": (changed(device=7), "device = 7 is no string"),
    "many digits": ('{"version": 1, "calibration": {"copy": ' + "9" * 9999 + "}}", "no JSON"),
    "deep": ("[" * 100_000, "no JSON"),
    "large": ('{"version": 1, "x": "' + "x" * (1 << 20) + '"}', "larger than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    document, words = REFUSED[name]
    job = loaded(tmp_path, document)
    [told] = job.diagnostics
    assert told.code == "T016" and words in told.notes[0], told
    assert told.span is not None
    text = job.path.read_text()
    assert text[told.span.start : told.span.end] == '"measured.json"'


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("absent.json", "no such file"),
        ("../../etc/measured.json", "outside"),
        ("/etc/hostname", "outside"),
        (".", "it is no file"),
        ("job.par", "no JSON"),
    ],
)
def test_files_that_are_none(written: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "job.par"
    path.write_text(PAR.replace("FILE", written))
    [told] = pipeline.check(path).diagnostics
    assert told.code == "T016" and words in told.notes[0]


def test_what_a_person_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.par").write_text(PAR.replace("FILE", "measured.json"))
    Path("measured.json").write_text(json.dumps(changed(copy=-1)))
    job = pipeline.check(Path("run.par"))
    assert render(job.diagnostics, job.sources, color=False, width=100, summary=True) == SHOWN


SHOWN = """\
error[T016]: "measured.json" gives no calibration
 --> run.par:5:20
  |
5 |   calibration from "measured.json"
  |                    ^^^^^^^^^^^^^^^ read from this file
  |
  = note: copy = -1 is not above 0 and at most 1,000 TB/s
  = help: `parlay calibrate -o FILE` measures this machine and writes one

run.par: 1 error
"""


def test_another_machine_s_figures(tmp_path: Path) -> None:
    job = loaded(tmp_path, par=PAR.replace("dgx-h100", "dgx-a100"))
    told = [each for each in job.diagnostics if each.code == "N211"]
    assert [each.message for each in told] == [
        "bf16.rate is 701 TFLOP/s, but cluster.node.gpu.bf16 says 312 TFLOP/s"
    ]
    assert told[0].notes[-1].startswith("copy: 2.9 TB/s / 2.04 TB/s")


def test_the_hash_of_the_spec_has_it(tmp_path: Path) -> None:
    def hashed(text: str) -> str:
        (tmp_path / "job.par").write_text(text)
        files = pipeline.emit(pipeline.load(tmp_path / "job.par"), "torch").files
        return str(json.loads(files["torch/plan.json"])["spec"])

    plain = PAR.replace('  calibration from "FILE"\n', "")
    first = plain.replace('"dgx-h100"', '"dgx-h100"\n  calibration { copy = 2.9TB/s }')
    other = first.replace("2.9", "2.8")
    assert len({hashed(plain), hashed(first), hashed(other)}) == 3
    assert hashed(first) == hashed(first)
