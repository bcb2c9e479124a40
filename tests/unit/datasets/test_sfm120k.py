"""retrieval-SfM-120k in its published layout, made up small: pairs, clusters, validation, damaged and hostile files."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.datasets.sfm120k import TRAINING_FILE, VALIDATION_FILE, read_sfm120k, read_sfm120k_validation
from superfeat.datasets.training_set import missing_images
from superfeat.errors import DatasetError, SuperfeatError, UnpickleError

IMAGES, SELF_PAIRS = 60, 47
CIDS = [f"{number * 7919:032x}" for number in range(IMAGES)]


def split(images: int = IMAGES) -> dict[str, Any]:
    """Clusters of four images; each is a query with the next as its positive, 47 with themselves."""
    clusters = [100 + 3 * (image // 4) for image in range(images)]
    positives = [image // 4 * 4 + (image + 1) % 4 for image in range(images)]
    selves = list(range(min(SELF_PAIRS, images)))
    return {
        "cids": CIDS[:images],
        "cluster": clusters,
        "qidxs": [*range(images), *selves],
        "pidxs": [*positives, *selves],
        "bbxs": [None] * images,
    }


def validation() -> dict[str, Any]:
    return {"cids": CIDS[:10], "qidx": [0, 5], "gnd": [{"ok": [1, 2], "junk": [0]}, {"ok": [6]}]}


def save(folder: Path, contents: Any, name: str = TRAINING_FILE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(contents if isinstance(contents, bytes) else pickle.dumps(contents))
    return folder


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_the_published_layout(tmp_path: Path) -> None:
    save(tmp_path, {"train": split(), "val": split(8)})
    found = read_sfm120k(tmp_path)
    assert len(found.photos) == IMAGES
    assert found.things.tolist() == split()["cluster"]
    assert found.pairs is not None
    assert found.query_count() == IMAGES
    assert found.pairs[:5].tolist() == [[0, 1], [1, 2], [2, 3], [3, 0], [4, 5]]
    assert found.notes == ("47 pairs whose query is their positive were dropped",)
    assert len(read_sfm120k(str(tmp_path), "val").photos) == 8
    found.require_pairs()
    found.require_negatives(5)


def test_where_images_lie(tmp_path: Path) -> None:
    part = {"cids": ["00000000000000000000000000abcdef", CIDS[1]], "cluster": [0, 0], "qidxs": [0], "pidxs": [1]}
    save(tmp_path, {"train": part})
    found = read_sfm120k(tmp_path)
    file = tmp_path / "ims" / "ef" / "cd" / "ab" / "00000000000000000000000000abcdef"
    assert found.photos[0].path == file
    assert found.photos[0].name == file.name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    assert missing_images(found) == [CIDS[1]]


@pytest.mark.parametrize("place", ["train/retrieval-SfM-120k", "retrieval-SfM-120k", "."])
def test_where_the_file_may_lie(tmp_path: Path, place: str) -> None:
    folder = save(tmp_path / place, {"train": split(8)})
    save(folder, validation(), VALIDATION_FILE)
    assert read_sfm120k(tmp_path).photos[0].path.is_relative_to(folder / "ims")
    assert read_sfm120k_validation(tmp_path).photos[0].path.is_relative_to(folder / "ims")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_lists_or_arrays_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    part = split()
    arrays = {key: np.asarray(part[key], kind) for key, kind in (("cluster", "i4"), ("qidxs", ">i8"), ("pidxs", "u2"))}
    texts = {"cids": np.asarray(part["cids"])}
    for contents in (part, part | arrays, part | texts):
        save(tmp_path, pickle.dumps({"train": contents}, protocol))
        found = read_sfm120k(tmp_path)
        assert found.things.tolist() == part["cluster"]
        assert type(found.things) is np.ndarray
        assert found.query_count() == IMAGES
        assert found.photos[3].name == CIDS[3]


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda part: {name: value for name, value in part.items() if name != key}


def changed(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda part: part | values


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("cids"), "'train' has no cids; it is damaged or another file"),
        (without("qidxs"), "has no qidxs"),
        (lambda part: {}, "has no cids, cluster, qidxs, pidxs"),
        (lambda part: [1], "'train' must be a dict with cids, cluster, qidxs, pidxs, not list"),
        (changed(cids="abcdefgh"), "'cids' must be a list of image ids"),
        (changed(cids=[]), "'cids' must be a list of image ids"),
        (changed(cids=np.zeros((2, 2))), "'cids' must be a list"),
        (changed(cids=[1] * IMAGES), "'cids' holds int, which is no image id"),
        (changed(cids=np.zeros(IMAGES)), "'cids' holds float, which is no image id"),
        (changed(cids=["abcde"] * IMAGES), "'cids' holds 'abcde', which is no image id"),
        (changed(cids=["a/../../../b"] * IMAGES), "which is no image id"),
        (changed(cids=["......"] * IMAGES), "which is no image id"),
        (changed(cids=["abcdef\n"] * IMAGES), "which is no image id"),
        (changed(cluster=[0]), "has 60 cids but 1 clusters: fetch the file again"),
        (changed(cluster=["x"] * IMAGES), "'cluster' must be whole numbers of shape n, not"),
        (changed(cluster=[0.5] * IMAGES), "'cluster' must be whole numbers"),
        (changed(cluster={}), "'cluster' must be whole numbers"),
        (changed(cluster=[[0], [1, 2]]), "'cluster' must be a list of whole numbers"),
        (changed(cluster=[10**30] * IMAGES), "'cluster' must be"),
        (changed(qidxs=[0, 1]), "has 2 qidxs but 107 pidxs: fetch the file again"),
        (changed(qidxs=[0], pidxs=[IMAGES]), "'qidxs' and 'pidxs' holds 60, but there are 60 images"),
        (changed(qidxs=[-1], pidxs=[0]), "holds -1, but there are 60 images"),
        (changed(qidxs=[None], pidxs=[0]), "'qidxs' must be whole numbers"),
        (changed(qidxs=[0], pidxs=[4]), f"{CIDS[0]} and {CIDS[4]} are given as a pair but belong to different things"),
    ],
)
def test_damaged_contents(tmp_path: Path, damage: Callable[[dict[str, Any]], Any], message: str) -> None:
    save(tmp_path, {"train": damage(split())})
    with pytest.raises(DatasetError, match=message) as raised:
        read_sfm120k(tmp_path)
    assert "\n" not in str(raised.value)


def test_another_pickle(tmp_path: Path) -> None:
    save(tmp_path, {"val": split()})
    with pytest.raises(DatasetError, match=r"retrieval-SfM-120k\.pkl has no train; it is damaged or another file"):
        read_sfm120k(tmp_path)
    save(tmp_path, [1, 2])
    with pytest.raises(DatasetError, match=r"retrieval-SfM-120k\.pkl must be a dict with train, not list"):
        read_sfm120k(tmp_path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as raised:
        read_sfm120k(tmp_path)
    assert str(raised.value) == (
        f"there is no retrieval-SfM-120k.pkl at {tmp_path} or {tmp_path}/train/retrieval-SfM-120k: put the published "
        "file there (a dict with 'train' and 'val', each with cids, cluster, qidxs, pidxs), with the images below "
        "ims/ beside it"
    )
    (tmp_path / TRAINING_FILE).mkdir()
    with pytest.raises(DatasetError, match=r"there is no retrieval-SfM-120k.pkl"):
        read_sfm120k(tmp_path)


class Hostile:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_a_hostile_pickle_is_refused(tmp_path: Path) -> None:
    for name, read in ((TRAINING_FILE, read_sfm120k), (VALIDATION_FILE, read_sfm120k_validation)):
        save(tmp_path, {"train": Hostile(tmp_path / "owned")}, name)
        with pytest.raises(UnpickleError, match=r"is refused: it names .*; nothing in it was run"):
            read(tmp_path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [b"", b"x", b"\x80", pickle.dumps({"train": split()})[:-20], b"\x80\x04N."])
def test_a_damaged_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    for name, read in ((TRAINING_FILE, read_sfm120k), (VALIDATION_FILE, read_sfm120k_validation)):
        save(tmp_path, content, name)
        with pytest.raises(SuperfeatError, match=r"damaged|must be a dict"):
            read(tmp_path)


# --- validation -------------------------------------------------------------------------------------------------------


def test_the_validation_list(tmp_path: Path) -> None:
    save(tmp_path, validation(), VALIDATION_FILE)
    found = read_sfm120k_validation(tmp_path)
    assert found.name == "retrieval-SfM-120k-val-eccv2020"
    assert [photo.name for photo in found.photos] == CIDS[:10]
    assert [query.photo for query in found.queries] == [found.photos[0], found.photos[5]]
    assert [(query.positives, query.junk) for query in found.queries] == [((1, 2), (0,)), ((6,), (5,))]


@pytest.mark.parametrize(
    ("truth", "positives", "junk"),
    [
        ({"ok": np.array([3, 1])}, (1, 3), (0,)),
        ({"easy": [3], "hard": np.array([1, 3])}, (1, 3), (0,)),
        ({"hard": [2], "junk": [4, 0]}, (2,), (0, 4)),
        ({"ok": [0, 2], "junk": []}, (2,), (0,)),
        ({"ok": [1, 2], "junk": [2, 3]}, (1, 2), (0, 3)),
        ([2, 1], (1, 2), (0,)),
        ((2,), (2,), (0,)),
        (np.array([2, 9], np.int32), (2, 9), (0,)),
    ],
)
def test_every_form_of_truth(tmp_path: Path, truth: Any, positives: tuple[int, ...], junk: tuple[int, ...]) -> None:
    save(tmp_path, validation() | {"qidx": np.array([0]), "gnd": [truth]}, VALIDATION_FILE)
    (query,) = read_sfm120k_validation(tmp_path).queries
    assert (query.positives, query.junk) == (positives, junk)


def test_queries_without_positives_are_left_out(tmp_path: Path) -> None:
    save(tmp_path, validation() | {"qidx": [3, 0, 4], "gnd": [[], [1], {"ok": [4]}]}, VALIDATION_FILE)
    assert [query.photo.name for query in read_sfm120k_validation(tmp_path).queries] == [CIDS[0]]
    save(tmp_path, validation() | {"gnd": [[], [5]]}, VALIDATION_FILE)
    with pytest.raises(DatasetError, match="none of its 2 queries has a positive"):
        read_sfm120k_validation(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("gnd"), "val-eccv2020.pkl has no gnd"),
        (changed(cids=None), "'cids' must be a list of image ids"),
        (changed(qidx=[0, 10]), "'qidx' holds 10, but there are 10 images"),
        (changed(qidx="01"), "'qidx' must be whole numbers"),
        (changed(qidx=[0]), "'gnd' must be a list with one entry for each of the 1 queries"),
        (changed(gnd={}), "'gnd' must be a list with one entry for each of the 2 queries"),
        (changed(gnd=[[1], {"junk": [1]}]), "'gnd' of query 1 has neither 'ok' nor 'easy' and 'hard'"),
        (changed(gnd=[[1], [-1]]), "'gnd' of query 1: 'ok' holds -1, but there are 10 images"),
        (changed(gnd=[[1], {"ok": [2], "junk": [99]}]), "'junk' holds 99, but there are 10 images"),
        (changed(gnd=[[1], None]), "'gnd' of query 1: 'ok' must be whole numbers"),
        (changed(gnd=[[1], ["a"]]), "'ok' must be whole numbers"),
        (changed(gnd=[[1], 2]), "'ok' must be whole numbers of shape n, not int64 of shape one number"),
    ],
)
def test_damaged_validation(tmp_path: Path, damage: Callable[[dict[str, Any]], Any], message: str) -> None:
    save(tmp_path, damage(validation()), VALIDATION_FILE)
    with pytest.raises(DatasetError, match=message) as raised:
        read_sfm120k_validation(tmp_path)
    assert "\n" not in str(raised.value)
    with pytest.raises(DatasetError, match=r"val-eccv2020\.pkl at .*: put the published file there .*cids, qidx, gnd"):
        read_sfm120k_validation(tmp_path / "elsewhere")
