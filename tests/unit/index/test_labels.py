"""What was said of results: the last word counts, nothing acknowledged is lost, damage is noticed."""

import json
from pathlib import Path

import numpy as np
import pytest

from superfeat.errors import StoreError
from superfeat.features import ImageWords
from superfeat.index.labels import (
    FILE,
    FOLDER,
    Label,
    Searched,
    merge_labels,
    photo_mark,
    read_labels,
    verify_labels,
    write_labels,
)

HERE, PART = Searched("one"), Searched("one", (0.1, 0.2, 0.3, 0.4))


def words(codes: np.ndarray) -> ImageWords:
    return ImageWords(np.arange(len(codes), dtype=np.int32), codes, "a codebook")


def test_nothing_was_said(tmp_path: Path) -> None:
    assert read_labels(tmp_path) == ({}, {})
    assert list(verify_labels(tmp_path)) == []


def test_the_last_word_counts(tmp_path: Path) -> None:
    write_labels(tmp_path, [Label(HERE, "a", True), Label(HERE, "b", False), Label(PART, "a", False)])
    write_labels(tmp_path, [Label(HERE, "a", False), Label(HERE, "b", None), Label(HERE, "c", None)])
    said = read_labels(tmp_path)
    assert said.labels == {(HERE, "a"): False, (PART, "a"): False}
    assert said.counts() == (0, 2)
    assert list(verify_labels(tmp_path)) == [f"{FOLDER}/{FILE}"]


@pytest.mark.parametrize(
    "codes", [np.arange(32, dtype=np.uint8).reshape(2, 16), np.ones((3, 4), np.float32), np.empty((0, 1), np.uint8)]
)
def test_words_of_queries_are_kept(tmp_path: Path, codes: np.ndarray) -> None:
    write_labels(tmp_path, [Label(PART, "a", True)], words(codes))
    kept = read_labels(tmp_path).words[PART]
    assert np.array_equal(kept.words, np.arange(len(codes)))
    assert kept.codebook == "a codebook"
    if len(codes):
        assert np.array_equal(kept.codes, codes)
        assert kept.codes.dtype == codes.dtype


def test_a_killed_writer_loses_at_most_what_it_was_saying(tmp_path: Path) -> None:
    """The file cut at every byte: what was said before the last line holds, and the next writer goes on."""
    write_labels(tmp_path, [Label(HERE, "a", True)])
    path = tmp_path / FOLDER / FILE
    before = path.read_bytes()
    write_labels(tmp_path, [Label(HERE, "b", False)])
    whole = path.read_bytes()
    for length in range(len(before), len(whole)):
        path.write_bytes(whole[:length])
        assert read_labels(tmp_path).labels == {(HERE, "a"): True}
        write_labels(tmp_path, [Label(HERE, "c", True)])
        assert read_labels(tmp_path).labels == {(HERE, "a"): True, (HERE, "c"): True}


def test_damage_is_noticed(tmp_path: Path) -> None:
    write_labels(tmp_path, [Label(HERE, "a", True), Label(HERE, "b", True)])
    path = tmp_path / FOLDER / FILE
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"true", b"nope", 1))
    with pytest.raises(StoreError, match="is damaged in line 2"):
        list(verify_labels(tmp_path))
    path.write_bytes(whole.replace(b"superfeat-labels", b"superfeat-lapels"))
    with pytest.raises(StoreError, match="does not begin as a file of labels"):
        write_labels(tmp_path, [Label(HERE, "c", True)])
    path.write_bytes(json.dumps({"format": "superfeat-labels", "version": 2}).encode() + b"\n")
    with pytest.raises(StoreError, match="has format version 2; this superfeat reads 1"):
        read_labels(tmp_path)


def test_labels_are_merged(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    merge_labels(ours, theirs)
    assert not (ours / FOLDER).exists()
    write_labels(ours, [Label(HERE, "a", True), Label(HERE, "b", True)])
    write_labels(theirs, [Label(HERE, "b", False), Label(PART, "c", True)], words(np.ones((2, 16), np.uint8)))
    merge_labels(ours, theirs)
    said = read_labels(ours)
    assert said.labels == {(HERE, "a"): True, (HERE, "b"): False, (PART, "c"): True}
    assert list(said.words) == [HERE]


def test_a_photo_goes_by_its_bytes_where_they_are_known() -> None:
    assert photo_mark("a.jpg", {"digest": "0123"}) == "0123"
    assert photo_mark("a.jpg", {}) == "name a.jpg"
