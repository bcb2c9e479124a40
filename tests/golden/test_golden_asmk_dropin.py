"""The drop-in for `asmk`, called as its users call it, against the numbers and the files of the reference."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superfeat.asmk
from superfeat.asmk import ASMKMethod, hamming, io_helpers
from superfeat.asmk.codebook import Codebook
from superfeat.asmk.inverted_file import IVF

Arrays = dict[str, np.ndarray]
TOLERANCE = 1e-6
TIE = 1e-9  # the reference orders equal scores as it likes
VARIANTS: dict[str, dict[str, Any]] = {
    "bin": {},
    "bin_ma1": {"assignments": 1},
    "bin_idf": {"idf": True},
    "bin_thr": {"threshold": 0.25, "alpha": 2.0},
    "bin_top10": {"topk": 10},
    "nobin": {"binary": False},
    "nobin_idf": {"binary": False, "idf": True},
    "nobin_thr": {"binary": False, "threshold": 0.3, "alpha": 1.0},
    "nobin_neg": {"binary": False, "threshold": -1.0, "alpha": 1.0},
}


def params(
    *,
    binary: bool = True,
    idf: bool = False,
    assignments: int = 5,
    topk: int | None = None,
    threshold: float = 0.0,
    alpha: float = 3.0,
) -> dict[str, Any]:
    """As MASt3R-SfM and HOW write them."""
    return {
        "index": {"gpu_id": 0},
        "train_codebook": {"codebook": {"size": 256}},
        "build_ivf": {
            "kernel": {"binary": binary},
            "ivf": {"use_idf": idf},
            "quantize": {"multiple_assignment": 1},
            "aggregate": {},
        },
        "query_ivf": {
            "quantize": {"multiple_assignment": assignments},
            "aggregate": {},
            "search": {"topk": topk},
            "similarity": {"similarity_threshold": threshold, "alpha": alpha},
        },
    }


@pytest.fixture(scope="module")
def arrays(golden: Path) -> Arrays:
    with np.load(golden / "asmk.npz") as file:
        return dict(file)


@pytest.fixture
def as_asmk() -> Iterator[None]:
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "asmk"}
    superfeat.asmk.install()
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "asmk"]:
        del sys.modules[name]
    sys.modules.update(before)


def trained(golden: Path, **options: Any) -> ASMKMethod:
    method = ASMKMethod.initialize_untrained(params(**options))
    return method.train_codebook(None, cache_path=str(golden / "asmk_codebook.pkl"))


def assert_same(ranks: np.ndarray, scores: np.ndarray, wanted: np.ndarray, wanted_scores: np.ndarray) -> None:
    np.testing.assert_allclose(scores, wanted_scores, rtol=0, atol=TOLERANCE)
    for query, place in zip(*np.nonzero(ranks != wanted), strict=True):
        theirs = wanted_scores[query][wanted[query] == ranks[query, place]]  # none: it is not among their best
        lowest = theirs[0] if len(theirs) else wanted_scores[query, -1]
        assert abs(lowest - wanted_scores[query, place]) <= TIE, (query, place)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_search_of_the_reference(arrays: Arrays, golden: Path, variant: str) -> None:
    method = trained(golden, **VARIANTS[variant]).build_ivf(arrays["db_vecs"], arrays["db_imids"])
    facts, ids, ranks, scores = method.query_ivf(arrays["q_vecs"], arrays["q_imids"])
    assert facts["query_avg_time"] > 0
    np.testing.assert_array_equal(ids, arrays[f"{variant}_qids"])
    assert ranks.dtype == np.int64
    assert scores.dtype == np.float64
    assert_same(ranks, scores, arrays[f"{variant}_ranks"], arrays[f"{variant}_scores"])


@pytest.mark.parametrize("binary", [True, False])
def test_aggregation(arrays: Arrays, golden: Path, binary: bool) -> None:
    method = trained(golden, binary=binary)
    assert method.codebook is not None
    kind = "bin" if binary else "nobin"
    kernel = method.create_ivf_builder().kernel
    quantized = method.codebook.quantize(arrays["db_vecs"], arrays["db_imids"], multiple_assignment=1)
    codes, words, images = kernel.aggregate(*quantized)
    np.testing.assert_array_equal(words, arrays[f"{kind}_agg_words"])
    np.testing.assert_array_equal(images, arrays[f"{kind}_agg_imids"])
    step = codes.shape[1] // arrays[f"{kind}_agg_des"].shape[1]  # the fixture keeps some dimensions of the real codes
    np.testing.assert_allclose(codes[:, ::step], arrays[f"{kind}_agg_des"], rtol=0, atol=TOLERANCE)


def test_distractors(arrays: Arrays, golden: Path, tmp_path: Path) -> None:
    method = trained(golden)
    method.build_ivf(arrays["db_vecs"], arrays["db_imids"], cache_path=tmp_path / "distractors.pkl")
    both = method.build_ivf(arrays["db_vecs"], arrays["db_imids"], distractors_path=tmp_path / "distractors.pkl")
    assert both.inverted_file is not None
    assert both.inverted_file.n_images == 120
    found = both.query_ivf(arrays["q_vecs"], arrays["q_imids"])
    np.testing.assert_array_equal(np.sort(found[2], axis=1), np.sort(arrays["distractors_ranks"], axis=1))
    assert_same(found[2], found[3], arrays["distractors_ranks"], arrays["distractors_scores"])
    again = IVF.initialize_from_state(both.inverted_file.state_dict())
    assert (again.n_images, again.imid_offset) == (120, 60)


@pytest.mark.parametrize("dim", [1, 31, 32, 33, 100, 128])
def test_bits(arrays: Arrays, dim: int) -> None:
    packed = hamming.binarize_and_pack_2D(arrays[f"pack{dim}_in"])
    assert packed.dtype == np.uint32
    np.testing.assert_array_equal(packed, arrays[f"pack{dim}_out"])
    np.testing.assert_allclose(hamming.hamming_cdist_packed(packed, packed), arrays[f"pack{dim}_hamming"], atol=1e-7)
    np.testing.assert_array_equal(hamming.binarize_and_pack(arrays[f"pack{dim}_in"][0]), packed[0])


def test_its_files_are_read_and_written_again(arrays: Arrays, golden: Path, tmp_path: Path) -> None:
    theirs = io_helpers.load_pickle(golden / "asmk_ivf_5images.pkl")
    ours = IVF.initialize_from_state(theirs).state_dict()
    assert (ours["type"], ours["params"]) == (theirs["type"], theirs["params"])
    assert set(ours["state"]) == set(theirs["state"])
    for name in ("norm_factor", "counts", "idf"):
        np.testing.assert_array_equal(ours["state"][name], theirs["state"][name])
        assert ours["state"][name].dtype == theirs["state"][name].dtype
    for word, count in enumerate(theirs["state"]["counts"].tolist()):
        for name in ("ivf_vecs", "ivf_image_ids"):
            mine, other = ours["state"][name][word], theirs["state"][name][word]
            assert (mine is None) == (other is None)
            if count:
                np.testing.assert_array_equal(mine, other[:count])
    book = Codebook.initialize_from_state(io_helpers.load_pickle(golden / "asmk_codebook.pkl"))
    io_helpers.save_pickle(tmp_path / "again.pkl", book.state_dict())
    again = io_helpers.load_pickle(tmp_path / "again.pkl")
    assert again["params"] == {"size": 256}
    np.testing.assert_array_equal(again["state"]["centroids"], arrays["codebook_centroids"])


@pytest.mark.parametrize("name", ["ivf.pkl", "ivf"])
@pytest.mark.parametrize("binary", [True, False])
def test_both_kinds_of_files(arrays: Arrays, golden: Path, tmp_path: Path, name: str, binary: bool) -> None:
    method = trained(golden, binary=binary)
    built = method.build_ivf(arrays["db_vecs"], arrays["db_imids"], cache_path=tmp_path / name)
    loaded = method.build_ivf(None, None, cache_path=tmp_path / name)
    assert (tmp_path / name).is_dir() == (name == "ivf")
    assert "load_time" in loaded.metadata["build_ivf"]
    assert loaded.metadata["build_ivf"]["ivf_stats"] == built.metadata["build_ivf"]["ivf_stats"]
    for one, other in zip(
        built.query_ivf(arrays["q_vecs"], arrays["q_imids"])[1:],
        loaded.query_ivf(arrays["q_vecs"], arrays["q_imids"])[1:],
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_one_line_makes_it_asmk(as_asmk: None, arrays: Arrays, golden: Path) -> None:
    """What MASt3R-SfM does, with the imports that it has."""
    from asmk import asmk_method  # type: ignore[import-not-found]
    from asmk.kernel import ASMKKernel  # type: ignore[import-not-found]

    method = asmk_method.ASMKMethod.initialize_untrained(params())
    method = method.train_codebook(None, cache_path=str(golden / "asmk_codebook.pkl"))
    dataset = method.build_ivf(arrays["db_vecs"], arrays["db_imids"])
    assert isinstance(dataset.kernel, ASMKKernel)
    _, _, ranks, ranked = dataset.query_ivf(arrays["db_vecs"], arrays["db_imids"])
    scores = np.empty_like(ranked)
    scores[np.arange(len(ranked))[:, None], ranks] = ranked
    assert (scores.argmax(axis=1) == np.arange(60)).all()
