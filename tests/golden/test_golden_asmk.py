"""ASMK against the released implementation: assignment, aggregation, bits, and every kind of search."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from superfeat.config import IndexConfig, SearchConfig
from superfeat.features import ImageWords, Ranking
from superfeat.index.asmk_import import read_inverted_file
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.kernel import aggregate, binarise, hamming, normalise_residuals

IMAGES, QUERIES = 60, 12
SCORE_TOLERANCE = 1e-6
TIE = 1e-9  # the reference orders equal scores as it likes
REAL_TOLERANCE = 1e-6  # of a unit residual
PACKED = (1, 31, 32, 33, 100, 128)
VARIANTS = {
    "bin": ("binary", SearchConfig()),
    "bin_ma1": ("binary", SearchConfig(assignments=1)),
    "bin_idf": ("binary", SearchConfig(idf=True)),
    "bin_thr": ("binary", SearchConfig(threshold=0.25, alpha=2)),
    "bin_top10": ("binary", SearchConfig()),
    "nobin": ("real", SearchConfig()),
    "nobin_idf": ("real", SearchConfig(idf=True)),
    "nobin_thr": ("real", SearchConfig(threshold=0.3, alpha=1)),
    "nobin_neg": ("real", SearchConfig(threshold=-1, alpha=1)),
}


class Arrays(dict[str, np.ndarray]):
    """Remembers which of them were looked at."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__(arrays)
        self.used: set[str] = set()

    def __getitem__(self, key: str) -> np.ndarray:
        self.used.add(key)
        return super().__getitem__(key)


@pytest.fixture(scope="module")
def arrays(golden: Path) -> Arrays:
    with np.load(golden / "asmk.npz") as file:
        return Arrays(dict(file))


@pytest.fixture(scope="module")
def codebook(arrays: Arrays) -> Codebook:
    return Codebook(arrays["codebook_centroids"])


def images_of(arrays: Arrays, which: str = "db") -> list[np.ndarray]:
    ids = arrays[f"{which}_imids"]
    return [arrays[f"{which}_vecs"][ids == image] for image in np.unique(ids)]


@pytest.fixture(scope="module")
def indexes(arrays: Arrays, codebook: Codebook, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Index]:
    folder = tmp_path_factory.mktemp("asmk")
    made = {
        "binary": Index.create(folder / "binary", codebook, IndexConfig("binary")),
        "real": Index.create(folder / "real", codebook, IndexConfig("real")),
    }
    for index in made.values():
        named = ((str(number), vectors, None) for number, vectors in enumerate(images_of(arrays)))
        assert [added.id for added in index.add_many(named, batch=IMAGES)] == list(range(IMAGES))
    return made


# --- assignment, aggregation, bits ------------------------------------------------------------------------------------


def test_words(arrays: Arrays, codebook: Codebook) -> None:
    np.testing.assert_array_equal(codebook.assign(arrays["db_vecs"], 1), arrays["db_words_ma1"])
    np.testing.assert_array_equal(codebook.assign(arrays["q_vecs"], 5), arrays["q_words_ma5"])


@pytest.mark.parametrize("kind", ["bin", "nobin"])
def test_aggregated_images(arrays: Arrays, codebook: Codebook, kind: str) -> None:
    words, images, codes = [], [], []
    for number, vectors in enumerate(images_of(arrays)):
        mine, sums = aggregate(vectors, codebook.assign(vectors, 1), codebook.centroids)
        words.append(mine)
        images.append(np.full(len(mine), number))
        codes.append(code(sums, kind))
    np.testing.assert_array_equal(np.concatenate(words), arrays[f"{kind}_agg_words"])
    np.testing.assert_array_equal(np.concatenate(images), arrays[f"{kind}_agg_imids"])
    assert_codes(np.concatenate(codes), arrays[f"{kind}_agg_des"])


@pytest.mark.parametrize("kind", ["bin", "nobin"])
def test_aggregated_query(arrays: Arrays, codebook: Codebook, kind: str) -> None:
    vectors = images_of(arrays, "q")[0]
    words, sums = aggregate(vectors, codebook.assign(vectors, 5), codebook.centroids)
    np.testing.assert_array_equal(words, arrays[f"{kind}_q0_agg_words"])
    assert_codes(code(sums, kind), arrays[f"{kind}_q0_agg_des"])


def code(sums: np.ndarray, kind: str) -> np.ndarray:
    return binarise(sums) if kind == "bin" else normalise_residuals(sums)


def assert_codes(ours: np.ndarray, theirs: np.ndarray) -> None:
    if theirs.dtype == np.uint32:
        padded = ours.view(">u4")
        np.testing.assert_array_equal(padded[:, : theirs.shape[1]], theirs)
        assert not padded[:, theirs.shape[1] :].any()
    else:
        step = ours.shape[1] // theirs.shape[1]  # of all images' codes the fixture keeps one dimension in so many
        np.testing.assert_allclose(ours[:, ::step], theirs, rtol=0, atol=REAL_TOLERANCE)


@pytest.mark.parametrize("dim", PACKED)
def test_bits_and_distances(arrays: Arrays, dim: int) -> None:
    codes = binarise(arrays[f"pack{dim}_in"])
    assert_codes(codes, arrays[f"pack{dim}_out"])
    padded = -(-dim // 32) * 32
    np.testing.assert_allclose(hamming(codes, codes) / padded, arrays[f"pack{dim}_hamming"], rtol=0, atol=1e-7)


# --- the index --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["binary", "real"])
def test_lists_and_norms(arrays: Arrays, indexes: dict[str, Index], kernel: str) -> None:
    (segment,) = indexes[kernel]._contents.snapshot().segments
    np.testing.assert_array_equal(np.diff(segment.postings.starts.astype(np.int64)), arrays["ivf_counts"])
    np.testing.assert_array_equal(segment.sizes, arrays["ivf_norm_factor"])
    np.testing.assert_allclose(segment.norms, np.sqrt(arrays["ivf_norm_factor"]), rtol=1e-15)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rankings(arrays: Arrays, indexes: dict[str, Index], variant: str) -> None:
    kernel, config = VARIANTS[variant]
    ranks, scores = arrays[f"{variant}_ranks"], arrays[f"{variant}_scores"]
    all_ranks, all_scores = (arrays[f"{variant.removesuffix('_top10')}_{what}"] for what in ("ranks", "scores"))
    np.testing.assert_array_equal(arrays[f"{variant}_qids"], np.arange(QUERIES))
    for number, vectors in enumerate(images_of(arrays, "q")):
        found = indexes[kernel].search(vectors, ranks.shape[1], config=config)
        by_id = dict(zip(all_ranks[number].tolist(), all_scores[number].tolist(), strict=True))
        assert_ranking(found, found.ids.tolist(), ranks[number], scores[number], by_id)


def test_distractors(arrays: Arrays, codebook: Codebook, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", codebook)
    theirs = {}

    def named() -> Iterator[tuple[str, np.ndarray, None]]:
        for first in (-IMAGES, 0):
            for number, vectors in enumerate(images_of(arrays), first):
                theirs[f"image {number}"] = number
                yield f"image {number}", vectors, None

    assert len(list(index.add_many(named(), batch=2 * IMAGES))) == 2 * IMAGES
    for number, vectors in enumerate(images_of(arrays, "q")):
        ranks, scores = arrays["distractors_ranks"][number], arrays["distractors_scores"][number]
        found = index.search(vectors, None)
        ids = [theirs[name] for name in found.names]
        assert_ranking(found, ids, ranks, scores, dict(zip(ranks.tolist(), scores.tolist(), strict=True)))


def assert_ranking(
    found: Ranking, ids: list[int], ranks: np.ndarray, scores: np.ndarray, by_id: dict[int, float]
) -> None:
    assert len(set(ids)) == len(ranks)
    np.testing.assert_allclose(found.scores, scores, rtol=0, atol=SCORE_TOLERANCE)
    np.testing.assert_allclose(found.scores, [by_id[image] for image in ids], rtol=0, atol=SCORE_TOLERANCE)
    for place in np.flatnonzero(np.asarray(ids) != ranks):
        assert abs(by_id[ids[place]] - scores[place]) <= TIE, (place, ids[place], ranks[place])


def test_a_query_finds_its_own_images(arrays: Arrays, indexes: dict[str, Index]) -> None:
    for number, vectors in enumerate(images_of(arrays, "q")):
        found = indexes["binary"].search(vectors, 5)
        assert sorted(found.names, key=int) == [str(5 * number + other) for other in range(5)]


# --- the reference's own files ----------------------------------------------------------------------------------------


def test_its_pickled_codebook(arrays: Arrays, codebook: Codebook, golden: Path) -> None:
    opened = Codebook.open(golden / "asmk_codebook.pkl")
    np.testing.assert_array_equal(opened.centroids, arrays["codebook_centroids"])
    assert opened.digest == codebook.digest
    assert opened.network is None


def test_its_pickled_inverted_file(arrays: Arrays, codebook: Codebook, golden: Path, tmp_path: Path) -> None:
    imported = Index.create(tmp_path / "imported", codebook)
    images = list(read_inverted_file(golden / "asmk_ivf_5images.pkl", codebook.dim))
    assert [image.id for image in images] == list(range(5))
    named = [(str(image.id), ImageWords(image.words, image.codes, codebook.digest), None) for image in images]
    assert [added.outcome for added in imported.add_many(named)] == ["new"] * 5
    added = Index.create(tmp_path / "added", codebook)
    for number, vectors in enumerate(images_of(arrays)[:5]):
        added.add(str(number), vectors)
        ours, theirs = added.words_of(str(number)), imported.words_of(str(number))
        np.testing.assert_array_equal(ours.words, theirs.words)
        np.testing.assert_array_equal(ours.codes, theirs.codes)
        assert imported.add(str(number), vectors).outcome == "same"
    for vectors in images_of(arrays, "q"):
        assert list(added.search(vectors)) == list(imported.search(vectors))


# --- the sample it was trained on, and whether anything was forgotten -------------------------------------------------


def test_its_codebook_fits_its_training_features(arrays: Arrays, codebook: Codebook) -> None:
    """Each of their centroids is close to the mean of the training features that we assign to it."""
    vectors = arrays["train_vecs"]
    words = codebook.assign(vectors)[:, 0]
    own = np.square(vectors - codebook.centroids[words], dtype=np.float64).sum(axis=1)
    others = np.square(vectors - codebook.centroids[(words + 1) % codebook.words], dtype=np.float64).sum(axis=1)
    assert (own <= others).all()
    assert own.mean() < 0.7 * np.square(vectors - vectors.mean(axis=0), dtype=np.float64).sum(axis=1).mean()


def test_every_array_is_compared(arrays: Arrays, request: pytest.FixtureRequest) -> None:
    """The last test of the file: says nothing when some of the others were not asked for."""
    here = {item.name for item in request.session.items if item.path == request.path}
    everything = [name for name in globals() if name.startswith("test_")]
    if not all(any(item.split("[")[0] == name for item in here) for name in everything):
        pytest.skip("not all tests of this file were run")
    assert sorted(set(arrays) - arrays.used) == []
