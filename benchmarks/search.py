"""How fast the index is: against a per-word numpy implementation, and alone at a million images.

    python -m benchmarks.search compare            # 1k, 20k and 100k images, build, aggregation
    python -m benchmarks.search million -o FOLDER  # 1 048 576 images, about 8 GB in FOLDER, kept for the next run

Words are drawn with a skew such that a query's words have lists 2 to 3 times longer than the mean; codes are random.
Both sides get the same words and codes; one thread against one thread unless said.
"""

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.asmk_per_word import PerWordIndex, aggregate_per_word
from superfeat import Codebook, ImageWords, Index
from superfeat.config import SearchConfig
from superfeat.index.kernel import aggregate, binarise
from superfeat.index.names import Image
from superfeat.index.segments import Layout, build_segment
from superfeat.index.snapshot import Snapshot

WORDS, DIM = 65536, 128
WORDS_PER_IMAGE, WORDS_PER_QUERY = 383, 1800
MILLION = 1 << 20
CHUNK = 4096
TOP = 100


class Collection:
    """Images as words and codes, drawn anew from the same seeds whenever they are needed."""

    def __init__(self, words: int = WORDS, per_image: int = WORDS_PER_IMAGE) -> None:
        frequency = 1 / (np.arange(words) + words / 300) ** 0.7
        frequency = np.random.default_rng(7).permutation(frequency)
        self.cumulative = np.cumsum(frequency / frequency.sum())
        self.words, self.per_image = words, per_image

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Distinct words, ascending, `count` of them on average."""
        found = np.searchsorted(self.cumulative, random.random(round(count * (1 + 1.36 * count / self.words))))
        return np.unique(np.minimum(found, self.words - 1)).astype(np.int32)

    def images(self, first: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(first, first + count):
            random = np.random.default_rng((1, number))
            words = self.draw(random, self.per_image)
            yield words, np.frombuffer(random.bytes(16 * len(words)), np.uint8).reshape(-1, 16)

    def query(self, number: int, count: int = WORDS_PER_QUERY) -> ImageWords:
        random = np.random.default_rng((2, number))
        words = self.draw(random, count)
        codes = np.frombuffer(random.bytes(16 * len(words)), np.uint8).reshape(-1, 16)
        return ImageWords(words, codes, "digest")


Clock = Callable[[], float]  # seconds: of the wall, or of the processor beside other work


def timed(function: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    begin = clock()
    function()
    return clock() - begin


def interleaved(
    baseline: Callable[[], Any], ours: Callable[[], Any], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, Any]:
    """Medians and the spread of the ratio, taking turns."""
    ours(), baseline()
    pairs = [(timed(baseline, clock), timed(ours, clock)) for _ in range(rounds)]
    ratios = sorted(a / b for a, b in pairs)
    return {
        "baseline_ms": round(1e3 * float(np.median([a for a, _ in pairs])), 3),
        "ours_ms": round(1e3 * float(np.median([b for _, b in pairs])), 3),
        "times_faster": round(float(np.median(ratios)), 1),
        "spread": [round(ratios[0], 1), round(ratios[-1], 1)],
    }


def bandwidth(gigabytes: float = 1.0, clock: Clock = time.perf_counter) -> float:
    """GB/s of reading memory with one thread."""
    block = np.ones(int(gigabytes * 2**30) // 8, np.int64)
    return block.nbytes / min(timed(lambda: block.max(), clock) for _ in range(3)) / 1e9


def snapshot_of(collection: Collection, count: int) -> tuple[Snapshot, list[Any]]:
    """In memory, in segments of up to 65536 images."""
    layout = Layout(collection.words, DIM, True, "digest")
    segments = []
    for first in range(0, count, 1 << 16):
        some = list(collection.images(first, min(1 << 16, count - first)))
        names = [Image(str(number), 0, {}) for number in range(first, first + len(some))]
        segments.append(build_segment(layout, range(first, first + len(some)), names, some))
    return Snapshot(layout, tuple(segments), tuple(np.ones(len(s), np.bool_) for s in segments)), segments


def compare_search(collection: Collection, count: int, rounds: int) -> dict[str, Any]:
    snapshot, segments = snapshot_of(collection, count)
    counts = sum(np.diff(segment.postings.starts.astype(np.int64)) for segment in segments)
    starts = np.concatenate([[0], np.cumsum(counts)])
    owners = np.concatenate([np.repeat(np.arange(collection.words), np.diff(s.postings.starts)) for s in segments])
    order = np.argsort(owners, kind="stable")
    images = np.concatenate([s.images[s.postings.ids] for s in segments])[order]
    codes = np.concatenate([s.postings.codes for s in segments])[order]
    sizes = np.concatenate([s.sizes for s in segments])
    baseline = PerWordIndex.from_lists(starts, images, codes, sizes)
    queries = [collection.query(number) for number in range(rounds)]
    for query in queries:
        ids, scores = baseline.search(query.words, query.codes, TOP)
        ranking = snapshot.search(query, SearchConfig(), top=TOP)
        assert np.allclose(ranking.scores, scores, rtol=1e-12)
        changed = ranking.ids != ids
        assert np.allclose(ranking.scores[changed], scores[changed], rtol=1e-12)
    coming = iter(queries * 3), iter(queries * 3)

    def theirs() -> None:
        query = next(coming[0])
        baseline.search(query.words, query.codes, TOP)

    result = interleaved(theirs, lambda: snapshot.search(next(coming[1]), SearchConfig(), top=TOP), rounds)
    scanned = int(np.median([counts[query.words].sum() for query in queries]))
    return {"images": count, "postings_scanned": scanned, **result}


def compare_build(collection: Collection, count: int) -> dict[str, Any]:
    """Words and codes -> lists, in memory on both sides."""
    images = list(collection.images(0, count))
    layout = Layout(collection.words, DIM, True, "digest")
    names = [Image(str(number), 0, {}) for number in range(count)]

    def loop() -> None:
        index = PerWordIndex(collection.words)
        for words, codes in images:
            index.add(words, codes)
        index.finish()

    return {"images": count, **interleaved(loop, lambda: build_segment(layout, range(count), names, images), 3)}


def compare_aggregation(features: int, words: int, rounds: int) -> list[dict[str, Any]]:
    """Of one image; the features gather in few words, as those of an image do."""
    random = np.random.default_rng(0)
    centroids = random.standard_normal((words, DIM)).astype(np.float32)
    vectors = random.standard_normal((features, DIM)).astype(np.float32)
    results = []
    for assignments in (1, 5):
        pool = random.choice(words, min(words, 480 * assignments), replace=False)
        chosen = np.stack([random.choice(pool, features) for _ in range(assignments)], axis=1).astype(np.int32)

        def theirs(chosen: np.ndarray = chosen) -> Any:
            return aggregate_per_word(vectors, chosen, centroids)

        def ours(chosen: np.ndarray = chosen) -> Any:
            found, sums = aggregate(vectors, chosen, centroids)
            return found, binarise(sums)

        for a, b in zip(theirs(), ours(), strict=True):
            assert a.shape == b.shape
            assert np.mean(a != b) < 1e-4  # numpy adds in another order: a sum that is nearly zero may change sign
        results.append({"assignments": assignments, **interleaved(theirs, ours, rounds)})
    return results


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    collection = Collection(arguments.words, arguments.words_per_image)
    return {
        "search": [compare_search(collection, count, arguments.rounds) for count in arguments.images],
        "build": compare_build(collection, arguments.build_images),
        "aggregation": compare_aggregation(1000, arguments.words, arguments.rounds),
        "bandwidth_GB_s": round(bandwidth(), 1),
    }


def build_million(collection: Collection, folder: Path, count: int) -> Index:
    """Gone on with if it was interrupted."""
    if not (folder / "manifest.json").is_file():
        centroids = np.random.default_rng(0).standard_normal((collection.words, DIM)).astype(np.float32)
        Index.create(folder, Codebook(centroids))
    index = Index.open(folder)
    digest = index.codebook.digest
    have = len(index)
    coming = (
        (f"{number // 1000:04}/{number:07}.jpg", ImageWords(words, codes, digest), None)
        for number, (words, codes) in enumerate(collection.images(have, count - have), have)
    )
    for added in index.add_many(coming, batch=CHUNK):
        if added.id % (1 << 15) == 0:
            print(f"{added.id} of {count} images", file=sys.stderr, flush=True)
    return index


def list_lengths(snapshot: Snapshot) -> np.ndarray:
    """Postings of each word over all segments."""
    lengths = [np.diff(segment.postings.starts.astype(np.int64)) for segment in snapshot.segments]
    return np.asarray(np.sum(lengths, axis=0))


def search_times(snapshot: Snapshot, queries: list[ImageWords], workers: int) -> list[float]:
    return [timed(partial(snapshot.search, query, SearchConfig(), top=TOP, workers=workers)) for query in queries]


def growth(snapshot: Snapshot, queries: list[ImageWords]) -> list[dict[str, Any]]:
    """How the time of one thread grows with the number of images."""
    steps = []
    for count in (1, 2, 4, 8, 16):
        part = Snapshot(snapshot.layout, snapshot.segments[:count], snapshot.alive[:count])
        steps.append({"images": len(part), "ms": round(1e3 * float(np.median(search_times(part, queries, 1))), 2)})
    return steps


def million(arguments: argparse.Namespace) -> dict[str, Any]:
    collection = Collection(arguments.words, arguments.words_per_image)
    seconds = {"build": timed(lambda: build_million(collection, arguments.output, arguments.images[-1]))}
    seconds["compact"] = timed(Index.open(arguments.output).compact)
    seconds["open"] = float(np.median([timed(lambda: Index.open(arguments.output)) for _ in range(5)]))
    index = Index.open(arguments.output)
    digest, snapshot, info = index.codebook.digest, index.snapshot(), index.info()
    queries = [collection.query(number, arguments.query_words) for number in range(arguments.rounds)]
    queries = [dataclasses.replace(query, codebook=digest) for query in queries]
    lengths = list_lengths(snapshot)
    scanned = float(np.median([lengths[query.words].sum() for query in queries]))
    search_times(snapshot, queries, 2)  # brings all pages into memory
    both = [(search_times(snapshot, [q], 1)[0], search_times(snapshot, [q], 2)[0]) for q in queries * 3]
    one, two = (float(np.median(times)) for times in zip(*both, strict=True))
    folders = [arguments.output / "segments" / str(segment.folder) for segment in snapshot.segments]
    stored = sum((folder / name).stat().st_size for folder in folders for name in ("ids.npy", "codes.npy"))
    query_words = float(np.median([len(query) for query in queries]))
    return {
        **{key: getattr(info, key) for key in ("images", "postings", "words_per_image", "segments")},
        "bytes_per_posting": round(stored / info.postings, 4),
        "bytes_per_posting_with_names_codebook_and_all": info.bytes_per_posting,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "query_words": query_words,
        "postings_scanned": scanned,
        "list_length_over_mean": round(scanned / query_words / float(lengths.mean()), 2),
        "ms_one_thread": round(1e3 * one, 1),
        "ms_two_threads": round(1e3 * two, 1),
        "GB_s_one_thread": round(18 * scanned / one / 1e9, 2),
        "GB_s_two_threads": round(18 * scanned / two / 1e9, 2),
        "bandwidth_GB_s_one_thread": round(bandwidth(), 1),
        "growth_one_thread": growth(snapshot, queries),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["compare", "million"])
    parser.add_argument("-o", "--output", type=Path, help="folder of the large index (default: a temporary one)")
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 20000, 100000])
    parser.add_argument("--build-images", type=int, default=2000)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--words-per-image", type=int, default=WORDS_PER_IMAGE)
    parser.add_argument("--query-words", type=int, default=WORDS_PER_QUERY)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.part == "compare":
        result = compare(chosen)
    else:
        if chosen.images == [1000, 20000, 100000]:
            chosen.images = [MILLION]
        temporary = chosen.output is None
        chosen.output = chosen.output or Path(tempfile.mkdtemp(), "index")
        try:
            result = million(chosen)
        finally:
            if temporary:
                shutil.rmtree(chosen.output.parent)
    text = json.dumps({"cores": os.cpu_count(), **result}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
