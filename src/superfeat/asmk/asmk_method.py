"""The steps of ASMK in a row: learn words, build lists, ask."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from superfeat.asmk.codebook import NamedSizeCodebook, open_codebook, size_of, write_codebook
from superfeat.asmk.index import initialize_index
from superfeat.asmk.inverted_file import IVF, open_inverted_file, write_inverted_file
from superfeat.asmk.io_helpers import Progress, progress_over, slice_unique
from superfeat.asmk.kernel import ASMKKernel
from superfeat.errors import ConfigError, SuperfeatError

Params = dict[str, Any]
CachePath = str | Path | None


class IvfBuilder:
    """An inverted file that is being filled. With a cache path it is read from there, or written when it is done."""

    def __init__(self, step_params: Params, codebook: Any, kernel: ASMKKernel, *, cache_path: CachePath = None) -> None:
        self.step_params, self.codebook, self.kernel = step_params, codebook, kernel
        self.cache_path = cache_path
        self.metadata: Params = {"index_time": 0.0}
        began = time.perf_counter()
        self.loaded_from_cache = cache_path is not None and Path(cache_path).exists()
        options = step_params.get("ivf", {})
        if self.loaded_from_cache:
            assert cache_path is not None
            self.ivf = open_inverted_file(cache_path, bool(options.get("use_idf", False)))
            if self.ivf.codebook_size != len(codebook.centroids):
                raise SuperfeatError(
                    f"{cache_path} has lists for {self.ivf.codebook_size} words, and the codebook has "
                    f"{len(codebook.centroids)}; use the codebook it was built with"
                )
            self.metadata["load_time"] = time.perf_counter() - began
        else:
            self.ivf = IVF(codebook_size=len(codebook.centroids), **options)

    def initialize_with_distractors(self, path: str | Path) -> None:
        """Puts the images of another inverted file before those that will be added, with negative ids."""
        self.ivf.add_distractors(open_inverted_file(path, False))

    def add(self, vecs: np.ndarray, imids: np.ndarray, *, progress: Progress = None) -> None:
        """The features of some images; those of an image in one call."""
        began = time.perf_counter()
        quantized = self.codebook.quantize(vecs, imids, **self.step_params["quantize"])
        aggregated = self.kernel.aggregate(*quantized, **self.step_params["aggregate"], progress=progress)
        self.ivf.add(*aggregated)
        self.metadata["index_time"] += time.perf_counter() - began

    def save(self) -> None:
        """Writes it to its cache path, if it has one and does not come from there."""
        if self.cache_path is not None and not self.loaded_from_cache:
            write_inverted_file(self.ivf, self.cache_path, self.codebook.words)


class ASMKMethod:
    """Holds what the steps so far have made; each step gives a new one."""

    def __init__(
        self,
        params: Params,
        metadata: Params,
        *,
        codebook: NamedSizeCodebook | None = None,
        kernel: ASMKKernel | None = None,
        inverted_file: IVF | None = None,
    ) -> None:
        self.params, self.metadata = params, metadata
        self.codebook, self.kernel, self.inverted_file = codebook, kernel, inverted_file

    @classmethod
    def initialize_untrained(cls, params: Params) -> "ASMKMethod":
        """Before any step: settings alone (index, train_codebook, build_ivf, query_ivf)."""
        return cls(params, {})

    def _step(self, name: str, given: Params | None) -> Params:
        found: Params | None = given or self.params.get(name)
        if found is None:
            raise ConfigError(
                f"the settings have no group '{name}'; those there are: {', '.join(self.params) or 'none'}"
            )
        return found

    def train_codebook(
        self, vecs: np.ndarray | None = None, *, cache_path: CachePath = None, step_params: Params | None = None
    ) -> "ASMKMethod":
        """Learns words from features, or reads them from the cache path if that is there."""
        settings = self._step("train_codebook", step_params)["codebook"]
        factory = initialize_index(**self.params.get("index", {}))
        metadata: Params = {"index_class": type(factory).__name__}
        began = time.perf_counter()
        if cache_path is not None and Path(cache_path).exists():
            codebook = open_codebook(cache_path, factory)
            if len(codebook.centroids) != size_of(settings["size"]):
                raise ConfigError(
                    f"{cache_path} has {len(codebook.centroids)} words, and the settings ask for {settings['size']}; "
                    "change the size, or remove the file to learn the words again"
                )
            metadata["load_time"] = time.perf_counter() - began
        else:
            if vecs is None:
                raise SuperfeatError(f"there is no codebook at {cache_path}, and no features to learn one from")
            codebook = NamedSizeCodebook(factory, **settings)
            codebook.train(vecs)
            metadata["cluster_time"] = time.perf_counter() - began
            codebook.index()
            metadata["train_time"] = time.perf_counter() - began
            metadata["index_time"] = metadata["train_time"] - metadata["cluster_time"]
            if cache_path is not None:
                write_codebook(codebook, cache_path)
        return type(self)(self.params, {**self.metadata, "train_codebook": metadata}, codebook=codebook)

    def create_ivf_builder(self, *, cache_path: CachePath = None, step_params: Params | None = None) -> IvfBuilder:
        """An empty inverted file to add images to, or the one at the cache path."""
        if self.codebook is None:
            raise SuperfeatError("there is no codebook yet; call train_codebook first, and use what it returns")
        settings = self._step("build_ivf", step_params)
        kernel = ASMKKernel(self.codebook, **settings["kernel"])
        return IvfBuilder(settings, self.codebook, kernel, cache_path=cache_path)

    def add_ivf_builder(self, builder: IvfBuilder) -> "ASMKMethod":
        """With the inverted file that was filled; writes it if it has a cache path."""
        builder.save()
        metadata = {**self.metadata, "build_ivf": {**builder.metadata, "ivf_stats": builder.ivf.stats}}
        return type(self)(
            self.params, metadata, codebook=self.codebook, kernel=builder.kernel, inverted_file=builder.ivf
        )

    def build_ivf(
        self,
        vecs: np.ndarray | None = None,
        imids: np.ndarray | None = None,
        *,
        distractors_path: CachePath = None,
        cache_path: CachePath = None,
        step_params: Params | None = None,
        progress: Progress = None,
    ) -> "ASMKMethod":
        """Adds all images at once. `distractors_path` is an inverted file whose images get negative ids."""
        builder = self.create_ivf_builder(cache_path=cache_path, step_params=step_params)
        if not builder.loaded_from_cache:
            if vecs is None or imids is None:
                raise SuperfeatError(f"there is no inverted file at {cache_path}, and no features to build one from")
            if distractors_path is not None:
                builder.initialize_with_distractors(distractors_path)
            builder.add(vecs, imids, progress=progress)
        return self.add_ivf_builder(builder)

    def query_ivf(
        self, qvecs: np.ndarray, qimids: np.ndarray, *, step_params: Params | None = None, progress: Progress = None
    ) -> tuple[Params, np.ndarray, np.ndarray, np.ndarray]:
        """Facts, the ids of the queries, and for each a row of images, best first, and a row of their scores."""
        if self.codebook is None or self.kernel is None or self.inverted_file is None:
            raise SuperfeatError("there is no inverted file yet; call build_ivf first, and use what it returns")
        began = time.perf_counter()
        ids, ranks, scores = self.accumulate_scores(
            self.codebook,
            self.kernel,
            self.inverted_file,
            qvecs,
            qimids,
            params=self._step("query_ivf", step_params),
            progress=progress,
        )
        return {"query_avg_time": (time.perf_counter() - began) / len(ids)}, ids, ranks, scores

    @staticmethod
    def accumulate_scores(
        cdb: Any,
        kern: Any,
        ivf: Any,
        qvecs: np.ndarray,
        qimids: np.ndarray,
        *,
        params: Params,
        progress: Progress = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same from the parts."""
        options = params["similarity"]

        def compare(*arguments: Any) -> Any:
            return kern.similarity(*arguments, **options)

        ids, ranks, scores = [], [], []
        for image, part in progress_over(list(slice_unique(qimids)), progress, "Query"):
            quantized = cdb.quantize(qvecs[part], **params["quantize"])
            codes, words = kern.aggregate_image(*quantized, **params["aggregate"])
            found = ivf.search(codes, words, similarity_func=compare, **params["search"])
            ids.append(image)
            ranks.append(found[0])
            scores.append(found[1])
        if not ids:
            raise SuperfeatError("there are no features to ask with; give those of one image at least")
        return np.asarray(ids), np.stack(ranks), np.stack(scores)
