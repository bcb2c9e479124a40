"""The inverted file as callers of `asmk` know it, on superfeat's lists."""

from pathlib import Path
from typing import Any

import numpy as np

from superfeat.asmk.hamming import BITS, from_bytes, to_bytes
from superfeat.asmk.io_helpers import Progress, load_pickle, save_pickle
from superfeat.asmk.kernel import dimensions, settings_of
from superfeat.asmk.states import require_state
from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.asmk_import import flatten_lists
from superfeat.index.codebook import Codebook
from superfeat.index.growing import Entries, GrowingLists, growing_lists
from superfeat.index.index import Index


class IVF:
    """Codes by word. Distractors have negative ids: `imid_offset` of them."""

    def __init__(self, *, codebook_size: int, use_idf: bool = False) -> None:
        self.params = {"use_idf": bool(use_idf)}
        self.codebook_size = int(codebook_size)
        self.imid_offset = 0
        self._lists: GrowingLists | None = None  # the first codes decide of which kind it is

    @classmethod
    def initialize_empty(cls, *, codebook_size: int, use_idf: bool = False) -> "IVF":
        """Without images."""
        return cls(codebook_size=codebook_size, use_idf=use_idf)

    @property
    def n_images(self) -> int:
        """Distractors included."""
        return self.imid_offset if self._lists is None else self._lists.next_id + self.imid_offset

    @property
    def stats(self) -> dict[str, float]:
        """How full it is."""
        sizes = np.empty(0, np.int64) if self._lists is None else self._lists.sizes()
        return {
            "images": self.n_images,
            "vectors": int(sizes.sum()),
            "vectors_per_image": float(sizes.sum()) / max(len(sizes), 1),
        }

    def add(self, des: np.ndarray, word_ids: np.ndarray, image_ids: np.ndarray, *, progress: Progress = None) -> None:
        """Takes in what a kernel has aggregated."""
        codes, words, images = np.asarray(des), np.asarray(word_ids), np.asarray(image_ids)
        if codes.ndim != 2 or words.shape != (len(codes),) or images.shape != (len(codes),):
            raise SuperfeatError(
                f"codes {codes.shape}, words {words.shape} and images {images.shape} must be as many; "
                "aggregate them first"
            )
        if len(words) and not 0 <= words.min() <= words.max() < self.codebook_size:
            raise SuperfeatError(f"words must lie between 0 and {self.codebook_size - 1}: another codebook?")
        if len(images) and images.min() < -self.imid_offset:
            raise SuperfeatError(f"image {images.min()} has a negative id; those are for distractors")
        lists = self._lists_for(codes)
        stored = self._stored(codes)
        lists.add(Entries(images.astype(np.int64), words.astype(np.int32), stored))

    def _lists_for(self, codes: np.ndarray) -> GrowingLists:
        binary = codes.dtype == np.uint32
        if self._lists is None:
            self._lists = growing_lists(self.codebook_size, dimensions(codes), binary)
        layout = self._lists.layout
        if (layout.binary, self._width) != (binary, codes.shape[1]):
            raise SuperfeatError(
                f"these codes are {codes.dtype} of {codes.shape[1]} numbers, and those of the inverted file are "
                f"{'uint32' if layout.binary else 'float32'} of {self._width}; aggregate them with the same kernel"
            )
        return self._lists

    @property
    def _width(self) -> int:
        assert self._lists is not None
        dim = self._lists.layout.dim
        return -(-dim // BITS) if self._lists.layout.binary else dim

    @staticmethod
    def _stored(codes: np.ndarray) -> np.ndarray:
        return to_bytes(codes) if codes.dtype == np.uint32 else np.ascontiguousarray(codes, np.float32)

    def search(
        self, des: np.ndarray, word_ids: np.ndarray, *, similarity_func: Any, topk: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images and scores, best first; equal scores by id."""
        if self._lists is None:
            raise SuperfeatError("the inverted file is empty; add images before you search")
        codes, words = np.asarray(des), np.asarray(word_ids)
        lists = self._lists_for(codes)
        settings = settings_of(similarity_func, codes.shape[1], lists.layout.binary)
        if settings is None:
            return self._search_with(similarity_func, codes, words, topk)
        order = np.argsort(words, kind="stable")
        query = ImageWords(words[order].astype(np.int32), self._stored(codes[order]), lists.layout.codebook)
        config = SearchConfig(alpha=settings[0], threshold=settings[1], idf=self.params["use_idf"])
        found = lists.best(query, config, topk)
        return found.ids, found.scores

    def _search_with(
        self, similarity_func: Any, codes: np.ndarray, words: np.ndarray, topk: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same with a function of the caller's, word by word."""
        assert self._lists is not None
        ids, norms, weights = self._ids_norms_weights()
        scores = np.zeros(len(ids))
        for code, word in zip(codes, words.tolist(), strict=True):
            entries = self._lists.list_of(word)
            if len(entries.images):
                images, added = similarity_func(code, self._shown(entries.codes), entries.images)
                np.add.at(scores, np.asarray(images) - ids[0], weights[word] * np.asarray(added, np.float64))
        total = float(weights[words].sum())
        scores /= norms * np.sqrt(total if total > 0 else 1.0)
        order = np.lexsort((ids, -scores))[:topk]
        return ids[order], scores[order]

    def _ids_norms_weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self._lists is not None
        snapshot = self._lists.snapshot()
        if not self.params["use_idf"]:
            return snapshot.ids(), np.sqrt(np.maximum(self._lists.sizes(), 1)), np.ones(self.codebook_size)
        return snapshot.ids(), np.concatenate(snapshot.weights.norms), snapshot.weights.words

    def _shown(self, stored: np.ndarray) -> np.ndarray:
        assert self._lists is not None
        return from_bytes(stored, self._width) if self._lists.layout.binary else stored

    def add_distractors(self, other: "IVF") -> None:
        """Puts the images of another inverted file before ours, with negative ids; ours must be empty."""
        if self._lists is not None or other._lists is None:
            raise SuperfeatError("distractors come first, and must be some; load them before you add images")
        entries = other._lists.entries()
        self.imid_offset = other.n_images
        made = growing_lists(self.codebook_size, other._lists.layout.dim, other._lists.layout.binary)
        made.add(entries._replace(images=entries.images + other.imid_offset - self.imid_offset), -self.imid_offset)
        self._lists = made

    # -- Files

    def state_dict(self) -> dict[str, Any]:
        """What a pickle holds: for each word its codes and the numbers of its images from 0."""
        vectors: list[np.ndarray | None] = [None] * self.codebook_size
        images: list[np.ndarray | None] = [None] * self.codebook_size
        counts = np.zeros(self.codebook_size, np.int32)
        sums, weights = np.empty(0), np.ones(self.codebook_size)
        if self._lists is not None:
            entries = self._lists.entries()
            order = np.argsort(entries.words, kind="stable")
            counts = np.bincount(entries.words, minlength=self.codebook_size).astype(np.int32)
            ends = np.cumsum(counts)
            for word in np.flatnonzero(counts).tolist():
                part = order[ends[word] - counts[word] : ends[word]]
                vectors[word] = self._shown(entries.codes[part])
                images[word] = entries.images[part] + self.imid_offset
            _, norms, weights = self._ids_norms_weights()
            sums = np.square(norms) if self.params["use_idf"] else self._lists.sizes().astype(np.float64)
        state = {
            "norm_factor": sums,
            "n_images": self.n_images,
            "ivf_vecs": vectors,
            "ivf_image_ids": images,
        }
        state |= {"counts": counts, "idf": weights.astype(np.float32), "imid_offset": self.imid_offset}
        return {"type": "IVF", "params": dict(self.params), "state": state}

    @classmethod
    def initialize_from_state(cls, contents: Any) -> "IVF":
        """From what `state_dict` gave, or a file held. Norms and IDF are computed again."""
        state = require_state(contents, "IVF")
        ids, words, codes = flatten_lists("this inverted file", state)
        made = cls(codebook_size=len(state["counts"]), use_idf=contents.get("params", {}).get("use_idf", False))
        made.imid_offset = int(state.get("imid_offset", 0))
        if made.imid_offset < 0 or (len(ids) and ids.min() < -made.imid_offset):
            raise StoreError("this inverted file is damaged: the ids of its images are not possible ones")
        if len(ids):
            lists = made._lists_for(codes)
            lists.add(Entries(ids, words, cls._stored(codes)), -made.imid_offset)
        return made


def open_inverted_file(path: str | Path, use_idf: bool) -> IVF:
    """A pickle of asmk, or an index folder of superfeat."""
    if not Path(path).is_dir():
        return IVF.initialize_from_state(load_pickle(path))
    index = Index.open(path)
    made = IVF(codebook_size=index.codebook.words, use_idf=use_idf)
    made._lists = GrowingLists.of_snapshot(index.snapshot())
    return made


def write_inverted_file(inverted_file: IVF, path: str | Path, codebook: Codebook) -> None:
    """A pickle; an index folder of superfeat where the path has no ending."""
    if Path(path).suffix:
        save_pickle(path, inverted_file.state_dict())
        return
    if inverted_file.imid_offset:
        raise SuperfeatError(f"{path} would be an index of superfeat, which has no distractors; give a path with .pkl")
    lists = inverted_file._lists
    binary = lists is None or lists.layout.binary
    index = Index.create(path, codebook, IndexConfig("binary" if binary else "real"))
    if lists is not None:
        named = ((str(image), lists.words_of(image, codebook.digest), None) for image in range(lists.next_id))
        for _ in index.add_many(named, batch=1024):
            pass
