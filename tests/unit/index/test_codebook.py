"""k-means: the plain loop, interruptions, threads, samples larger than memory allows; codebooks on disk."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracles
from superfeat.config import CodebookConfig
from superfeat.errors import ConfigError, StoreError, SuperfeatError, UnpickleError
from superfeat.features import Features
from superfeat.index.codebook import Codebook, Round, train_codebook
from superfeat.index.lloyd import SPLIT, move_words

SMALL = CodebookConfig(words=8, rounds=4, points_per_word=20)


def normal(n: int, dim: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def features(vectors: np.ndarray, network: str | None = None) -> Features:
    n = len(vectors)
    ones = np.ones(n, np.float32)
    return Features("image", vectors, ones, ones, np.zeros(n, np.int32), network=network)


def train(vectors: np.ndarray, config: CodebookConfig = SMALL, **more: Any) -> Codebook:
    return train_codebook([vectors], config, **more)


# --- training ---------------------------------------------------------------------------------------------------------


def test_lloyds_rounds_by_the_plain_loop() -> None:
    points = normal(120)
    config = CodebookConfig(words=8, rounds=5, points_per_word=100)
    found = train(points, config)
    first = points[np.sort(np.random.default_rng(config.seed + 1).choice(120, 8, replace=False))]
    centroids, distortions = oracles.lloyd(points, first, 5)
    np.testing.assert_allclose(found.centroids, centroids, rtol=1e-6, atol=1e-7)
    rounds = found.facts["quality"]["rounds"]
    np.testing.assert_allclose([one["distortion"] for one in rounds], distortions, rtol=1e-6)
    assert [one["empty"] for one in rounds] == [0] * 5
    assert found.facts["quality"]["distortion"] == rounds[-1]["distortion"]


def test_clusters_that_are_there_are_found() -> None:
    centres = normal(8, 5, 3) * 20
    points = np.repeat(centres, 50, axis=0) + normal(400) / 10
    found = train(points[np.random.default_rng(0).permutation(400)], CodebookConfig(words=32, rounds=10))
    nearest = np.sqrt(np.square(found.centroids[:, None] - centres).sum(axis=2)).min(axis=1)
    assert nearest.max() < 1


def test_distortion_never_rises() -> None:
    found = train(normal(2000, 8), CodebookConfig(words=40, rounds=12, points_per_word=100))
    distortions = [one["distortion"] for one in found.facts["quality"]["rounds"]]
    assert len(distortions) == 12
    assert (np.diff(distortions) < 0).all()


@pytest.mark.parametrize("workers", [2, 3])
def test_threads_change_nothing(workers: int) -> None:
    points = normal(3000, 12)
    config = CodebookConfig(words=30, rounds=3)
    assert train(points, config, workers=workers).digest == train(points, config, workers=1).digest


def test_seed_words_and_order_count() -> None:
    points = normal(300)
    one = train(points)
    assert train(points).digest == one.digest
    assert train(points, seed=1).digest != one.digest
    assert train(points[::-1]).digest != one.digest
    assert train(points, words=5).words == 5


@pytest.mark.parametrize("cuts", [[1, 2, 3], [150], [159, 160, 161], [200, 200, 299]])
def test_how_the_stream_is_cut_does_not_count(cuts: list[int]) -> None:
    """The reservoir of 160 is full in the middle of it."""
    points = normal(300)
    assert train_codebook(np.split(points, cuts), SMALL).digest == train(points).digest


def test_what_it_says_of_itself() -> None:
    images = [features(normal(100, seed=seed), "net") for seed in range(3)]
    found = train_codebook(images, SMALL)
    assert found.network == "net"
    assert (found.words, found.dim) == (8, 5)
    assert (found.facts["features"], found.facts["points"]) == (300, 160)
    assert found.facts["settings"] == {"words": 8, "rounds": 4, "points_per_word": 20, "seed": 0}
    assert json.loads(json.dumps(found.facts)) == found.facts
    assert found.facts["quality"]["imbalance"] >= 1


def test_progress() -> None:
    seen: list[Round] = []
    train_codebook([normal(100), normal(100)], SMALL, on_progress=seen.append)
    assert seen == [Round(0, 4, 100, 0), Round(0, 4, 200, 0), *(Round(n, 4, 160, 160) for n in (1, 2, 3, 4))]


def test_a_word_for_each_point() -> None:
    points = normal(8)
    found = train(points)
    assert sorted(map(tuple, found.centroids.tolist())) == sorted(map(tuple, points.tolist()))
    assert found.facts["quality"]["distortion"] == 0


# --- empty words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [0.0, 1.0, -3.5])
def test_all_points_equal(fill: float) -> None:
    found = train(np.full((100, 5), fill, np.float32))
    assert np.isfinite(found.centroids).all()
    assert found.facts["quality"]["rounds"][0]["empty"] == 7
    assert np.abs(found.centroids - fill).max() <= abs(fill) / 100
    assert (found.assign(np.full((1, 5), fill, np.float32), 8) >= 0).all()


def test_empty_words_are_put_to_use() -> None:
    """This seed begins with three words at the same point: two of them are empty until they take part of others."""
    points = np.concatenate([np.full((20, 5), 9, np.float32), normal(140)])
    found = train(points, CodebookConfig(words=5, rounds=4, seed=33))
    assert [one["empty"] for one in found.facts["quality"]["rounds"]] == [2, 0, 0, 0]
    assert np.isfinite(found.centroids).all()
    assert np.unique(found.assign(points)).tolist() == [0, 1, 2, 3, 4]


def test_an_empty_word_takes_half_of_the_largest() -> None:
    """Two of them: the second takes a half of the half that the first took."""
    centroids = np.asarray([[5, 5], [1, 1], [6, 6], [2, 4]], np.float32)
    sums = np.asarray([[0, 0], [2, 6], [0, 0], [16, 32]], np.float64)
    moved = move_words(centroids, sums, np.asarray([0, 2, 0, 8]))
    more, less = 1 + SPLIT, 1 - SPLIT
    expected = [[2 * more * less, 4 * less * more], [1.0, 3.0], [2 * more**2, 4 * less**2], [2 * less, 4 * more]]
    np.testing.assert_allclose(moved, expected, rtol=1e-6)
    assert centroids[0, 0] == 5


def test_a_split_leaves_both_halves_near() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([np.full((40, 4), 2, np.float32), np.full((8, 4), 7, np.float32)])
    found = train(points[rng.permutation(48)], CodebookConfig(words=6, rounds=8))
    distances = np.abs(found.centroids[:, None] - np.asarray([2, 7], np.float32)[:, None]).max(axis=2).min(axis=1)
    assert distances.max() < 0.1
    assert found.facts["quality"]["distortion"] < 1e-3


# --- the sample -------------------------------------------------------------------------------------------------------


def numbered(first: int, n: int) -> np.ndarray:
    """Features that tell where in the stream they were."""
    return np.arange(first, first + n, dtype=np.float32)[:, None]


def sample(folder: Path, config: CodebookConfig, batches: list[np.ndarray]) -> np.ndarray:
    train_codebook(batches, config, work=folder)
    return np.fromfile(folder / "points.f4", "<f4")


def test_all_features_if_they_fit(tmp_path: Path) -> None:
    config = CodebookConfig(words=4, rounds=1, points_per_word=25)
    assert sample(tmp_path, config, [numbered(0, 60), numbered(60, 40)]).tolist() == list(range(100))


def test_the_sample_is_bounded(tmp_path: Path) -> None:
    config = CodebookConfig(words=4, rounds=1, points_per_word=25)
    found = sample(tmp_path, config, [numbered(first, 100) for first in range(0, 5000, 100)])
    assert len(found) == 100
    assert len(set(found.tolist())) == 100
    assert found.max() > 2500


def test_every_feature_has_the_same_chance(tmp_path: Path) -> None:
    counts = np.zeros(10)
    for seed in range(40):
        config = CodebookConfig(words=2, rounds=1, points_per_word=25, seed=seed)
        found = sample(tmp_path / str(seed), config, [numbered(first, 37) for first in range(0, 370, 37)])
        counts += np.bincount(found.astype(np.int64) // 37, minlength=10)
    assert counts.sum() == 40 * 50
    chi_square = (np.square(counts - 200) / 200).sum()  # 9 degrees: above 27.9 once in a thousand
    assert chi_square < 27.9


# --- interruptions ----------------------------------------------------------------------------------------------------


class StoppedError(Exception):
    pass


def stop_at(number: int) -> Callable[[Round], None]:
    def report(now: Round) -> None:
        if now.number == number:
            raise StoppedError

    return report


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_interrupted_in_any_round(tmp_path: Path, number: int) -> None:
    points = normal(300)
    with pytest.raises(StoppedError):
        train(points, work=tmp_path, on_progress=stop_at(number))
    seen: list[Round] = []
    found = train(points, work=tmp_path, on_progress=seen.append)
    straight = train(points)
    assert found.centroids.tobytes() == straight.centroids.tobytes()
    assert found.facts == straight.facts
    expected = [0, 1, 2, 3, 4] if number == 0 else [1, 2, 3, 4][number - 1 :]
    assert [one.number for one in seen] == expected


def test_interrupted_again_and_again(tmp_path: Path) -> None:
    points = normal(300)
    for number in (0, 1, 1, 2, 3, 3, 4):
        with pytest.raises(StoppedError):
            train(points, work=tmp_path, on_progress=stop_at(number))
    assert train(points, work=tmp_path).digest == train(points).digest


def test_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    one = train(normal(300), work=tmp_path)
    seen: list[Round] = []
    again = train(normal(300), work=tmp_path, on_progress=seen.append)
    assert again.digest == one.digest
    assert again.facts == one.facts
    assert seen == []


def test_the_features_are_read_once(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        train(normal(300), work=tmp_path, on_progress=stop_at(2))

    def never() -> Iterator[np.ndarray]:
        raise AssertionError("read again")
        yield

    assert train_codebook(never(), SMALL, work=tmp_path).digest == train(normal(300)).digest


@pytest.mark.parametrize("change", [{"words": 7}, {"seed": 1}])
def test_another_training_in_the_same_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    train(normal(300), work=tmp_path)
    with pytest.raises(StoreError, match="other settings or features; remove it to start again"):
        train(normal(300), work=tmp_path, **change)
    with pytest.raises(StoreError, match="other settings"):
        train(normal(300), CodebookConfig(words=8, rounds=5, points_per_word=20), work=tmp_path)


def test_features_of_another_folder(tmp_path: Path) -> None:
    class Stored(list[np.ndarray]):
        path = "features/a"

    train_codebook(Stored([normal(300)]), SMALL, work=tmp_path)
    with pytest.raises(StoreError, match="other settings or features"):
        train(normal(300), work=tmp_path)


def test_a_damaged_work_folder(tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        train(normal(300), work=tmp_path, on_progress=stop_at(3))
    points = (tmp_path / "points.f4").read_bytes()
    (tmp_path / "points.f4").write_bytes(points[:-4])
    with pytest.raises(StoreError, match="shorter than it was"):
        train(normal(300), work=tmp_path)
    (tmp_path / "points.f4").write_bytes(points)
    (tmp_path / "round2.npy").write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="damaged"):
        train(normal(300), work=tmp_path)


def test_one_training_at_a_time(tmp_path: Path) -> None:
    def another(_: Round) -> None:
        train(normal(300), work=tmp_path)

    with pytest.raises(StoreError):
        train(normal(300), work=tmp_path, on_progress=another)


# --- what cannot be trained -------------------------------------------------------------------------------------------


def test_too_few_features() -> None:
    with pytest.raises(ConfigError, match=r"8 words needs at least 8 features, and there are 7; .* at most 1$"):
        train(normal(7))
    with pytest.raises(ConfigError, match=r"100 words needs at least 100 features, and there are 64; .* at most 16$"):
        train(normal(64), words=100)
    with pytest.raises(ConfigError, match="there are 0"):
        train_codebook([], SMALL)


def test_features_of_two_networks() -> None:
    with pytest.raises(SuperfeatError, match="different networks"):
        train_codebook([features(normal(50), "a"), features(normal(50), "b")], SMALL)


def test_features_of_two_sizes() -> None:
    with pytest.raises(SuperfeatError, match="have 6 dimensions, and 5 are needed"):
        train_codebook([normal(50, 5), normal(50, 6)], SMALL)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_numbers(value: float) -> None:
    points = normal(50)
    points[17, 3] = value
    with pytest.raises(SuperfeatError, match="not finite"):
        train(points)
    with pytest.raises(SuperfeatError, match="not finite"):
        Codebook(normal(4)).assign(points)
    with pytest.raises(SuperfeatError, match="not finite"):
        Codebook(points)


def test_numbers_too_large_for_float32() -> None:
    with pytest.raises(SuperfeatError, match="not finite"):
        Codebook(normal(4)).assign(np.full((1, 5), 1e300))


@pytest.mark.parametrize("points", [np.zeros(5, np.float32), np.zeros((5, 5), np.int64), "text", [["a"]]])
def test_features_that_are_no_rows(points: Any) -> None:
    with pytest.raises(SuperfeatError, match="must be an array of numbers"):
        train_codebook([points], SMALL)


# --- assignment -------------------------------------------------------------------------------------------------------


def test_assignment() -> None:
    codebook = Codebook(normal(20, 5, 1))
    vectors = normal(30, 5, 2)
    found = codebook.assign(vectors, 3)
    np.testing.assert_array_equal(found, oracles.nearest_words(vectors, codebook.centroids, 3))
    np.testing.assert_array_equal(codebook.assign(vectors), found[:, :1])
    np.testing.assert_array_equal(codebook.assign(vectors.astype(np.float64), 3, workers=2), found)
    assert codebook.assign(vectors[:0], 3).shape == (0, 3)
    assert codebook.assign(vectors, 100).shape == (30, 20)


@pytest.mark.parametrize("count", [0, -1])
def test_features_go_to_one_word_or_more(count: int) -> None:
    with pytest.raises(SuperfeatError, match=f"not to {count}"):
        Codebook(normal(20, 5, 1)).assign(normal(30, 5, 2), count)


def test_assignment_of_other_features() -> None:
    with pytest.raises(SuperfeatError, match="have 6 dimensions, and 5 are needed"):
        Codebook(normal(20)).assign(normal(3, 6))


# --- on disk ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    Codebook(normal(20), "net", {"images": 7}).save(tmp_path / "codebook")
    return tmp_path / "codebook"


def change(folder: Path, **values: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= values
    (folder / "manifest.json").write_text(json.dumps({k: v for k, v in manifest.items() if v != "removed"}))


def test_saved_and_opened(saved: Path) -> None:
    opened = Codebook.open(saved)
    assert opened.centroids.tobytes() == normal(20).tobytes()
    assert (opened.network, opened.facts, opened.digest) == ("net", {"images": 7}, Codebook(normal(20)).digest)
    vectors = normal(10, 5, 1)
    np.testing.assert_array_equal(opened.assign(vectors, 3), Codebook(normal(20)).assign(vectors, 3))
    assert sorted(path.name for path in saved.iterdir()) == ["centroids.npy", "manifest.json"]


def test_an_existing_codebook_is_kept(saved: Path) -> None:
    with pytest.raises(StoreError, match="exists already"):
        Codebook(normal(3)).save(saved)
    assert Codebook.open(saved).words == 20
    Codebook(normal(3)).save(saved, overwrite=True)
    assert Codebook.open(saved).words == 3


def test_it_cannot_be_changed() -> None:
    mine = normal(4)
    codebook = Codebook(mine)
    with pytest.raises(ValueError, match="read-only"):
        codebook.centroids[0, 0] = 1
    mine[0, 0] = 9
    assert codebook.centroids[0, 0] != 9


def test_the_digest_is_of_shape_and_values() -> None:
    assert Codebook(normal(4, 6)).digest != Codebook(normal(4, 6).reshape(6, 4)).digest
    assert Codebook(normal(4)).digest != Codebook(np.nextafter(normal(4), np.float32(9))).digest
    assert Codebook(normal(4), "net").digest == Codebook(normal(4)).digest


def test_no_words() -> None:
    for shape in ((0, 5), (5, 0)):
        with pytest.raises(SuperfeatError, match="at least one word"):
            Codebook(np.zeros(shape, np.float32))


def test_damaged_centroids(saved: Path) -> None:
    file = saved / "centroids.npy"
    good = file.read_bytes()
    changed = bytearray(good)
    changed[-1] ^= 1
    for bad, message in ((bytes(changed), "not those that were written"), (good[:-4], "damaged"), (b"", "damaged")):
        file.write_bytes(bad)
        with pytest.raises(StoreError, match=message):
            Codebook.open(saved)
    file.unlink()
    with pytest.raises(StoreError, match="cannot read"):
        Codebook.open(saved)


def test_centroids_of_another_type_or_shape(saved: Path) -> None:
    np.save(saved / "centroids.npy", normal(20).astype(np.float64))
    with pytest.raises(StoreError, match="damaged"):
        Codebook.open(saved)
    np.save(saved / "centroids.npy", normal(20).reshape(10, 10))
    with pytest.raises(StoreError, match="not those that were written"):
        Codebook.open(saved)
    np.save(saved / "centroids.npy", np.asarray([{"a": 1}]), allow_pickle=True)
    with pytest.raises(StoreError, match="damaged"):
        Codebook.open(saved)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version(saved: Path, version: Any) -> None:
    change(saved, version=version)
    with pytest.raises(StoreError, match="format version"):
        Codebook.open(saved)


@pytest.mark.parametrize("key", ["words", "dim", "digest", "network", "facts"])
def test_a_manifest_without(saved: Path, key: str) -> None:
    change(saved, **{key: "removed"})
    with pytest.raises(StoreError, match=f"has no '{key}'"):
        Codebook.open(saved)


@pytest.mark.parametrize("values", [{"facts": 5}, {"facts": [1]}, {"network": 5}, {"digest": None}])
def test_a_manifest_of_other_kinds(saved: Path, values: dict[str, Any]) -> None:
    change(saved, **values)
    with pytest.raises(StoreError, match="damaged"):
        Codebook.open(saved)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "superfeat-index"}'])
def test_not_a_codebook(saved: Path, text: str) -> None:
    (saved / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"is not a codebook|damaged"):
        Codebook.open(saved)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a codebook; make one with"):
        Codebook.open(tmp_path / "missing")


def test_a_file_that_is_no_pickle(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello")
    with pytest.raises(UnpickleError, match="damaged, or not of this kind"):
        Codebook.open(tmp_path / "file")
