"""The features folder: appended image by image, gone on with after any kind of stop, damage noticed."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat import Features, FeatureStore
from superfeat.errors import StoreError
from superfeat.extraction.folder import FeatureFacts, feature_writer, photo_stamp
from superfeat.images import Skipped

DIM = 4
FACTS: FeatureFacts = {
    "network": {"digest": "abc", "lit": {"rounds": 6}},
    "extract": {"max_side": 64, "scales": [1.0, 0.5]},
}
STAMP = (10, 20)


def some(name: str, n: int, regions: bool = False) -> Features:
    rng = np.random.default_rng(n + len(name) * 100)
    return Features(
        name,
        rng.standard_normal((n, DIM)).astype(np.float32),
        rng.random(n).astype(np.float32),
        np.ones(n, np.float32),
        np.arange(n, dtype=np.int32),
        rng.random((n, 4)).astype(np.float32) if regions else None,
        image_size=(30, 20),
    )


IMAGES = [some("a", 3), some("b", 0), some("folder/ü.jpg", 5)]


def write(
    folder: Path, images: Iterable[Features], *, finish: bool = True, regions: bool = False, facts: Any = None
) -> None:
    with feature_writer(folder, facts or FACTS, DIM, regions=regions) as writer:
        for image in images:
            writer.add(image, STAMP)
        if finish:
            writer.finish()


def assert_holds(folder: Path, images: list[Features]) -> None:
    store = FeatureStore(folder)
    store.verify()
    assert [entry.name for entry in store.entries] == [image.name for image in images]
    assert len(store) == len(images)
    for found, expected in zip(store, images, strict=True):
        assert (found.name, found.image_size) == (expected.name, expected.image_size)
        assert found.arrays().keys() == expected.arrays().keys()
        for key, array in expected.arrays().items():
            np.testing.assert_array_equal(found.arrays()[key], array)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "features"


@pytest.mark.parametrize("regions", [False, True])
def test_what_is_written_is_read(regions: bool, folder: Path) -> None:
    images = [some("a", 3, regions), some("b", 0, regions), some("c", 5, regions)]
    write(folder, images, regions=regions)
    assert_holds(folder, images)
    assert FeatureStore(folder)["c"].strengths.shape == (5,)


def test_the_arrays_are_plain_npy_files(folder: Path) -> None:
    write(folder, IMAGES)
    vectors = np.load(folder / "vectors.npy")
    np.testing.assert_array_equal(vectors, np.concatenate([image.vectors for image in IMAGES]))
    for name, dtype in (("strengths", "<f4"), ("scales", "<f4"), ("ids", "<i4")):
        array = np.load(folder / f"{name}.npy", mmap_mode="r")
        assert (array.shape, array.dtype.str) == ((8,), dtype)
    assert not (folder / "regions.npy").exists()


def test_the_manifest(folder: Path) -> None:
    write(folder, IMAGES, finish=False)
    begun = json.loads((folder / "manifest.json").read_text())
    assert begun == {
        "format": "superfeat-features",
        "version": 1,
        "dim": DIM,
        "regions": False,
        "complete": False,
        **FACTS,
    }
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        writer.skip(Skipped("x", "broken"), STAMP)
        writer.finish()
    finished = json.loads((folder / "manifest.json").read_text())
    assert finished == {**begun, "complete": True, "images": 3, "skipped": 1, "features": 8}


def test_unknown_images(folder: Path) -> None:
    write(folder, IMAGES)
    with pytest.raises(StoreError, match="has no image called z"):
        FeatureStore(folder)["z"]


def test_a_folder_is_gone_on_with(folder: Path) -> None:
    write(folder, IMAGES[:1], finish=False)
    write(folder, IMAGES[1:2])
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        assert writer.has("a", STAMP)
        assert writer.has("b", STAMP)
        assert not writer.has("folder/ü.jpg", STAMP)
        writer.add(IMAGES[2], STAMP)
        writer.finish()
    assert_holds(folder, IMAGES)


def test_stops_leave_the_same_bytes_as_one_run(tmp_path: Path) -> None:
    write(tmp_path / "once", IMAGES)
    for image in IMAGES:
        write(tmp_path / "often", [image], finish=image is IMAGES[-1])
    for file in ("vectors.npy", "strengths.npy", "scales.npy", "ids.npy", "images.jsonl", "manifest.json"):
        assert (tmp_path / "once" / file).read_bytes() == (tmp_path / "often" / file).read_bytes(), file


def test_a_reader_sees_the_whole_images_of_a_running_writer(folder: Path) -> None:
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        assert_holds(folder, [])
        for number, image in enumerate(IMAGES, 1):
            writer.add(image, STAMP)
            assert_holds(folder, IMAGES[:number])


# --- after a kill -----------------------------------------------------------------------------------------------------


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


KILLS: dict[str, dict[str, bytes]] = {  # what each left at the end of which file
    "in the journal's line": {"images.jsonl": b'{"count": 3, "crc'},
    "after some of an image's vectors": {"vectors.npy": b"12345"},
    "between an image's arrays": {"vectors.npy": bytes(48), "strengths.npy": bytes(12)},
    "before the journal's line": {f"{name}.npy": bytes(64) for name in ("vectors", "strengths", "scales", "ids")},
    "while the manifest was written": {".manifest.json.999.partial": b"{"},
}


@pytest.mark.parametrize("kill", list(KILLS))
def test_what_a_kill_left_behind_is_cut_off(kill: str, folder: Path, tmp_path: Path) -> None:
    write(folder, IMAGES[:2], finish=False)
    for name, data in KILLS[kill].items():
        append(folder / name, data)
    assert_holds(folder, IMAGES[:2])
    write(folder, IMAGES[2:])
    assert_holds(folder, IMAGES)
    write(tmp_path / "once", IMAGES)
    for file in ("vectors.npy", "strengths.npy", "scales.npy", "ids.npy", "images.jsonl", "manifest.json"):
        assert (tmp_path / "once" / file).read_bytes() == (folder / file).read_bytes(), file


@pytest.mark.parametrize("length", [0, 50])
def test_a_kill_while_the_first_array_was_made(length: int, folder: Path) -> None:
    write(folder, [], finish=False)
    whole = (folder / "scales.npy").read_bytes()
    (folder / "scales.npy").write_bytes(whole[:length])
    (folder / "ids.npy").unlink()
    (folder / "images.jsonl").unlink()
    write(folder, IMAGES)
    assert_holds(folder, IMAGES)


def test_a_kill_before_the_first_manifest(folder: Path) -> None:
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / ".manifest.json.999.partial").write_bytes(b"{")
    write(folder, IMAGES)
    assert_holds(folder, IMAGES)


# --- skipped photos ---------------------------------------------------------------------------------------------------


def test_skipped_photos_are_noted_and_not_tried_again(folder: Path) -> None:
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        writer.add(IMAGES[0], STAMP)
        writer.skip(Skipped("bad.jpg", "not an image"), (5, 6))
        writer.finish()
    store = FeatureStore(folder)
    assert len(store) == 1
    assert [(entry.name, entry.skipped) for entry in store.skipped] == [("bad.jpg", "not an image")]
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        assert writer.has("bad.jpg", (5, 6))
        assert not writer.has("bad.jpg", (5, 7)), "it has changed since"


def test_a_skipped_photo_may_become_readable(folder: Path) -> None:
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        writer.skip(Skipped("a", "not an image"), STAMP)
    write(folder, IMAGES)
    assert sorted(entry.name for entry in FeatureStore(folder).entries) == sorted(image.name for image in IMAGES)
    assert FeatureStore(folder).skipped == []
    FeatureStore(folder).verify()


def test_the_same_image_twice_does_not_harm_the_others(folder: Path) -> None:
    """However it comes about, a second time must not make the rows of the rest unreadable or lose them."""
    with feature_writer(folder, FACTS, DIM, regions=False) as writer:
        for image in (IMAGES[0], IMAGES[0], IMAGES[2]):
            writer.add(image, STAMP)
        writer.finish()
    write(folder, [some("later", 2)])
    store = FeatureStore(folder)
    store.verify()
    for expected in (IMAGES[0], IMAGES[2], some("later", 2)):
        np.testing.assert_array_equal(store[expected.name].vectors, expected.vectors)


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vectors", "strengths", "scales", "ids", "regions"])
def test_a_flipped_byte_is_found(name: str, folder: Path) -> None:
    write(folder, [some("a", 3, True), some("b", 2, True)], regions=True)
    data = bytearray((folder / f"{name}.npy").read_bytes())
    data[-1] ^= 1
    (folder / f"{name}.npy").write_bytes(data)
    with pytest.raises(StoreError, match="the features of b are damaged; extract them again"):
        FeatureStore(folder).verify()


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[1]\n",
        b"5\n",
        b"null\n",
        b"{}\n",
        b'{"name": "x", "stamp": 3}\n',
        b'{"name": "x", "stamp": [1, 2], "new": 1}\n',
    ],
)
def test_a_damaged_line_is_named(line: bytes, folder: Path) -> None:
    write(folder, IMAGES)
    journal = (folder / "images.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "images.jsonl").write_bytes(journal[0] + line + journal[2])
    with pytest.raises(StoreError, match=r"is damaged at line 2: .*; extract again into a new folder"):
        FeatureStore(folder)
    with pytest.raises(StoreError, match="is damaged at line 2"):
        write(folder, [])


@pytest.mark.parametrize("name", ["vectors", "strengths", "scales", "ids"])
def test_an_array_that_is_too_short(name: str, folder: Path) -> None:
    write(folder, IMAGES)
    data = (folder / f"{name}.npy").read_bytes()
    (folder / f"{name}.npy").write_bytes(data[:-1])
    with pytest.raises(StoreError, match=rf"{name}.npy is shorter than its journal says"):
        FeatureStore(folder)
    with pytest.raises(StoreError, match=rf"{name}.npy is shorter than its journal says"):
        write(folder, [])


def test_an_array_that_is_missing(folder: Path) -> None:
    write(folder, IMAGES)
    (folder / "scales.npy").unlink()
    with pytest.raises(StoreError, match=r"scales.npy"):
        FeatureStore(folder)
    with pytest.raises(StoreError, match=r"scales.npy"):
        write(folder, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "format version 2; this superfeat reads 1: upgrade it"),
        ({"format": "other"}, "is not a features folder"),
    ],
)
def test_a_manifest_of_something_else(change: dict[str, Any], message: str, folder: Path) -> None:
    write(folder, IMAGES)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(StoreError, match=message):
        FeatureStore(folder)
    with pytest.raises(StoreError, match=message):
        write(folder, [])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "superfeat-features", "version": 1}'])
def test_a_damaged_manifest(text: str, folder: Path) -> None:
    write(folder, IMAGES)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(StoreError):
        FeatureStore(folder)


def test_no_features_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreError, match=r"is not a features folder: it has no manifest.json"):
            FeatureStore(path)


# --- whose folder it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({**FACTS, "network": {"digest": "other", "lit": {"rounds": 6}}}, "network.digest"),
        ({**FACTS, "network": {"digest": "abc", "lit": {"rounds": 5}}}, "network.lit.rounds"),
        ({**FACTS, "extract": {"max_side": 32, "scales": [1.0, 0.5]}}, "extract.max_side"),
        ({**FACTS, "extract": {"max_side": 64, "scales": [1.0]}}, "extract.scales"),
    ],
)
def test_other_settings_are_refused_and_named(facts: dict[str, Any], named: str, folder: Path) -> None:
    write(folder, IMAGES)
    with pytest.raises(StoreError) as error:
        write(folder, [], facts=facts)
    assert named in str(error.value)
    assert "choose another folder, or remove it to start again" in str(error.value)
    assert_holds(folder, IMAGES)


def test_other_shapes_are_refused(folder: Path) -> None:
    write(folder, IMAGES)
    with pytest.raises(StoreError, match="regions"):
        write(folder, [], regions=True)
    with pytest.raises(StoreError, match="dim"), feature_writer(folder, FACTS, DIM + 1, regions=False):
        pass


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(StoreError, match="holds other files; choose a new folder"):
        write(tmp_path, IMAGES)
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != ".lock") == ["holiday.jpg"]


def test_one_writer(folder: Path) -> None:
    with (
        feature_writer(folder, FACTS, DIM, regions=False),
        pytest.raises(StoreError, match="is being written by another process"),
    ):
        write(folder, IMAGES)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StoreError, match="cannot write"):
        write(tmp_path / "file", IMAGES)


def test_stamps(tmp_path: Path) -> None:
    file = tmp_path / "a"
    assert photo_stamp(file) == (0, 0)
    file.write_bytes(b"123")
    first = photo_stamp(file)
    assert first[0] == 3
    file.write_bytes(b"1234")
    assert photo_stamp(file) != first
