"""The calls that users of `asmk` make, step by step, and what is said when one is wrong."""

import logging
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.asmk import ASMKMethod, io_helpers
from superfeat.asmk.asmk_method import IvfBuilder
from superfeat.asmk.codebook import Codebook, size_of
from superfeat.asmk.inverted_file import IVF
from superfeat.asmk.kernel import ASMKKernel
from superfeat.errors import ConfigError, StoreError, SuperfeatError, UnpickleError

DIM, WORDS, IMAGES = 40, 16, 12


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "train_codebook": {"codebook": {"size": WORDS}},
        "build_ivf": {
            "kernel": {"binary": changes.get("binary", True)},
            "ivf": {"use_idf": changes.get("idf", False)},
            "quantize": {"multiple_assignment": 1},
            "aggregate": {},
        },
        "query_ivf": {
            "quantize": {"multiple_assignment": 3},
            "aggregate": {},
            "search": {"topk": changes.get("topk")},
            "similarity": {"similarity_threshold": 0.0, "alpha": 3.0},
        },
    }


def features(images: int = IMAGES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    ids = np.repeat(np.arange(images), random.integers(5, 30, images))
    return random.standard_normal((len(ids), DIM)).astype(np.float32), ids


def trained(**changes: Any) -> ASMKMethod:
    return ASMKMethod.initialize_untrained(settings(**changes)).train_codebook(features(40, seed=1)[0])


def compare(kernel: ASMKKernel) -> Any:
    return lambda *given: kernel.similarity(*given, alpha=3.0, similarity_threshold=0.0)


def test_what_a_step_says_of_itself() -> None:
    method = trained()
    assert set(method.metadata["train_codebook"]) == {"index_class", "cluster_time", "train_time", "index_time"}
    dataset = method.build_ivf(*features(), progress=5)
    assert dataset.metadata["build_ivf"]["ivf_stats"]["images"] == IMAGES
    assert method.inverted_file is None  # a step changes nothing of what it came from


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("idf", [True, False])
def test_images_one_at_a_time_as_in_slam(binary: bool, idf: bool) -> None:
    """Added one by one with queries between them, in any order: the same as all at once."""
    method, (vectors, ids) = trained(binary=binary, idf=idf), features(50)
    whole = method.build_ivf(vectors, ids).query_ivf(vectors, ids)
    for order in (range(50), np.random.default_rng(3).permutation(50).tolist()):
        builder = method.create_ivf_builder()
        for image in order:
            builder.add(vectors[ids == image], ids[ids == image])
            method.add_ivf_builder(builder).query_ivf(vectors[:5], ids[:5])
        found = method.add_ivf_builder(builder).query_ivf(vectors, ids)
        np.testing.assert_array_equal(found[2], whole[2])
        np.testing.assert_allclose(found[3], whole[3], rtol=1e-12)
        assert builder.ivf._lists is not None
        assert len(builder.ivf._lists.segments) < 10


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("idf", [True, False])
def test_a_function_of_the_callers_own(binary: bool, idf: bool) -> None:
    """Called word by word with codes and images; with our formula inside it gives our scores."""
    dataset = trained(binary=binary, idf=idf).build_ivf(*features())
    kernel, lists, book = dataset.kernel, dataset.inverted_file, dataset.codebook
    assert kernel is not None
    assert lists is not None
    assert book is not None
    codes, words = kernel.aggregate_image(*book.quantize(features()[0][:20], multiple_assignment=3))
    asked = []

    def own(code: np.ndarray, others: np.ndarray, images: np.ndarray) -> Any:
        asked.append(len(others))
        return kernel.similarity(np.array(code, subok=False), others, images, alpha=3.0, similarity_threshold=0.0)

    ours = lists.search(codes, words, similarity_func=compare(kernel))
    theirs = lists.search(codes, words, similarity_func=own, topk=None)
    assert len(asked) > 1
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-6)


def test_parts_put_together_by_hand() -> None:
    """As a test of MASt3R-SLAM does: one word, real codes, two images."""
    book = Codebook(None, size=1)
    book.centroids = np.zeros((1, 2), np.float32)
    kernel = ASMKKernel(book, binary=False)
    builder = IvfBuilder({"ivf": {"use_idf": False}}, book, kernel, cache_path=None)
    builder.ivf.add(np.eye(2, dtype=np.float32), np.zeros(2, np.int64), np.arange(2))
    codes, words = kernel.aggregate_image(np.array([[1.0, 0.0]], np.float32), np.array([[0]]))
    ranks, scores = builder.ivf.search(codes, words, similarity_func=compare(kernel), topk=2)
    assert ranks.tolist() == [0, 1]
    assert ranks.dtype == np.int64
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, [1.0, 0.0], atol=1e-5)


def test_the_gpu_that_mast3r_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports faiss, and without a GPU there derives a class from asmk's and puts it in place of another."""
    import superfeat.asmk

    for name in ("faiss", "asmk", *("asmk." + one.__name__.rsplit(".", 1)[1] for one in superfeat.asmk.MODULES)):
        monkeypatch.setitem(sys.modules, name, sys)  # put back afterwards
        del sys.modules[name]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    superfeat.asmk.install()
    assert "faiss" not in sys.modules
    superfeat.asmk.install(faiss=True)
    import faiss

    with pytest.raises(AttributeError):
        faiss.StandardGpuResources()
    index = sys.modules["asmk.index"]

    class OnTheCpu(index.FaissL2Index):  # type: ignore[name-defined, misc]
        def __init__(self, gpu_id: int) -> None:
            super().__init__()
            self.gpu_id = gpu_id

    monkeypatch.setattr(index, "FaissGpuL2Index", OnTheCpu)
    method = ASMKMethod.initialize_untrained({"index": {"gpu_id": 0}, **settings()}).train_codebook(features(40)[0])
    assert method.metadata["train_codebook"]["index_class"] == "OnTheCpu"
    assert method.build_ivf(*features()).query_ivf(*features())[2].shape == (IMAGES, IMAGES)


def test_a_codebook_that_came_in_a_checkpoint() -> None:
    """As PanSt3R does: the state of a codebook, a factory from all settings, and a method around both."""
    from superfeat.asmk.index import initialize_index

    state = Codebook(None, size=WORDS)
    state.centroids = features(40)[0][:WORDS]
    book = Codebook.initialize_from_state(state.state_dict(), index_factory=initialize_index({"gpu_id": 0}))
    book.index()
    dataset = ASMKMethod(settings(), {}, codebook=book).build_ivf(*features())
    assert dataset.query_ivf(*features())[2][:, 0].tolist() == list(range(IMAGES))


def test_an_image_without_features_keeps_its_place() -> None:
    vectors, ids = features()
    dataset = trained().build_ivf(vectors[ids != 4], ids[ids != 4])
    _, _, ranks, scores = dataset.query_ivf(vectors, ids)
    assert ranks.shape == (IMAGES, IMAGES)
    assert (scores[ranks == 4] == 0).all()


@pytest.mark.parametrize(("size", "words"), [(64, 64), ("64", 64), ("64k", 65536), ("8K", 8192)])
def test_sizes(size: int | str, words: int) -> None:
    assert size_of(size) == words


@pytest.mark.parametrize("size", ["many", "0", "-1", "k"])
def test_sizes_that_are_none(size: str) -> None:
    with pytest.raises(ConfigError, match="number of words"):
        size_of(size)


def test_codebooks_of_both_kinds(tmp_path: Path) -> None:
    vectors = features(40, seed=1)[0]
    method = ASMKMethod.initialize_untrained(settings())
    for name in ("book.pkl", "book"):
        first = method.train_codebook(vectors, cache_path=tmp_path / name).codebook
        again = method.train_codebook(None, cache_path=tmp_path / name)
        assert first is not None
        assert again.codebook is not None
        np.testing.assert_array_equal(again.codebook.centroids, first.centroids)
        assert "load_time" in again.metadata["train_codebook"]
    assert (tmp_path / "book").is_dir()
    other = ASMKMethod.initialize_untrained({"train_codebook": {"codebook": {"size": 32}}})
    with pytest.raises(ConfigError, match="has 16 words, and the settings ask for 32"):
        other.train_codebook(None, cache_path=tmp_path / "book.pkl")


def test_steps_out_of_order(tmp_path: Path) -> None:
    method = ASMKMethod.initialize_untrained(settings())
    with pytest.raises(SuperfeatError, match="no features to learn one from"):
        method.train_codebook(None, cache_path=tmp_path / "none.pkl")
    with pytest.raises(SuperfeatError, match="train_codebook first"):
        method.build_ivf(*features())
    with pytest.raises(SuperfeatError, match="no features to build one from"):
        trained().build_ivf(None, None, cache_path=tmp_path / "none.pkl")
    with pytest.raises(SuperfeatError, match="build_ivf first"):
        trained().query_ivf(*features())
    with pytest.raises(ConfigError, match="no group 'train_codebook'"):
        ASMKMethod.initialize_untrained({}).train_codebook(features()[0])
    with pytest.raises(SuperfeatError, match="add images before"):
        IVF(codebook_size=4).search(np.zeros((1, 2), np.uint32), np.zeros(1, int), similarity_func=None)


def test_what_does_not_fit() -> None:
    lists = IVF(codebook_size=4)
    one, none = np.zeros((1, 2), np.uint32), np.zeros(1, np.int64)
    with pytest.raises(SuperfeatError, match="between 0 and 3"):
        lists.add(one, none + 4, none)
    with pytest.raises(SuperfeatError, match="must be as many"):
        lists.add(one, np.zeros(2, np.int64), none)
    with pytest.raises(SuperfeatError, match="for distractors"):
        lists.add(one, none, none - 1)
    lists.add(one, none, none)
    with pytest.raises(SuperfeatError, match="same kernel"):
        lists.add(np.zeros((1, 2), np.float32), none, none + 1)
    with pytest.raises(SuperfeatError, match="must follow each other"):
        list(io_helpers.slice_unique([0, 1, 0]))
    assert list(io_helpers.slice_unique([])) == []


class Hostile:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_files_of_strangers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "book.pkl"
    path.write_bytes(pickle.dumps({"type": "Codebook", "params": Hostile(), "state": {}}))
    method = ASMKMethod.initialize_untrained(settings())
    with pytest.raises(UnpickleError, match="nothing in it was run"):
        method.train_codebook(None, cache_path=path)
    assert capsys.readouterr().out == ""
    wrong: list[Any] = [[], {"type": "IVF"}, {"type": "Codebook", "params": 3, "state": {}}]
    for contents in wrong:
        path.write_bytes(pickle.dumps(contents))
        with pytest.raises(StoreError, match="not a Codebook of asmk"):
            method.train_codebook(None, cache_path=path)
    path.write_bytes(pickle.dumps({"type": "Codebook", "params": {}, "state": {"centroids": [1]}}))
    with pytest.raises(SuperfeatError, match="damaged"):
        method.train_codebook(None, cache_path=path)


def test_settings_laid_over_a_template(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "_base.yml").write_text("a: {b: 1, c: 2}\nd: 3\n")
    (tmp_path / "top.yml").write_text("__template__: _base.yml\na: {c: 5}\n")
    assert io_helpers.load_params(tmp_path / "top.yml") == {"a": {"b": 1, "c": 5}, "d": 3}
    (tmp_path / "_base.yml").write_text("__template__: top.yml\n")
    with pytest.raises(ConfigError, match="circle"):
        io_helpers.load_params(tmp_path / "top.yml")
    (tmp_path / "top.yml").write_text("just text")
    with pytest.raises(ConfigError, match="no settings by name"):
        io_helpers.load_params(tmp_path / "top.yml")
    (tmp_path / "top.yml").write_text("a: !!python/object/apply:os.getcwd []")
    with pytest.raises(ConfigError, match="not YAML"):
        io_helpers.load_params(tmp_path / "top.yml")


def test_progress_and_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "superfeat.asmk"):
        assert list(io_helpers.progress(range(5), frequency=2, header="Rows")) == list(range(5))
    assert [record.getMessage().split(" in ")[0] for record in caplog.records] == [
        "Rows: 2 of 5",
        "Rows: 4 of 5",
        "Rows: 5 of 5",
    ]
    logger = io_helpers.init_logger(tmp_path / "out.log")
    logger.debug("said")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    assert "said" in (tmp_path / "out.log").read_text()


def test_sys_modules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line of the documents, without `install`."""
    import superfeat.asmk

    monkeypatch.setitem(sys.modules, "asmk", superfeat.asmk)
    from asmk import ASMKMethod as Method  # type: ignore[import-not-found]
    from asmk import io_helpers as helpers

    assert Method is ASMKMethod
    assert helpers is io_helpers
