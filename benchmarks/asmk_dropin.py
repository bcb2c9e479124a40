"""How fast the drop-in for `asmk` searches, beside lists per word in plain numpy; equal scores.

    python -m benchmarks.asmk_dropin --json results/asmk_dropin.json     # quiet machine; 1000 and 20 000 images

Calls are those that users make: `IVF.add`, `IVF.search` with a kernel's similarity, all images ranked. Both sides get
the same words and codes, one thread each.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.asmk_per_word import PerWordIndex
from benchmarks.search import WORDS, WORDS_PER_IMAGE, WORDS_PER_QUERY, Collection, interleaved
from superfeat.asmk.codebook import Codebook
from superfeat.asmk.hamming import from_bytes
from superfeat.asmk.inverted_file import IVF
from superfeat.asmk.kernel import ASMKKernel

PARTS = 4  # 128 bits as uint32


def compare(collection: Collection, images: int, query_words: int, rounds: int) -> dict[str, Any]:
    """Search over that many images."""
    drawn = list(collection.images(0, images))
    codes = from_bytes(np.concatenate([codes for _, codes in drawn]), PARTS)
    words = np.concatenate([words for words, _ in drawn]).astype(np.int64)
    ids = np.repeat(np.arange(images), [len(words) for words, _ in drawn])
    kernel = ASMKKernel(Codebook(size=collection.words), binary=True)
    lists, plain = IVF(codebook_size=collection.words), PerWordIndex(collection.words)

    for one in drawn:
        plain.add(*one)
    plain.finish()
    lists.add(codes, words, ids)

    def similarity(*given: Any) -> Any:
        return kernel.similarity(*given, alpha=3.0, similarity_threshold=0.0)

    queries = [collection.query(number, query_words) for number in range(rounds)]
    asked = [(from_bytes(query.codes, PARTS), query.words.astype(np.int64)) for query in queries]
    for query, ours in zip(queries, asked, strict=True):
        ranks, scores = lists.search(*ours, similarity_func=similarity, topk=None)
        order, wanted = plain.search(query.words, query.codes, images)
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-6)
        np.testing.assert_allclose(scores[np.argsort(ranks)], wanted[np.argsort(order)], rtol=0, atol=1e-6)
    coming = iter(queries * 3), iter(asked * 3)

    def theirs() -> None:
        query = next(coming[0])
        plain.search(query.words, query.codes, images)

    found = interleaved(theirs, lambda: lists.search(*next(coming[1]), similarity_func=similarity, topk=None), rounds)
    return {"images": images, **found}


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
    text = json.dumps({"cores": os.cpu_count(), "search": rows}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
