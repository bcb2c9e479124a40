"""The same search by another engine: postings in tables, Hamming distances and sums in SQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.config import SearchConfig
from superfeat.features import ImageWords
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.kernel import accumulate, power_selectivity
from superfeat.index.snapshot import Snapshot

duckdb = pytest.importorskip("duckdb")

DIM, WORDS, IMAGES = 128, 50, 70

SUMS = """
SELECT images.id, coalesce(sum(pow_table.value), 0)::BIGINT AS total, any_value(images.size) AS size
FROM images
LEFT JOIN (
    SELECT postings.id AS id, bit_count(xor(postings.high, query.high)) + bit_count(xor(postings.low, query.low)) AS h
    FROM postings JOIN query USING (word)
) pairs ON pairs.id = images.id
LEFT JOIN pow_table USING (h)
GROUP BY images.id
"""
RANKING = f"SELECT id, total / sqrt(greatest(size, 1)) AS score FROM ({SUMS}) ORDER BY score DESC, id"


def rows(image: ImageWords) -> list[tuple[int, int, int]]:
    """Word, and the two halves of its code read as numbers with the first dimension highest."""
    halves = image.codes.view(">u8").astype(np.uint64).tolist()
    return [(word, high, low) for word, (high, low) in zip(image.words.tolist(), halves, strict=True)]


class Collection:
    """A skewed collection, in an index and in tables: few words have most of the features, images differ in size."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.centroids = self.rng.standard_normal((WORDS, DIM)).astype(np.float32)
        self.shares = self.rng.dirichlet(np.full(WORDS, 0.1))
        self.index = Index.create(folder / "index", Codebook(self.centroids))
        self.vectors = [self.features(int(self.rng.integers(0, 60))) for _ in range(IMAGES)]
        self.vectors[11] = self.vectors[7]  # a tie, to the last bit
        self.vectors[12] = self.vectors[7][:0]

    def features(self, n: int) -> np.ndarray:
        owners = self.rng.choice(WORDS, n, p=self.shares)
        return self.centroids[owners] + self.rng.standard_normal((n, DIM)).astype(np.float32) / np.float32(3)

    def fill(self) -> None:
        list(self.index.add_many(((str(image), one, None) for image, one in enumerate(self.vectors)), batch=IMAGES))
        self.index.compact()

    def tables(self, query: ImageWords, living: list[str]) -> Any:
        """Built from what the index gives out for each image, not from its lists."""
        connection = duckdb.connect(config={"threads": 1})
        connection.execute("CREATE TABLE images (id BIGINT, size BIGINT)")
        connection.execute("CREATE TABLE postings (id BIGINT, word INTEGER, high UBIGINT, low UBIGINT)")
        connection.execute("CREATE TABLE query (word INTEGER, high UBIGINT, low UBIGINT)")
        connection.execute(
            "CREATE TABLE pow_table AS SELECT h, CASE WHEN h <= 64 THEN (64 - h) * (64 - h) * (64 - h) ELSE 0 END "
            "AS value FROM range(129) t(h)"
        )
        images = {self.index.id(name): self.index.words_of(name) for name in living}
        load(connection, "images", [(image, len(words)) for image, words in images.items()])
        load(connection, "postings", [(image, *row) for image, words in images.items() for row in rows(words)])
        load(connection, "query", rows(query))
        return connection


def load(connection: Any, table: str, values: Sequence[tuple[int, ...]]) -> None:
    if values:
        text = ", ".join(f"({', '.join(map(str, row))})" for row in values)
        connection.execute(f"INSERT INTO {table} VALUES {text}")


def our_sums(snapshot: Snapshot, query: ImageWords) -> dict[int, int]:
    found: dict[int, int] = {}
    for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
        codes = snapshot.layout.for_scan(query.codes)
        sums = accumulate(segment.postings, query.words, codes, power_selectivity(DIM, 3, 0.0))
        pairs = zip(segment.images.tolist(), sums.tolist(), alive.tolist(), strict=False)
        found |= {image: total for image, total, living in pairs if living}
    return found


def compare(collection: Collection, query: ImageWords, living: list[str]) -> dict[int, int]:
    connection = collection.tables(query, living)
    theirs = {int(image): int(total) for image, total, _ in connection.execute(SUMS).fetchall()}
    ranked = connection.execute(RANKING).fetchall()
    connection.close()
    assert our_sums(collection.index._contents.snapshot(), query) == theirs
    found = collection.index.search(query, None, config=SearchConfig())
    assert found.ids.tolist() == [image for image, _ in ranked]
    norm = (1 << 18) * np.sqrt(max(len(query), 1))
    np.testing.assert_allclose(found.scores, [score / norm for _, score in ranked], rtol=1e-13)
    return theirs


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_rankings(tmp_path: Path, seed: int) -> None:
    collection = Collection(tmp_path, seed)
    collection.fill()
    living = [str(image) for image in range(IMAGES)]
    for assignments, n in ((1, 30), (5, 80), (5, 0)):
        query = collection.index.query(collection.features(n), assignments)
        theirs = compare(collection, query, living)
        assert theirs[7] == theirs[11]
        assert theirs[12] == 0
        assert (sum(value > 0 for value in theirs.values()) > IMAGES // 2) == (n > 0)


@pytest.mark.parametrize("seed", range(2))
def test_with_deleted_and_replaced_images(tmp_path: Path, seed: int) -> None:
    collection = Collection(tmp_path, 100 + seed)
    collection.fill()
    gone = [str(image) for image in collection.rng.choice(IMAGES, 20, replace=False)]
    collection.index.delete(gone)
    living = [str(image) for image in range(IMAGES) if str(image) not in gone]
    for name in living[:5]:  # new ids, in the journal
        collection.index.add(name, collection.features(25))
    query = collection.index.query(collection.features(60))
    before = compare(collection, query, living)
    collection.index.compact()
    assert compare(collection, query, living) == before
