"""How fast the drop-in for `asmk` searches, beside lists per word in plain numpy and the package itself; equal scores.

    python -m benchmarks.asmk_dropin --json results/asmk_dropin.json     # quiet machine; 1000 and 20 000 images
    pip install --no-deps --target OTHER asmk faiss-cpu && PYTHONPATH=OTHER python -m benchmarks.asmk_dropin

Calls are those that users make: `IVF.add`, `IVF.search` with a kernel's similarity, all images ranked. All sides get
the same words and codes, one thread each, and take turns. Where the package `asmk` can be imported it is measured too,
and asked for whole searches by `ASMKMethod`, from features to ranks.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.asmk_per_word import PerWordIndex
from benchmarks.search import DIM, WORDS, WORDS_PER_IMAGE, WORDS_PER_QUERY, Collection, interleaved
from superfeat.asmk.codebook import Codebook
from superfeat.asmk.hamming import from_bytes
from superfeat.asmk.inverted_file import IVF
from superfeat.asmk.kernel import ASMKKernel

PARTS = 4  # 128 bits as uint32
TOLERANCE = 1e-6
REFERENCE = "asmk"
PARAMS = {
    "index": {"gpu_id": None},
    "build_ivf": {
        "kernel": {"binary": True},
        "ivf": {"use_idf": False},
        "quantize": {"multiple_assignment": 1},
        "aggregate": {},
    },
    "query_ivf": {
        "quantize": {"multiple_assignment": 5},
        "aggregate": {},
        "search": {"topk": None},
        "similarity": {"similarity_threshold": 0.0, "alpha": 3.0},
    },
}
Found = tuple[np.ndarray, np.ndarray]
Search = Callable[[Any], Found]


def compare(collection: Collection, images: int, query_words: int, rounds: int) -> dict[str, Any]:
    """Search over that many images."""
    drawn = list(collection.images(0, images))
    codes = from_bytes(np.concatenate([codes for _, codes in drawn]), PARTS)
    words = np.concatenate([words for words, _ in drawn]).astype(np.int64)
    ids = np.repeat(np.arange(images), [len(words) for words, _ in drawn])
    lists, plain = IVF(codebook_size=collection.words), PerWordIndex(collection.words)
    for one in drawn:
        plain.add(*one)
    plain.finish()
    added = {"ours": _seconds(lambda: lists.add(codes, words, ids))}
    queries = [collection.query(number, query_words) for number in range(rounds)]
    asked = [(from_bytes(query.codes, PARTS), query.words.astype(np.int64)) for query in queries]
    ours = searching(lists, ASMKKernel(Codebook(size=collection.words), binary=True))
    for query, mine in zip(queries, asked, strict=True):
        assert_equal(ours(mine), plain.search(query.words, query.codes, images))
    found = {
        "per_word": taking_turns(lambda query: plain.search(query.words, query.codes, images), queries, ours, asked)
    }
    if importlib.util.find_spec(REFERENCE):
        package = importlib.import_module(f"{REFERENCE}.inverted_file")
        theirs = package.IVF.initialize_empty(codebook_size=collection.words, use_idf=False)
        added["reference"] = _seconds(lambda: theirs.add(codes, words, ids))
        kernel = importlib.import_module(f"{REFERENCE}.kernel").ASMKKernel(Codebook(size=collection.words), binary=True)
        reference = searching(theirs, kernel)
        for one in asked:
            assert_equal(ours(one), reference(one))
        found["reference"] = taking_turns(reference, asked, ours, asked)
    return {"images": images, "add_seconds": added, **found}


def searching(lists: Any, kernel: Any) -> Search:
    """How callers search: codes and words to ranks and scores."""

    def similarity(*given: Any) -> Any:
        return kernel.similarity(*given, alpha=3.0, similarity_threshold=0.0)

    return lambda asked: lists.search(*asked, similarity_func=similarity, topk=None)


def assert_equal(ours: Found, theirs: Found) -> None:
    """The same scores in order, and the same score for each image."""
    np.testing.assert_allclose(ours[1], theirs[1], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(ours[1][np.argsort(ours[0])], theirs[1][np.argsort(theirs[0])], rtol=0, atol=TOLERANCE)


def taking_turns(baseline: Search, theirs: list[Any], ours: Search, mine: list[Any]) -> dict[str, Any]:
    """Both sides, a query each in turn; the first query twice."""
    coming = iter([theirs[0], *theirs]), iter([mine[0], *mine])
    return interleaved(lambda: baseline(next(coming[0])), lambda: ours(next(coming[1])), len(theirs))


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return round(time.process_time() - began, 3)


def whole_searches(images: int, features: int, words: int, queries: int) -> dict[str, Any]:
    """Both packages from features to ranks, with one codebook: scores beside each other, CPU-seconds of each step."""
    random = np.random.default_rng(3)
    vectors = random.standard_normal((images * features, DIM)).astype(np.float32)
    ids = np.repeat(np.arange(images), features)
    state = {
        "type": "Codebook",
        "params": {"size": words},
        "state": {"centroids": random.standard_normal((words, DIM)).astype(np.float32)},
    }
    took: dict[str, dict[str, float]] = {}
    found: dict[str, Any] = {}
    for side, name in (("reference", REFERENCE), ("ours", "superfeat.asmk")):
        package = {part: importlib.import_module(f"{name}.{part}") for part in ("asmk_method", "codebook", "index")}
        factory = package["index"].initialize_index(gpu_id=None)
        book = package["codebook"].Codebook.initialize_from_state(state, index_factory=factory)
        book.index()
        method = package["asmk_method"].ASMKMethod(PARAMS, {}, codebook=book)
        began = time.process_time()
        method = method.build_ivf(vectors, ids)
        built = time.process_time()
        some = slice(0, queries * features)
        found[side] = method.query_ivf(vectors[some] + 0.1, ids[some])
        took[side] = {"build": round(built - began, 3), "query": round(time.process_time() - built, 3)}
    far = 0.0
    for row in range(queries):
        scores = [found[side][3][row][np.argsort(found[side][2][row])] for side in ("reference", "ours")]
        far = max(far, float(np.abs(scores[0] - scores[1]).max()))
    facts = {"images": images, "features": features, "words": words, "queries": queries}
    return {**facts, "largest_difference_of_scores": far, "cpu_seconds": took}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 20000])
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--words-per-image", type=int, default=WORDS_PER_IMAGE)
    parser.add_argument("--query-words", type=int, default=WORDS_PER_QUERY)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    collection = Collection(chosen.words, chosen.words_per_image)
    rows = [compare(collection, images, chosen.query_words, chosen.rounds) for images in chosen.images]
    facts: dict[str, Any] = {"cores": os.cpu_count(), "reference": None, "search": rows}
    if importlib.util.find_spec(REFERENCE):
        facts["reference"] = f"{REFERENCE} {importlib.metadata.version(REFERENCE.partition('.')[0])}"
        facts["whole"] = whole_searches(min(chosen.images[0], 200), 100, min(chosen.words, 4096), 20)
    text = json.dumps(facts, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
