"""The real lists that searching is judged by: published ones and our own. They and their photos lie beside the project,
so these tests skip where they are absent; tests/golden reads made-up lists in the same layouts and never skips.
"""

import json
from pathlib import Path
from typing import Literal

import pytest

from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import RetrievalSet, read_gnd_json
from superfeat.datasets.revisited import read_revisited
from superfeat.datasets.training_set import missing_photos
from superfeat.storage.unpickle import read_pickle

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def data() -> Path:
    if not (SHARED / "groundtruth").is_dir():
        pytest.skip(f"the lists and their photos are not at {SHARED}")
    return SHARED


@pytest.mark.parametrize(("name", "images"), [("roxford5k", 4993), ("rparis6k", 6322)])
def test_the_published_lists(data: Path, name: Literal["roxford5k", "rparis6k"], images: int) -> None:
    file = data / "groundtruth" / f"gnd_{name}.pkl"
    found = read_revisited(file.parent, name)
    assert (found.name, found.protocol, found.files, found.left_out) == (name, "revisited", (file,), 0)
    assert (len(found.photos), len(found.queries)) == (images, 70)
    stored = read_pickle(file)
    assert [photo.name for photo in found.photos] == stored["imlist"]
    assert [query.photo.name for query in found.queries] == stored["qimlist"]
    assert found.photos[-1].path == file.parent / "jpg" / f"{stored['imlist'][-1]}.jpg"
    for query, truth in zip(found.queries, stored["gnd"], strict=True):
        assert query.photo.box == tuple(truth["bbx"])
        assert query.easy == tuple(sorted(truth["easy"]))
        assert query.hard == tuple(sorted(truth["hard"]))
        assert query.junk == tuple(sorted(truth["junk"]))
        assert not set(query.positives) & set(query.junk)
    assert read_benchmark(name, file.parent) == found


def check_numbers(found: RetrievalSet) -> None:
    for query in found.queries:
        assert query.positives
        assert not set(query.positives) & set(query.junk)
        assert all(0 <= image < len(found.photos) for image in (*query.positives, *query.junk))


def test_the_landmarks_for_validation(data: Path) -> None:
    path = data / "gnd" / "val_landmarks.json"
    found = read_gnd_json(path, data)
    assert (found.name, len(found.photos), len(found.queries)) == ("val_landmarks", 817, 178)
    check_numbers(found)
    assert missing_photos(found.photos) == missing_photos([query.photo for query in found.queries]) == []
    stored = json.loads(path.read_text())
    for query, given in zip(found.queries, stored["queries"], strict=True):
        assert query.photo == found.photos[given["self"]]
        assert query.positives == tuple(sorted(given["pos"]))
        assert set(query.junk) == {*given["junk"], given["self"]}


def test_all_other_lists(data: Path) -> None:
    for path in sorted((data / "gnd").glob("*.json")):
        found = read_gnd_json(path, data)
        assert found.name == path.stem
        check_numbers(found)
        boxes = [query.photo.box for query in found.queries if query.photo.box]
        assert len(boxes) == (12 if path.stem == "rparis6k_mini" else 0)
        assert all(0 <= left < right <= 640 and 0 <= upper < lower <= 640 for left, upper, right, lower in boxes)
