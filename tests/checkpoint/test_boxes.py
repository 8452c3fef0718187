"""Flat slices as boxes of the whole tensor, and folders of saves as they stand on disk."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from parlay.runtime.boxes import boxes_of  # noqa: E402
from parlay.runtime.committed import Damaged, last_of, read_manifest, write_manifest  # noqa: E402
from parlay.runtime.log import lines_before  # noqa: E402

pytestmark = pytest.mark.slow  # by what is imported


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2)])
def test_any_cut_of_the_flat_tensor_covers_it_once(shape: tuple[int, ...]) -> None:
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    flat = whole.flatten()
    for first, second in itertools.combinations_with_replacement(range(len(flat) + 1), 2):
        found = torch.full(shape, -1)
        for start, stop in [(0, first), (first, second), (second, len(flat))]:
            boxes = boxes_of(
                flat[start:stop],
                start=start,
                piece=whole.shape,
                whole=whole.shape,
                places={},
            )
            assert len(boxes) <= 2 * len(shape) - 1
            for offsets, tensor in boxes:
                at = tuple(slice(o, o + s) for o, s in zip(offsets, tensor.shape, strict=True))
                assert (found[at] == -1).all()
                found[at] = tensor
        assert torch.equal(found, whole)


def test_a_piece_lies_in_the_whole_and_padding_is_left_out() -> None:
    flat = torch.arange(8)
    (box,) = boxes_of(
        flat, start=0, piece=torch.Size([4, 2]), whole=torch.Size([7, 2]), places={0: 1}
    )
    assert box.offsets == (4, 0)
    assert box.tensor.tolist() == [[0, 1], [2, 3], [4, 5]]
    (box,) = boxes_of(
        flat, start=0, piece=torch.Size([4, 2]), whole=torch.Size([4, 6]), places={1: 2}
    )
    assert box.offsets == (0, 4)
    # Experts 2 and 3 of four, the second half of their features.
    piece, whole = torch.Size([2, 2, 2]), torch.Size([4, 4, 2])
    (box,) = boxes_of(flat, start=0, piece=piece, whole=whole, places={0: 1, 1: 1})
    assert box.offsets == (2, 2, 0)


MANIFEST = {"version": 1, "step": 3, "seed": 1, "samples": 9, "spec": "", "files": {}}


def test_only_a_committed_folder_counts(tmp_path: Path) -> None:
    assert last_of(tmp_path) is None
    for name in ("step-00000003", "step-00000009", "step-00000020.tmp-12", "step-00000012"):
        (tmp_path / name).mkdir()
        if name != "step-00000012":
            write_manifest(tmp_path / name, MANIFEST)
    found = last_of(tmp_path)
    assert found is not None and found.name == "step-00000009"


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"step": "3"}, {"files": {"../../secret": ""}}, {"files": {"x.pt": ""}}],
)
def test_a_strange_manifest_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    write_manifest(tmp_path, {**MANIFEST, **change})
    with pytest.raises(Damaged):
        read_manifest(tmp_path)


def test_lines_of_a_broken_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step}) + "\n" for step in range(5)]
    path.write_text("".join(lines) + '{"step": 5, "lo')
    assert lines_before(path, 3) == lines[:3]
    assert lines_before(path, 99) == lines
    assert lines_before(path, 0) == []
