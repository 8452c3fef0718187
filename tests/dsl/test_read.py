"""Files that are none, or not what they should be."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from parlay.dsl.parse import parse
from parlay.dsl.read import LARGEST, decode, read


def told(path: Path, **options: object) -> tuple[str, str]:
    """Code and message of the one diagnostic; it names the file and no place."""
    source, diagnostics = read(path, **options)  # type: ignore[arg-type]
    assert source is None
    (one,) = diagnostics
    assert one.span is None and one.file
    return one.code, one.message


def test_a_file_is_its_text_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_bytes(b"tp = 8\r\n")
    source, diagnostics = read(path)
    assert diagnostics == ()
    assert source is not None
    assert (source.name, source.text) == (str(path), "tp = 8\r\n")


def test_a_root_shortens_the_name_and_shown_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs" / "run.par"
    path.parent.mkdir()
    path.write_text('model from "a"')
    for options, name in (({"root": tmp_path}, "jobs/run.par"), ({"shown": "other"}, "other")):
        source, _ = read(path, **options)  # type: ignore[arg-type]
        assert source is not None and source.name == name


def test_a_byte_order_mark_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_bytes(b'\xef\xbb\xbfmodel from "a"')
    source, diagnostics = read(path)
    assert diagnostics == () and source is not None
    assert source.text == 'model from "a"'
    assert parse(source)[1] == ()


def test_missing(tmp_path: Path) -> None:
    assert told(tmp_path / "no.par") == ("P001", "no such file")
    (tmp_path / "run.par").write_text("")
    assert told(tmp_path / "run.par" / "x")[0] == "P001"
    _, (one,) = read(tmp_path / "run")
    assert one.help and "run.par" in one.help[0]


def test_a_folder_names_what_it_holds(tmp_path: Path) -> None:
    assert told(tmp_path) == ("P002", "this is a folder, not a file")
    (tmp_path / "run.par").write_text("")
    _, (one,) = read(tmp_path)
    assert one.help == ("it holds `run.par`",)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.par")
    before = time.monotonic()
    assert told(tmp_path / "pipe.par") == ("P002", "this is a pipe, not a regular file")
    assert time.monotonic() - before < 20


def test_a_device_is_not_read() -> None:
    assert told(Path("/dev/zero")) == ("P002", "this is a device, not a regular file")


def test_a_ring_of_links(tmp_path: Path) -> None:
    (tmp_path / "a.par").symlink_to("b.par")
    (tmp_path / "b.par").symlink_to("a.par")
    assert told(tmp_path / "a.par")[0] == "P003"
    assert told(tmp_path / "a.par", root=tmp_path)[0] == "P003"


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.par"
    path.write_text("")

    # Not by `chmod`: whoever runs the tests as root reads everything.
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert told(path) == ("P003", "the file cannot be read: permission denied")


def test_names_that_are_no_names(tmp_path: Path) -> None:
    assert told(tmp_path / "a\0b")[0] == "P003"
    assert told(tmp_path / ("a" * 5000))[0] == "P003"


def test_beyond_the_limit_the_size_is_told_and_nothing_read(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_bytes(b"#" * LARGEST)
    assert read(path)[1] == ()
    path.write_bytes(b"#" * (2 * LARGEST))
    assert told(path) == (
        "P004",
        "the file has 2,097,152 bytes; at most 1,048,576 (1 MiB) are read",
    )


def test_not_utf8_tells_byte_and_line(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_bytes(b"# a\n# gr\xf6sse\n")
    assert told(path) == (
        "P005",
        "the file is not UTF-8: byte 8 (counted from 0, in line 2) is 0xf6",
    )
    path.write_bytes("model".encode("utf-16"))
    assert told(path)[0] == "P005"


def test_binary_noise(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    path.write_bytes(b"PK\x03\x04\x00\x00")
    assert told(path) == ("P006", "the file is not text: byte 4 (counted from 0) is zero")


def test_an_empty_file_is_told_by_the_parser(tmp_path: Path) -> None:
    path = tmp_path / "run.par"
    for text in ("", " \n\n", "# only a comment\n"):
        path.write_text(text)
        source, diagnostics = read(path)
        assert source is not None and diagnostics == ()
        tree, (one,) = parse(source)
        assert tree.statements == () and one.code == "P007"


def test_outside_the_project(tmp_path: Path) -> None:
    inside = tmp_path / "project"
    inside.mkdir()
    (tmp_path / "run.par").write_text("")
    (inside / "run.par").symlink_to(tmp_path / "run.par")
    assert told(inside / "run.par", root=inside)[0] == "P008"
    assert told(inside / ".." / "run.par", root=inside)[0] == "P008"


def test_outside_the_project_the_whole_path_is_the_name(tmp_path: Path) -> None:
    inside = tmp_path / "project"
    inside.mkdir()
    _, (one,) = read(tmp_path / "run.par", root=inside)
    assert (one.code, one.file) == ("P008", str(tmp_path / "run.par"))
    assert one.help == (f"its root is {inside}",)


def test_a_text_without_a_file_has_the_same_limit() -> None:
    source, told = decode("run.par", b"#" * LARGEST)
    assert source is not None and told == ()
    source, [one] = decode("run.par", b"#" * (LARGEST + 1))
    assert source is None and (one.code, one.file) == ("P004", "run.par")
    assert one.message == "the file has 1,048,577 bytes; at most 1,048,576 (1 MiB) are read"


def test_a_socket_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("run.par")
        assert told(Path("run.par")) == ("P002", "this is a socket, not a regular file")


def test_a_name_that_with_its_ending_is_too_long(tmp_path: Path) -> None:
    _, (one,) = read(tmp_path / ("a" * 253))
    assert (one.code, one.help) == ("P001", ())


def test_what_changes_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has grown, become a folder or a pipe once it is opened."""
    path = tmp_path / "run.par"
    path.write_text("")
    opened = os.open

    def grown(name: str, flags: int) -> int:
        path.write_bytes(b"#" * (LARGEST + 1))
        return opened(name, flags)

    monkeypatch.setattr(os, "open", grown)
    assert told(path) == (
        "P004",
        "the file has more than 1,048,576 bytes; at most 1,048,576 (1 MiB) are read",
    )

    def folder(name: str, flags: int) -> int:
        raise IsADirectoryError(21, "Is a directory")

    path.write_text("")
    monkeypatch.setattr(os, "open", folder)
    assert told(path) == ("P002", "this is a folder, not a file")

    def pipe(name: str, flags: int) -> int:
        read_end, write_end = os.pipe()
        os.close(write_end)
        return read_end

    monkeypatch.setattr(os, "open", pipe)
    assert told(path) == ("P002", "this is not a regular file")
