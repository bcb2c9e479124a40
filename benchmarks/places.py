"""What precise places are worth: results ordered by geometry, with places of several kinds.

    python -m benchmarks.places --weights NETWORK --codebook CODEBOOK --data ../shared/data --features FOLDER \
        --json benchmarks/results/places.json

stored: centre and spread of a feature's attention as an index notes them, in four bytes. exact: not rounded. scale:
the spread is told by the scale at which a feature was found. part: the largest connected part of what is half as
strong as the strongest place of its attention, in place of all of it; FOLDER keeps these, as photos are looked at once
more. Told are mAP (Hard where a set has it) with its gain over the order of the scores, and how often a right result
among the first 20 has more words that agree than a wrong one has (a half where they have as many).
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from benchmarks.labelled_sets import VALIDATION, add_set_arguments, looks_at, read_set
from benchmarks.verification import numbers_of, precision
from superfeat.datasets.retrieval_set import Query
from superfeat.evaluation.metrics import paired_bootstrap
from superfeat.evaluation.searching import names_in, numbered, own_names, renamed, stored_queries
from superfeat.extraction.extract import extract
from superfeat.features import Features
from superfeat.geometry.keypoints import opencv
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.places import word_regions
from superfeat.probability.comparing import Labelled, index_sets
from superfeat.probability.together import TOP
from superfeat.rerank.geometry import PlacedWords, place_features, verify_photos
from superfeat.rerank.order import FIRST, agreed_scores, descending
from superfeat.weights import load_network

STRONG = 0.5  # of the strongest place of a map: what a part is made of
FINEST = 0.02  # spread at scale 1, where it is told by the scale
Regions = Float32[np.ndarray, "n 4"]
Locate = Callable[[str, Features], Regions]  # by a photo's name and its features


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_set_arguments(parser, VALIDATION)
    args = parser.parse_args(arguments)
    codebook, facts = Codebook.open(args.codebook), dict[str, dict[str, Any]]()
    for source in args.sets:
        labelled = read_set(source, args)
        facts[source] = {}
        for kind, (locate, rounded) in kinds_of(dict(find_parts(labelled, args))).items():
            facts[source][kind] = one = order_by(codebook, labelled, locate, rounded).facts()
            gain, spread = one["gain"], "{:+.2f} ({:+.2f} to {:+.2f})"
            told = spread.format(*(100 * gain[part] for part in ("difference", "low", "high")))
            print(f"| {source} | {kind} | {one['map']:.2f} | {told} | {one['told apart']:.3f} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


# -- Places of several kinds


def kinds_of(parts: Mapping[str, Regions]) -> dict[str, tuple[Locate, bool]]:
    """How features are located, and whether as coarsely as an index notes it."""
    return {
        "stored": (as_they_are, True),
        "exact": (as_they_are, False),
        "scale": (spread_by_scale, True),
        "part": (lambda name, _: parts[name], True),
    }


def as_they_are(name: str, features: Features) -> Regions:
    assert features.regions is not None
    return features.regions


def spread_by_scale(name: str, features: Features) -> Regions:
    assert features.regions is not None
    spreads = np.repeat(FINEST / features.scales[:, None], 2, axis=1)
    return np.concatenate([features.regions[:, :2], spreads], axis=1, dtype=np.float32)


def find_parts(labelled: Labelled, args: argparse.Namespace) -> Iterator[tuple[str, Regions]]:
    """The places of each photo's features by the largest connected part of their maps; kept in the folder."""
    file = args.features / f"{labelled.test.name} parts.npz"
    if file.is_file():
        yield from np.load(file).items()
        return
    if args.weights is None:
        raise SystemExit(f"{file} is not there: give --weights to make it")
    wanted = own_names(labelled.test).photos(labelled.test)
    photos, config = renamed(list(wanted.values()), list(wanted)), looks_at(labelled.test, args, attention="maps")
    kept = {features.name: parts_of(features) for features in extract(load_network(args.weights), photos, config)}
    np.savez(file, allow_pickle=False, **kept)
    yield from kept.items()


def parts_of(features: Features) -> Regions:
    """Centre and spread of the largest part of each map that hangs together; the place of what is a place (HOW)."""
    if features.maps is None:
        return as_they_are("", features)
    return np.stack([part_of(attention) for attention in features.maps])


def part_of(attention: Float32[np.ndarray, "height width"]) -> Float32[np.ndarray, "4"]:
    strong = (attention >= STRONG * attention.max()).astype(np.uint8)
    _, parts = opencv().connectedComponents(strong)
    masses = np.bincount(parts.ravel(), attention.ravel())
    masses[0] = -1  # what is not strong
    kept = np.where(parts == masses.argmax(), attention, 0.0).astype(np.float64)
    kept /= kept.sum()
    axes = [spread_along(kept.sum(axis=axis)) for axis in (0, 1)]
    return np.asarray([axes[0][0], axes[1][0], axes[0][1], axes[1][1]], np.float32)


def spread_along(masses: Float64[np.ndarray, "cells"]) -> tuple[float, float]:
    """Mean and deviation of masses that are spread evenly over equal cells of 0 to 1."""
    cells = len(masses)
    centres = (np.arange(cells) + 0.5) / cells
    mean = float(masses @ centres)
    return mean, float(np.sqrt(masses @ (centres - mean) ** 2 + 1 / (12 * cells**2)))


# -- What they are worth


class Ordered(NamedTuple):
    """The average precision of each query, by score and by geometry; words that agree in right and wrong results."""

    by_score: list[float]
    by_places: list[float]
    right: list[int]
    wrong: list[int]

    def facts(self) -> dict[str, Any]:
        gain = paired_bootstrap(np.asarray(self.by_score), np.asarray(self.by_places))
        mean = 100 * float(np.nanmean(self.by_places))
        return {"map": mean, "gain": gain, "told apart": told_apart(self.right, self.wrong)}


def order_by(codebook: Codebook, labelled: Labelled, locate: Locate, rounded: bool) -> Ordered:
    """Every query's results by score, and the first 100 by score and agreement of such places."""
    ordered, names = Ordered([], [], [], []), names_in(labelled.store, labelled.test)
    with tempfile.TemporaryDirectory() as folder:
        index = index_sets(Path(folder, "index"), codebook, [labelled])

        def place(name: str, features: Features, assignments: int | None) -> PlacedWords:
            moved = dataclasses.replace(features, regions=locate(name, features))
            return place_words(index, moved, assignments, rounded)

        photos = {index.id(numbered(0, name)): place(name, labelled.store[name], 1) for name in labelled.images()}
        asked = zip(labelled.test.queries, names.queries, stored_queries(labelled.store, names), strict=True)
        for query, name, features in asked:
            if features is not None:
                order_query(ordered, index, numbers_of(index, labelled), photos, query, place(name, features, None))
    return ordered


def order_query(
    ordered: Ordered,
    index: Index,
    numbers: Mapping[int, int],
    photos: Mapping[int, PlacedWords],
    query: Query,
    placed: PlacedWords,
) -> None:
    snapshot, config, known = index.snapshot(), index.config.search, set(numbers.values())
    hits = [hit for hit in snapshot.search(placed.image, config) if numbers[hit.id] not in set(query.junk)]
    found = verify_photos(snapshot, placed, [photos[hit.id] for hit in hits[:FIRST]], config)
    order = descending(agreed_scores(np.asarray([hit.score for hit in hits[:FIRST]]), found))
    moved = [hits[row] for row in order.tolist()] + hits[FIRST:]
    for precisions, ranked in ((ordered.by_score, hits), (ordered.by_places, moved)):
        ranking = np.asarray([numbers[hit.id] for hit in ranked], np.int64)
        precisions.append(precision(query, ranking, known))
    for hit, one in zip(hits[:TOP], found, strict=False):
        (ordered.right if numbers[hit.id] in query.positives else ordered.wrong).append(one.inliers)


def place_words(index: Index, features: Features, assignments: int | None, rounded: bool) -> PlacedWords:
    words = index.query(features, assignments)
    placed = place_features(words, features)
    assert placed is not None, "without regions there are no places"
    if rounded:
        return placed
    assert features.regions is not None
    assert words.assigned is not None
    each = np.repeat(features.regions, words.assigned.shape[1], axis=0)
    return dataclasses.replace(placed, places=word_regions(each, words.assigned.ravel(), words.words))


def told_apart(right: Sequence[int], wrong: Sequence[int]) -> float:
    """How often one of the first is larger than one of the others, each with each; a half where they are equal."""
    others = np.sort(wrong)
    below, upto = (np.searchsorted(others, right, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(others)))


if __name__ == "__main__":
    main()
