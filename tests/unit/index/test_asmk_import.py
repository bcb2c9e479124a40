"""The pickles of the reference implementation: read as data, refused when they are anything else."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.errors import StoreError, SuperfeatError, UnpickleError
from superfeat.features import ImageWords
from superfeat.index.asmk_import import InvertedImage, read_inverted_file
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.kernel import binarise

DIM = 40
WORDS = 9
IMAGES = {0: [1, 4], 1: [4, 8], 3: [0, 4]}  # image 2 has no words


def residuals(image: int, words: list[int]) -> np.ndarray:
    return np.random.default_rng(image).standard_normal((len(words), DIM)).astype(np.float32)


def packed(sums: np.ndarray) -> np.ndarray:
    """As the reference does it: 32 dimensions in an integer, the first one highest, padded with zeros."""
    bits = np.pad(sums > 0, ((0, 0), (0, -sums.shape[1] % 32)))
    values = bits.reshape(len(bits), -1, 32) * (1 << np.arange(31, -1, -1))
    return np.asarray(values.sum(axis=2), np.uint32)


def inverted_file(offset: int = 0) -> dict[str, Any]:
    """Lists with room to spare, as the reference keeps them."""
    vectors: list[Any] = [None] * WORDS
    ids: list[Any] = [None] * WORDS
    counts = np.zeros(WORDS, np.int32)
    for image, words in IMAGES.items():
        for word, code in zip(words, packed(residuals(image, words)), strict=True):
            if vectors[word] is None:
                vectors[word], ids[word] = np.full((10, 2), 77, np.uint32), np.full(10, 77)
            vectors[word][counts[word]], ids[word][counts[word]] = code, image
            counts[word] += 1
    state = {"norm_factor": np.asarray([2.0, 2, 0, 2]), "n_images": 4, "ivf_vecs": vectors, "ivf_image_ids": ids}
    state |= {"counts": counts, "idf": np.ones(WORDS, np.float32), "imid_offset": offset}
    return {"type": "IVF", "params": {"use_idf": False}, "state": state}


def read(folder: Path, contents: object, dim: int = DIM) -> list[InvertedImage]:
    (folder / "ivf.pkl").write_bytes(pickle.dumps(contents))
    return list(read_inverted_file(folder / "ivf.pkl", dim))


def test_images_words_and_codes(tmp_path: Path) -> None:
    found = read(tmp_path, inverted_file())
    assert [image.id for image in found] == list(IMAGES)
    for image in found:
        assert image.words.tolist() == IMAGES[image.id]
        assert image.words.dtype == np.int32
        np.testing.assert_array_equal(image.codes, binarise(residuals(image.id, IMAGES[image.id])))


def test_the_images_before_the_offset_are_distractors(tmp_path: Path) -> None:
    """The reference stores id + offset and gives id back: a distractor's is negative."""
    assert [image.id for image in read(tmp_path, inverted_file(offset=1))] == [-1, 0, 2]


def test_files_older_than_the_offset(tmp_path: Path) -> None:
    contents = inverted_file()
    del contents["state"]["imid_offset"]
    assert [image.id for image in read(tmp_path, contents)] == list(IMAGES)


def test_no_images(tmp_path: Path) -> None:
    contents = inverted_file()
    contents["state"].update(ivf_vecs=[None] * WORDS, ivf_image_ids=[None] * WORDS, counts=np.zeros(WORDS, np.int32))
    assert read(tmp_path, contents) == []


def test_into_an_index(tmp_path: Path) -> None:
    codebook = Codebook(np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
    index = Index.create(tmp_path / "index", codebook)
    images = read(tmp_path, inverted_file())
    list(index.add_many((str(one.id), ImageWords(one.words, one.codes, codebook.digest), None) for one in images))
    for image in images:
        np.testing.assert_array_equal(index.words_of(str(image.id)).codes, image.codes)
        assert index.search(str(image.id), 1).names == (str(image.id),)


def test_into_an_index_with_fewer_words(tmp_path: Path) -> None:
    """Refused before it is written: the index stays as it was."""
    codebook = Codebook(np.random.default_rng(0).standard_normal((5, DIM)).astype(np.float32))
    index = Index.create(tmp_path / "index", codebook)
    first, second, _ = read(tmp_path, inverted_file())
    list(index.add_many([("first", ImageWords(first.words, first.codes, codebook.digest), None)]))
    with pytest.raises(SuperfeatError, match="words"):
        list(index.add_many([("second", ImageWords(second.words, second.codes, codebook.digest), None)]))
    with pytest.raises(SuperfeatError, match="codes"):
        list(index.add_many([("third", ImageWords(first.words, first.codes[:1], codebook.digest), None)]))
    for opened in (index, Index.open(index.path)):
        assert list(opened.names()) == ["first"]
        assert opened.search("first").names == ("first",)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_other_codes(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not hold binary codes of 128 dimensions"):
        read(tmp_path, inverted_file(), dim=128)
    contents = inverted_file()
    contents["state"]["ivf_vecs"] = [
        None if one is None else one.astype(np.float32) for one in contents["state"]["ivf_vecs"]
    ]
    with pytest.raises(StoreError, match="does not hold binary codes of 40 dimensions"):
        read(tmp_path, contents)


def test_bits_behind_the_last_dimension(tmp_path: Path) -> None:
    """Codes of 40 dimensions are not codes of 33, though both fill two integers."""
    with pytest.raises(StoreError, match="binary codes of 33 dimensions"):
        read(tmp_path, inverted_file(), dim=33)


def test_a_codebook_is_not_an_inverted_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a pickled IVF of the asmk package"):
        read(tmp_path, {"type": "Codebook", "state": {}})
    (tmp_path / "codebook.pkl").write_bytes(pickle.dumps(inverted_file()))
    with pytest.raises(StoreError, match="not a pickled Codebook of the asmk package"):
        Codebook.open(tmp_path / "codebook.pkl")


@pytest.mark.parametrize("contents", [None, [], {}, {"type": "IVF"}, {"type": "IVF", "state": []}])
def test_anything_else(tmp_path: Path, contents: object) -> None:
    with pytest.raises(StoreError, match="not a pickled IVF"):
        read(tmp_path, contents)


DAMAGE: dict[str, dict[str, Any]] = {
    "no counts": {"counts": None},
    "counts of other words": {"counts": np.zeros(WORDS - 1, np.int32)},
    "counts that are text": {"counts": "12"},
    "counts beyond the list": {"counts": np.full(WORDS, 11, np.int32)},
    "negative counts": {"counts": np.full(WORDS, -1, np.int32)},
    "fewer lists": {"ivf_vecs": [None] * (WORDS - 1)},
    "lists that are none": {"ivf_vecs": None},
    "no ids": {"ivf_image_ids": [None] * WORDS},
    "ids that are fractions": {"ivf_image_ids": [np.full(10, 0.5)] * WORDS},
    "fewer ids": {"ivf_image_ids": [np.zeros(1, np.int64)] * WORDS},
    "an offset that is text": {"imid_offset": "one"},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(tmp_path: Path, damage: str) -> None:
    contents = inverted_file()
    contents["state"].update(DAMAGE[damage])
    with pytest.raises(StoreError):
        read(tmp_path, contents)


@pytest.mark.parametrize("missing", ["counts", "ivf_vecs", "ivf_image_ids"])
def test_missing_parts(tmp_path: Path, missing: str) -> None:
    contents = inverted_file()
    del contents["state"][missing]
    with pytest.raises(StoreError):
        read(tmp_path, contents)


def test_an_image_twice_in_a_list(tmp_path: Path) -> None:
    contents = inverted_file()
    contents["state"]["ivf_image_ids"][4][:3] = [0, 0, 3]
    with pytest.raises(StoreError):
        read(tmp_path, contents)


@pytest.mark.parametrize(
    "centroids",
    [
        None,
        "text",
        [[1.0], [1.0, 2.0]],
        np.zeros((3, 2), np.int64),
        np.zeros(4, np.float32),
        np.zeros((0, 4), np.float32),
        np.full((2, 2), np.nan, np.float32),
    ],
)
def test_bad_centroids(tmp_path: Path, centroids: object) -> None:
    path = tmp_path / "codebook.pkl"
    path.write_bytes(pickle.dumps({"type": "Codebook", "params": {}, "state": {"centroids": centroids}}))
    with pytest.raises(SuperfeatError):
        Codebook.open(path)


class Trap:
    """Does something when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> Any:
        return (Path.touch, (self.victim,))


def test_a_pickle_with_a_trap(tmp_path: Path) -> None:
    victim = tmp_path / "sprung"
    path = tmp_path / "trap.pkl"
    path.write_bytes(pickle.dumps({"type": "Codebook", "state": {"centroids": Trap(victim)}}))
    with pytest.raises(UnpickleError, match="nothing in it was run"):
        Codebook.open(path)
    path.write_bytes(pickle.dumps({"type": "IVF", "state": {"counts": Trap(victim)}}))
    with pytest.raises(UnpickleError, match="nothing in it was run"):
        list(read_inverted_file(path, DIM))
    assert not victim.exists()


def test_a_file_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "ivf.pkl"
    path.write_bytes(pickle.dumps(inverted_file())[:-40])
    with pytest.raises(UnpickleError, match="damaged"):
        list(read_inverted_file(path, DIM))
