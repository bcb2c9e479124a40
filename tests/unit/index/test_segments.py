"""Segments: built, written, opened, joined; what is found wrong with them is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.errors import StoreError
from superfeat.index.manifest import SegmentFacts
from superfeat.index.names import Image
from superfeat.index.segments import (
    Layout,
    Segment,
    build_segment,
    join_segments,
    open_segment,
    verify_segment,
    write_segment,
)

WORDS = 9
LAYOUTS = {"binary": Layout(WORDS, 70, True, "digest"), "real": Layout(WORDS, 5, False, "digest")}


def contents(layout: Layout, seed: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Words and codes of images; the first has none."""
    random, (width, kind) = np.random.default_rng(seed), layout.code_shape
    sizes = [0, *random.integers(0, layout.words + 1, count - 1).tolist()]
    return [
        (
            np.sort(random.choice(layout.words, size, replace=False)).astype(np.int32),
            (random.standard_normal((size, width)) * 99).astype(kind),
        )
        for size in sizes
    ]


def build(layout: Layout, seed: int, ids: list[int]) -> Segment:
    images = [Image(f"s{seed}-{number}", number, {"n": number}) for number in ids]
    return build_segment(layout, ids, images, contents(layout, seed, len(ids)))


def require_images(segment: Segment, wanted: list[tuple[np.ndarray, np.ndarray]]) -> None:
    assert len(segment) == len(wanted)
    assert segment.sizes.tolist() == [len(words) for words, _ in wanted]
    for number, (words, codes) in enumerate(wanted):
        found = segment.words_of(number)
        assert found.words.tolist() == words.tolist()
        assert found.codes.dtype == codes.dtype
        assert found.codes.tobytes() == codes.tobytes()
        assert found.codebook == "digest"


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_written_and_opened_it_is_the_same(kernel: str, tmp_path: Path) -> None:
    layout, ids = LAYOUTS[kernel], [3, 4, 8, 2**40]
    segment = build(layout, 1, ids)
    facts = json.loads(json.dumps(write_segment(segment, tmp_path / "000007")))
    assert (facts["folder"], facts["images"], facts["first"]) == ("000007", 4, 3)
    opened = open_segment(layout, tmp_path / "000007", facts)
    require_images(opened, contents(layout, 1, 4))
    assert opened.images.tolist() == ids
    assert list(opened.names) == list(segment.names)
    assert opened.norms.tobytes() == segment.norms.tobytes()
    assert sorted(verify_segment(opened, tmp_path / "000007", facts)) == sorted(facts["files"])
    assert sorted(file.name for file in (tmp_path / "000007").iterdir()) == sorted(facts["files"])


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_joining_keeps_what_is_kept(kernel: str, tmp_path: Path) -> None:
    layout = LAYOUTS[kernel]
    parts = [build(layout, 1, [0, 1, 2]), build(layout, 2, [5]), build(layout, 3, [7, 9, 11, 12])]
    kept = [np.array([True, False, True]), np.array([False]), np.array([False, True, True, False])]
    joined = join_segments(parts, kept)
    wanted = [contents(layout, seed, count) for seed, count in ((1, 3), (2, 1), (3, 4))]
    require_images(joined, [wanted[0][0], wanted[0][2], wanted[2][1], wanted[2][2]])
    assert joined.images.tolist() == [0, 2, 9, 11]
    assert [image.name for image in joined.names] == ["s1-0", "s1-2", "s3-9", "s3-11"]
    facts = write_segment(joined, tmp_path / "1")
    assert list(verify_segment(open_segment(layout, tmp_path / "1", facts), tmp_path / "1", facts))


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_images_without_words(kernel: str, tmp_path: Path) -> None:
    layout = LAYOUTS[kernel]
    segment = build(layout, 1, [0])
    facts = write_segment(segment, tmp_path / "1")
    opened = open_segment(layout, tmp_path / "1", facts)
    assert (len(opened), facts["postings"], len(opened.words_of(0))) == (1, 0, 0)
    assert opened.norms.tolist() == [1.0]
    assert list(verify_segment(opened, tmp_path / "1", facts))


def edit(folder: Path, name: str, change: Callable[[np.ndarray], Any], facts: SegmentFacts) -> None:
    """Another array of the same size in bytes."""
    file = folder / f"{name}.npy"
    np.save(file, change(np.load(file)))
    facts["files"][file.name]["bytes"] = file.stat().st_size


def raised(array: np.ndarray, place: int, by: int) -> np.ndarray:
    array[place] += by
    return array


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("starts", lambda a: raised(a, 0, 1), "its lists overlap or leave gaps"),
        ("starts", lambda a: raised(a, -1, 1), "its lists overlap or leave gaps"),
        ("starts", lambda a: a[::-1].copy(), "its lists overlap or leave gaps"),
        ("starts", lambda a: a[:-1], "do not have the shapes"),
        ("starts", lambda a: a.astype(np.int32), "its values are int32, not uint32"),
        ("ids", lambda a: a[:-1], "do not have the shapes"),
        ("ids", lambda a: a.astype(np.int16), "its values are int16, not uint16"),
        ("codes", lambda a: a[:, :-1].copy(), "do not have the shapes"),
        ("codes", lambda a: a.reshape(-1), "do not have the shapes"),
        ("codes", lambda a: a.astype(object), "is damaged"),
        ("images", lambda a: a[::-1].copy(), "its images are not in order"),
        ("images", lambda a: a * 0, "its images are not in order"),
        ("sizes", lambda a: a[:0], "do not have the shapes"),
    ],
)
def test_arrays_that_do_not_fit(
    name: str, change: Callable[[np.ndarray], np.ndarray], message: str, tmp_path: Path
) -> None:
    layout = LAYOUTS["binary"]
    facts = write_segment(build(layout, 1, [0, 1, 2, 3]), tmp_path / "1")
    edit(tmp_path / "1", name, change, facts)
    with pytest.raises(StoreError, match=message) as error:
        open_segment(layout, tmp_path / "1", facts)
    assert str(tmp_path / "1") in str(error.value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ids", lambda a: raised(a, -1, 9)),
        ("ids", lambda a: a[::-1].copy()),
        ("ids", lambda a: a * 0),
        ("sizes", lambda a: raised(a, 0, 1)),
    ],
)
def test_lists_that_make_no_sense_are_found_by_verify(
    name: str, change: Callable[[np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    """Even if the checksum is right: something else wrote them."""
    layout = LAYOUTS["binary"]
    facts = write_segment(build(layout, 1, [0, 1, 2, 3]), tmp_path / "1")
    edit(tmp_path / "1", name, change, facts)
    opened = open_segment(layout, tmp_path / "1", facts)
    with pytest.raises(StoreError, match=f"{name}.npy is damaged: its checksum is not the one it was written with"):
        list(verify_segment(opened, tmp_path / "1", facts))
    rewritten: SegmentFacts = {**facts, "files": {}}
    with pytest.raises(StoreError, match=r"posting|order"):
        list(verify_segment(opened, tmp_path / "1", rewritten))


def test_a_file_of_another_size_or_none(tmp_path: Path) -> None:
    layout = LAYOUTS["binary"]
    facts = write_segment(build(layout, 1, [0, 1]), tmp_path / "1")
    for file in sorted((tmp_path / "1").iterdir()):
        data = file.read_bytes()
        file.write_bytes(data + b"x")
        with pytest.raises(StoreError, match=f"{file.name} is damaged: it has {len(data) + 1} bytes, not {len(data)}"):
            open_segment(layout, tmp_path / "1", facts)
        file.unlink()
        with pytest.raises(StoreError, match=f"cannot read .*{file.name}: No such file"):
            open_segment(layout, tmp_path / "1", facts)
        file.write_bytes(data)
    assert len(open_segment(layout, tmp_path / "1", facts)) == 2


def test_layouts() -> None:
    assert LAYOUTS["binary"].code_shape == (16, "|u1")
    assert LAYOUTS["binary"].posting_bytes == 18
    assert LAYOUTS["real"].code_shape == (5, "<f4")
    assert LAYOUTS["real"].posting_bytes == 22
    assert Layout(1, 64, True, "").code_shape == (8, "|u1")
    assert Layout(1, 65, True, "").code_shape == (16, "|u1")
