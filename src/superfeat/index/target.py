"""The index that photos or features are brought into: made if there is none, with words that suit them."""

import contextlib
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from superfeat.config import OWN_CODEBOOK, VECTOR_KERNELS, VECTOR_METHODS, CodebookConfig, IndexConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.folder import FeatureStore
from superfeat.index.boxes import PhotoRegions
from superfeat.index.build import suggest_words
from superfeat.index.codebook import Codebook, Round, remove_work, train_codebook
from superfeat.index.index import Index
from superfeat.index.lloyd import Assign
from superfeat.index.manifest import IndexFacts
from superfeat.index.splitting import create_shards
from superfeat.index.writer import require_free
from superfeat.settings import overlay
from superfeat.weights import Network

OnRound = Callable[[Round], None]  # told how far k-means is


class Indexing(NamedTuple):
    """How far an indexing is: `done` of `total` photos or features, and the photo just done.

    `known` of those that are done were known before, or by their bytes: they took no time to look at.
    """

    stage: Literal["extracting", "words", "indexing", "reading"]
    done: int
    total: int | None
    name: str = ""
    detail: str = ""
    known: int = 0


class Target:
    """The index that is to be filled, new or not, and what is known of its words."""

    def __init__(
        self,
        path: Path,
        codebook: str | Path | Codebook | None,
        kernel: str | None,
        workers: int | None,
        on_round: OnRound | None,
        shards: int | None = None,
    ) -> None:
        self.path, self.workers, self.on_round, self.shards = path, workers, on_round, shards
        self.assign: Assign | None = None
        self.old = (path / "manifest.json").is_file()
        self.own = str(codebook) == OWN_CODEBOOK and not Path(OWN_CODEBOOK).exists()
        self.codebook = None if self.own else codebook
        self.kernel = kernel
        if self.old:
            self._require_same()
        else:
            require_free(path)
        self.config = overlay(IndexConfig(), {"kernel": kernel} if kernel else {})
        self.waiting = path.with_name(f"{path.name}.features")  # features, until words are learned from them
        self._learned = path.with_name(f"{path.name}.codebook")

    def _require_same(self) -> None:
        """The command that made an index goes on with it; what was chosen then cannot be chosen again."""
        index = Index.open(self.path)
        words = Codebook.open(self.codebook) if isinstance(self.codebook, str | Path) else self.codebook
        if words is not None and words.digest != index.codebook.digest:
            raise SuperfeatError(f"{self.path} has another codebook; make a new index for this one, or leave it out")
        if self.kernel is not None and self.kernel != index.config.kernel:
            raise SuperfeatError(f"{self.path} has the kernel {index.config.kernel}; make a new index for another")
        if self.shards is not None and self.shards != (found := len(index.info().shards or [()])):
            raise SuperfeatError(
                f"{self.path} has {found} shard{'s'[: found > 1]}; `superfeat rebalance` makes that {self.shards}"
            )

    @property
    def needs_features(self) -> bool:
        """Whether words must be learned from features before there can be an index."""
        return not self.old and self.codebook is None

    def suit(self, network: Network, regions: PhotoRegions | None, names: Sequence[str]) -> None:
        """Chooses words and kernel for photos that are one vector each, and how photos with boxes are compared.

        SuperfeatError if others are asked for.
        """
        self._suit(network.one_vector, network.dim, network.digest)
        if regions is not None:
            self._suit_regions(network, regions, names)

    def _suit(self, one_vector: bool, dim: int, network: str | None) -> None:
        asked = self.kernel in VECTOR_KERNELS
        if not one_vector:
            if asked:
                raise SuperfeatError(
                    f"the kernel {self.kernel} is for networks with one vector per photo; take binary or real"
                )
            return
        if self.old:
            return
        if self.codebook is not None or self.own:
            raise SuperfeatError("a network with one vector per photo has no words: leave the codebook out")
        if self.kernel is not None and not asked:
            known = ", ".join(VECTOR_KERNELS)
            raise SuperfeatError(f"the kernel {self.kernel} is for local features; vectors are stored as {known}")
        self.codebook = Codebook.of_vectors(dim, network)
        self.config = overlay(IndexConfig(), {"kernel": self.kernel or VECTOR_KERNELS[0]})

    def _suit_regions(self, network: Network, regions: PhotoRegions, names: Sequence[str]) -> None:
        """A new index of photos with boxes is searched as the paper of R-ASMK does. SuperfeatError if it cannot be."""
        if network.one_vector:
            raise SuperfeatError("boxes are aggregated over words: take a network of local features")
        regions.require_known(names)
        self.config = overlay(self.config, {"search.assignments": 1, "search.norm": "none"})

    def suit_features(self, store: FeatureStore) -> None:
        """The same for a features folder: by the method that its network has."""
        method = store.manifest.get("network", {}).get("method")
        one = method in VECTOR_METHODS
        self._suit(one, store.manifest["dim"], store.network)

    def facts(self) -> IndexFacts:
        return Index.open(self.path).facts if self.old else {}

    def open(
        self, facts: IndexFacts, network: str | None, store: FeatureStore | None
    ) -> Generator[Indexing, None, Index]:
        """The index, made if it is not there, with the codebook that is given or one learned from `store`."""
        if self.old:
            return Index.open(self.path)
        words = yield from self._words(store)
        if self.shards is None:
            index = Index.create(self.path, words, self.config, network=network, facts=facts)
        else:
            index = create_shards(self.path, self.shards, words, self.config, network=network, facts=facts)
        shutil.rmtree(self._learned, ignore_errors=True)  # it travels with the index
        return index

    @contextlib.contextmanager
    def no_empty_index(self, index: Index) -> Iterator[None]:
        """An index that was made just now goes again if nothing could be added to it."""
        try:
            yield
        except BaseException:
            if not self.old and not len(index):
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def _words(self, store: FeatureStore | None) -> Generator[Indexing, None, Codebook]:
        if isinstance(self.codebook, Codebook):
            return self.codebook
        if self.codebook is not None:
            return Codebook.open(self.codebook)
        if store is None:
            raise SuperfeatError("a new index needs a codebook here: name one")
        if not self._learned.exists():
            config = CodebookConfig(words=suggest_words(sum(entry.count for entry in store.entries)))
            yield Indexing("words", 0, None, "", f"learning a codebook of {config.words} words from these photos")
            learn_words(store, config, self._learned, workers=self.workers, on_round=self.on_round, assign=self.assign)
        return Codebook.open(self._learned)


def learn_words(
    store: FeatureStore,
    config: CodebookConfig,
    output: Path,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    on_round: OnRound | None = None,
    assign: Assign | None = None,
) -> None:
    """A codebook of these features. Stopped early it leaves its rounds beside the output, and goes on from there."""
    work = output.with_name(f"{output.name}.partial")
    learned = train_codebook(store, config, work=work, workers=workers, on_progress=on_round, assign=assign)
    learned.save(output, overwrite=overwrite)
    remove_work(work)
