"""Pairs of the photos of an index: equal to brute force, going on after a stop, connected, by sequence."""

import datetime
import itertools
from pathlib import Path

import numpy as np
import pytest

from fixtures_found import small_engine
from oracles_mapping import best_pairs, pair_score, parts_of
from superfeat.engine import Engine, Named
from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import ImageWords
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.mapping.pair_files import read_pairs_file
from superfeat.mapping.pairs import PairChoice, pairs_of_index
from superfeat.mapping.query_pairs import pairs_of_queries
from superfeat.mapping.rows import Forest, PairTable, connecting, unique_pairs
from superfeat.mapping.sequence import by_names, by_times, natural_key
from superfeat.weights import Network

DIM, WORDS, PER_PHOTO = 128, 400, 12
CODEBOOK = Codebook(np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
Numbers = tuple[int, int]


def drawn(number: int, low: int = 0, high: int = WORDS) -> ImageWords:
    """Words and codes at random; photos of one group of ten share half of their codes."""
    random, group = np.random.default_rng((1, number)), np.random.default_rng((2, number // 10))
    words = np.union1d(
        group.choice(np.arange(low, high), PER_PHOTO // 2, replace=False), random.choice(np.arange(low, high), 6)
    )
    codes = np.random.default_rng((3, number // 10)).integers(0, 256, (WORDS, DIM // 8), np.uint8)[words]
    flips = random.random((len(words), DIM)) < 0.2
    return ImageWords(words.astype(np.int32), codes ^ np.packbits(flips, axis=1), CODEBOOK.digest)


def make(path: Path, photos: list[ImageWords], name: str = "{}.jpg") -> Engine:
    index = Index.create(path, CODEBOOK)
    named = ((name.format(number), words, None) for number, words in enumerate(photos))
    assert len(list(index.add_many(named, batch=100))) == len(photos)
    return Engine.open(path)


@pytest.fixture(scope="module")
def photos() -> list[ImageWords]:
    return [drawn(number) for number in range(500)]


@pytest.fixture(scope="module")
def engine(photos: list[ImageWords], tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return make(tmp_path_factory.mktemp("pairs") / "index", photos)


@pytest.fixture(scope="module")
def scores(photos: list[ImageWords]) -> np.ndarray:
    found = np.zeros((len(photos), len(photos)))
    for one, other in itertools.combinations(range(len(photos)), 2):
        if len(np.intersect1d(photos[one].words, photos[other].words)):
            found[one, other] = found[other, one] = pair_score(photos[one], photos[other], DIM)
    return found


def numbers(path: Path) -> list[Numbers]:
    return [(int(Path(one).stem), int(Path(other).stem)) for one, other in read_pairs_file(path)]


@pytest.mark.parametrize("top", [1, 7, 50])
def test_equal_to_brute_force_on_500(engine: Engine, scores: np.ndarray, tmp_path: Path, top: int) -> None:
    written = pairs_of_index(engine, tmp_path / "pairs.csv", "csv", PairChoice(top=top)).result()
    wanted = best_pairs(scores, top)
    found = numbers(tmp_path / "pairs.csv")
    assert len(found) == len(set(found)) == written.pairs
    assert set(found) == set(wanted)
    rows = [line.split(",") for line in (tmp_path / "pairs.csv").read_text().splitlines()[1:]]
    for pair, row in zip(found, rows, strict=True):
        assert float(row[2]) == pytest.approx(wanted[pair], rel=1e-5)
    assert written.parts == parts_of(500, found)
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_stopped_run_goes_on_to_the_same_file(engine: Engine, tmp_path: Path) -> None:
    pairs_of_index(engine, tmp_path / "whole.txt").result()
    steps = iter(pairs_of_index(engine, tmp_path / "pairs.txt", workers=1))
    for step in steps:
        if step.done == 300:
            break
    steps.close()  # type: ignore[attr-defined]
    unfinished = tmp_path / "pairs.txt.unfinished"
    unfinished.write_bytes(unfinished.read_bytes()[:-5])  # killed in the middle of a block
    assert not (tmp_path / "pairs.txt").exists()
    again = pairs_of_index(engine, tmp_path / "pairs.txt")
    assert 0 < next(iter(again)).done < 300
    again.result()
    assert (tmp_path / "pairs.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()


def test_what_another_run_left_is_not_taken(engine: Engine, tmp_path: Path) -> None:
    next(iter(pairs_of_index(engine, tmp_path / "pairs.txt", "hloc", PairChoice(top=5))))
    with pytest.raises(StoreError, match="remove it to start again"):
        pairs_of_index(engine, tmp_path / "pairs.txt", "hloc", PairChoice(top=6)).result()


def test_least_matches(engine: Engine, photos: list[ImageWords], tmp_path: Path) -> None:
    pairs_of_index(engine, tmp_path / "pairs.csv", "csv", PairChoice(top=20, min_matches=5)).result()
    found = numbers(tmp_path / "pairs.csv")
    rows = [line.split(",") for line in (tmp_path / "pairs.csv").read_text().splitlines()[1:]]
    for (one, other), row in list(zip(found, rows, strict=True))[::40]:
        agreeing = 0
        for word in np.intersect1d(photos[one].words, photos[other].words):
            codes = [photos[n].codes[photos[n].words == word][0] for n in (one, other)]
            agreeing += int(np.unpackbits(codes[0] ^ codes[1]).sum()) < DIM // 2
        assert int(row[4]) == agreeing >= 5


def test_least_probability_needs_a_calibration(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="no calibration"):
        pairs_of_index(engine, tmp_path / "pairs.txt", "hloc", PairChoice(min_probability=0.5)).result()


def test_two_worlds_hang_together_only_where_something_is_shared(tmp_path: Path) -> None:
    """Two sets of photos without a word in common: no pair can join them, and that is said."""
    apart = [drawn(number, 0, 200) for number in range(20)] + [drawn(20 + number, 200) for number in range(20)]
    engine = make(tmp_path / "apart", apart)
    written = pairs_of_index(engine, tmp_path / "a.txt", "hloc", PairChoice(top=3, connected=True)).result()
    assert written.parts == 2
    bridge = ImageWords(
        np.concatenate([apart[0].words[:5], apart[20].words[:5]]),
        np.concatenate([apart[0].codes[:5], apart[20].codes[:5]]),
        CODEBOOK.digest,
    )
    engine = make(tmp_path / "bridged", [*apart, bridge])
    written = pairs_of_index(engine, tmp_path / "b.txt", "hloc", PairChoice(top=1, connected=True)).result()
    assert (written.parts, written.alone) == (1, [])
    assert parts_of(41, numbers(tmp_path / "b.txt")) == 1


def test_connected_adds_as_little_as_possible(engine: Engine, scores: np.ndarray, tmp_path: Path) -> None:
    choice = PairChoice(top=4, min_matches=6)
    loose = pairs_of_index(engine, tmp_path / "loose.txt", "hloc", choice).result()
    joined = pairs_of_index(engine, tmp_path / "joined.txt", "hloc", PairChoice(4, 0.0, 6, connected=True)).result()
    assert loose.parts is not None
    assert loose.parts > 1
    assert joined.parts == 1
    assert joined.pairs == loose.pairs + loose.parts - 1
    assert set(numbers(tmp_path / "loose.txt")) < set(numbers(tmp_path / "joined.txt"))


def test_a_maximum_spanning_forest() -> None:
    """Against every choice of three of the pairs that joins four photos."""
    pairs = [(0, 1, 0.9), (0, 2, 0.2), (1, 2, 0.5), (2, 3, 0.1), (1, 3, 0.4)]
    first, second, score = (np.asarray(column) for column in zip(*pairs, strict=True))
    table = PairTable(first, second, score.astype(float), np.full(5, np.nan))
    chosen = connecting(np.zeros(5, np.bool_), table, Forest(4))
    best = max(
        (three for three in itertools.combinations(range(5), 3) if parts_of(4, [pairs[n][:2] for n in three]) == 1),
        key=lambda three: sum(pairs[n][2] for n in three),
    )
    assert np.flatnonzero(chosen).tolist() == list(best)


def test_each_pair_once_with_the_higher_probability() -> None:
    table = PairTable(np.array([0, 1, 2]), np.array([1, 0, 1]), np.array([0.5, 0.5, 0.2]), np.array([0.3, 0.6, np.nan]))
    found = unique_pairs(table)
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [(0, 1), (1, 2)]
    assert found.probability[0] == 0.6


def test_photos_that_follow_each_other(engine: Engine, tmp_path: Path) -> None:
    choice = PairChoice(top=1, min_matches=PER_PHOTO, sequence="names", reach=2)
    pairs_of_index(engine, tmp_path / "pairs.txt", "hloc", choice).result()
    wanted = {(number, number + step) for number in range(500) for step in (1, 2) if number + step < 500}
    assert wanted <= set(numbers(tmp_path / "pairs.txt"))


def test_names_in_the_order_of_their_numbers() -> None:
    names = ["a/f10.jpg", "a/f9.jpg", "b/f11.jpg", "a/f11.jpg"]
    assert sorted(names[:2], key=natural_key) == ["a/f9.jpg", "a/f10.jpg"]
    assert sorted(by_names(names, 1)) == [(0, 3), (1, 0)]


def test_times() -> None:
    start = datetime.datetime(2024, 5, 1)
    times = [start + datetime.timedelta(seconds=seconds) for seconds in (100, 0, 50, 500)]
    assert sorted(by_times([*times, None], 2)) == [(1, 2), (2, 0)]


def test_a_scene_of_one_photo(tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="has 1 photos; pairs need two"):
        pairs_of_index(make(tmp_path / "index", [drawn(0)]), tmp_path / "pairs.txt").result()


@pytest.mark.parametrize("wrong", [{"top": 0}, {"reach": 0}, {"min_matches": -1}, {"min_probability": 1.5}])
def test_choices_that_are_none(wrong: dict[str, int]) -> None:
    with pytest.raises(SuperfeatError, match="must be 1 or more"):
        PairChoice(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("of_queries", [False, True])
def test_the_verified_share_is_that_of_a_search(tmp_path: Path, tiny_network: Network, of_queries: bool) -> None:
    engine, output = small_engine(tmp_path, tiny_network), tmp_path / "pairs.csv"
    if of_queries:
        names = ["a.png", "b.png", "c.png"]
        photos = [Photo(tmp_path / "photos" / name, name) for name in names]
        pairs_of_queries(engine, photos, output, "csv").result()
        found = {name: engine.search(photo.path, top=50) for name, photo in zip(names, photos, strict=True)}
    else:
        pairs_of_index(engine, output, "csv").result()
        found = {name: engine.search(Named(name), top=50) for name in engine.index.names()}
    shares = {(name, hit.name): hit.verified for name, hits in found.items() for hit in hits}
    rows = [line.split(",") for line in output.read_text().splitlines()[1:]]
    assert rows
    for first, second, *_, verified in rows:
        assert float(verified) == pytest.approx(shares[first, second], rel=1e-5)
