"""The kernel of a codebook: features -> one code per image and word, and how alike two codes are."""

from typing import Any

import numpy as np

from superfeat.asmk.hamming import BITS, binarize_and_pack_2D, hamming_cdist_packed
from superfeat.asmk.io_helpers import Progress, progress_over, slice_unique
from superfeat.errors import SuperfeatError
from superfeat.features import require_vectors
from superfeat.index.kernel import aggregate, normalise_residuals


class SettingsQuestion(np.ndarray):
    """A code that asks a similarity function with which settings it compares.

    It is an array like any other and comes with no codes to compare it with: a function that is not ours answers with
    nothing, and is then called for each word.
    """

    settings: tuple[float, float] | None = None


class ASMKKernel:
    """Aggregates to signs (`binary`) or to residuals of length one."""

    def __init__(self, codebook: Any, *, binary: bool) -> None:
        self.codebook = codebook
        self.binary = binary

    @property
    def params(self) -> dict[str, bool]:
        """What it was made with."""
        return {"binary": self.binary}

    def aggregate_image(self, des: np.ndarray, word_ids: np.ndarray, **_: Any) -> tuple[np.ndarray, np.ndarray]:
        """Codes and words, ascending, of the features of one image, each with one or more words."""
        centroids = np.ascontiguousarray(self.codebook.centroids, np.float32)
        vectors = require_vectors(des, "features", centroids.shape[1])
        words = np.asarray(word_ids).reshape(len(vectors), -1)
        if words.size and not 0 <= words.min() <= words.max() < len(centroids):
            raise SuperfeatError(
                f"the words of features must lie between 0 and {len(centroids) - 1}; assign them again"
            )
        found, sums = aggregate(vectors, np.ascontiguousarray(words, np.int32), centroids)
        return binarize_and_pack_2D(sums) if self.binary else normalise_residuals(sums), found

    def aggregate(
        self, des: np.ndarray, word_ids: np.ndarray, image_ids: np.ndarray, *, progress: Progress = None, **_: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes, words and images of the features of many images."""
        codes, words, images = [], [], []
        for image, part in progress_over(list(slice_unique(image_ids)), progress, "Aggregate"):
            mine, found = self.aggregate_image(des[part], word_ids[part])
            codes.append(mine)
            words.append(found)
            images.append(np.full(len(found), image, np.int64))
        if not codes:
            raise SuperfeatError("there are no features to aggregate; give those of one image at least")
        return np.concatenate(codes), np.concatenate(words), np.concatenate(images)

    def similarity(
        self, qvec: np.ndarray, vecs: np.ndarray, image_ids: np.ndarray, *, alpha: float, similarity_threshold: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which images of one word reach the threshold, and what each adds to its score."""
        if isinstance(qvec, SettingsQuestion):
            qvec.settings = float(alpha), float(similarity_threshold)
        if self.binary:
            u = 1 - 2 * hamming_cdist_packed(np.asarray(qvec)[None], vecs)[0].astype(np.float64)
        else:
            u = np.asarray(vecs, np.float64) @ np.asarray(qvec, np.float64)
        kept = u >= similarity_threshold
        return image_ids[kept], np.copysign(np.abs(u[kept]) ** alpha, u[kept])


def settings_of(similarity_func: Any, width: int, binary: bool) -> tuple[float, float] | None:
    """Alpha and threshold of a function that calls `ASMKKernel.similarity`; None of any other."""
    kind = np.uint32 if binary else np.float32
    question = np.zeros(width, kind).view(SettingsQuestion)
    similarity_func(question, np.empty((0, width), kind), np.empty(0, np.int64))
    return question.settings


def dimensions(codes: np.ndarray) -> int:
    """Of the space that codes are compared in: packed signs count whole 32-bit numbers."""
    return int(codes.shape[1]) * (BITS if codes.dtype == np.uint32 else 1)
