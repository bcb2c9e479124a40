"""What a second look at the first results is worth: re-ranking, groups of duplicates, and its time.

    python -m benchmarks.verification rerank --weights NETWORK --codebook CODEBOOK --data ../shared/data \
        --features FOLDER --json benchmarks/results/rerank.json [--matcher] [--folders 50]
    python -m benchmarks.verification duplicates ... [--calibration FILE]
    python -m benchmarks.verification time --images 100000 --json benchmarks/results/verification_time.json

Features that are not in FOLDER are extracted into it with the profile `fast` and the places of features (it can be
stopped and goes on). Which photos are alike enough for diffusion is told by the calibration beside the codebook, or
without one by the collection. --folders orders what is found in small folders with a single match, drawn from a set.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.calibration import read_calibration
from benchmarks.labelled_sets import ALONE, VALIDATION, add_set_arguments, read_set
from benchmarks.search import Collection
from superfeat.config import CALIBRATION, SearchConfig
from superfeat.datasets.retrieval_set import Query
from superfeat.duplicates import Group, find_duplicates
from superfeat.evaluation.metrics import average_precision, paired_bootstrap
from superfeat.evaluation.searching import names_in, numbered, stored_queries
from superfeat.features import Hit
from superfeat.index.build import add_features
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.names import Image
from superfeat.index.places import encode_places
from superfeat.index.segments import Layout, build_segment
from superfeat.index.snapshot import Snapshot
from superfeat.probability.apply import background_for, link_floor
from superfeat.probability.comparing import Labelled, index_sets
from superfeat.probability.model import Calibration
from superfeat.probability.together import TOP
from superfeat.rerank.geometry import PlacedWords, place_features
from superfeat.rerank.look import (
    SearchedWith,
    SeenPhoto,
    look_again,
    reorder_by_diffusion,
    reorder_by_geometry,
    widened,
)
from superfeat.rerank.order import COMPARED, FIRST
from superfeat.rerank.strangers import hardly_strangers, measure_strangers, sample_images

METHODS = ("off", "geometry", "expand", "diffuse")
SEGMENT, SHAPE = 32768, (4, 3)  # images of a segment, and width and height of drawn photos


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for work in (rerank, duplicates):
        verb = verbs.add_parser(work.__name__)
        verb.set_defaults(work=work)
        add_set_arguments(verb, VALIDATION)
        verb.add_argument("--calibration", type=Path, help="how strangers score [beside the codebook], and who is one")
    verbs.choices["rerank"].add_argument("--matcher", action="store_true", help="also match the first 20 by SIFT")
    verbs.choices["rerank"].add_argument("--folders", type=int, help="photos of small folders with one match each")
    verb = verbs.add_parser("time")
    verb.set_defaults(work=measure_time)
    verb.add_argument("--images", type=int, default=100_000)
    verb.add_argument("--words", type=int, default=65536)
    verb.add_argument("--words-per-image", type=int, default=300)
    verb.add_argument("--rounds", type=int, default=30)
    verb.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    facts = args.work(args)
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


# -- Re-ranking


class Orders(NamedTuple):
    """The average precision of each query, by method."""

    precisions: dict[str, list[float]]
    milliseconds: dict[str, list[float]]


def rerank(args: argparse.Namespace) -> dict[str, Any]:
    """mAP of each method (Hard where a set has it), and the paired bootstrap of its gain over none."""
    codebook, facts = Codebook.open(args.codebook), dict[str, dict[str, Any]]()
    beside = args.calibration or args.codebook.parent / CALIBRATION
    calibration = read_calibration(beside) if beside.exists() else None
    for source in args.sets:
        labelled = read_set(source, args)
        if args.folders:
            found = order_folders(codebook, labelled, calibration, args.folders)
        else:
            found = order_set(codebook, labelled, calibration, args.matcher)
        base = np.asarray(found.precisions["off"])
        facts[source] = {
            method: {
                "map": 100 * float(np.nanmean(values)),
                "gain": paired_bootstrap(base, np.asarray(values)),
                "ms": float(np.median(found.milliseconds[method])),
            }
            for method, values in found.precisions.items()
        }
        for method, one in facts[source].items():
            gain = one["gain"]
            spread = f"{100 * gain['difference']:+.2f} ({100 * gain['low']:+.2f} to {100 * gain['high']:+.2f})"
            print(f"| {source} | {method} | {one['map']:.1f} | {spread} | {one['ms']:.1f} |", flush=True)
    return facts


def order_set(codebook: Codebook, labelled: Labelled, calibration: Calibration | None, matcher: bool) -> Orders:
    """Every query in every order; the calibration says how strangers score."""
    methods = (*METHODS, "matcher") if matcher else METHODS
    orders = Orders({name: [] for name in methods}, {name: [] for name in methods})
    with tempfile.TemporaryDirectory() as folder:
        index = index_sets(Path(folder, "index"), codebook, [labelled])
        numbers, snapshot = numbers_of(index, labelled), index.snapshot()
        floor = link_floor(index, calibration, index.config.search)
        assert floor is not None
        photos = dict(placed_images(index, labelled))
        names = names_in(labelled.store, labelled.test)
        asked = stored_queries(labelled.store, names)
        for query, features in zip(labelled.test.queries, asked, strict=True):
            if features is None:
                continue
            words = index.query(features)
            searched = SearchedWith(snapshot, words, place_features(words, features), index.config.search)
            hits = [hit for hit in snapshot.search(words, searched.config) if numbers[hit.id] not in set(query.junk)]
            for method in methods:
                began = time.perf_counter()
                order = ORDERS[method](SetQuery(index, labelled, searched, hits, photos, query, floor))
                orders.milliseconds[method].append(1e3 * (time.perf_counter() - began))
                ranking = np.asarray([numbers[hit.id] for hit in order], np.int64)
                orders.precisions[method].append(precision(query, ranking, set(numbers.values())))
    return orders


def order_folders(codebook: Codebook, labelled: Labelled, calibration: Calibration | None, photos: int) -> Orders:
    """Every query in a folder of its own, with one photo of its thing and strangers."""
    orders = Orders({"off": [], "diffuse": []}, {"off": [], "diffuse": []})
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        index = index_sets(Path(folder, "index"), codebook, [labelled])
        config, ids = index.config.search, {number: image for image, number in numbers_of(index, labelled).items()}
        asked = stored_queries(labelled.store, names_in(labelled.store, labelled.test))
        for query, features in zip(labelled.test.queries, asked, strict=True):
            right = [number for number in query.hard or query.positives if number in ids]
            others = sorted(set(ids) - {*query.positives, *query.junk})
            if features is None or not right:
                continue
            chosen = [rng.choice(right), *rng.choice(others, photos - 1, replace=False)]
            images = [one for one in index.snapshot().words_of_many([ids[number] for number in chosen]) if one]
            small = Snapshot.in_memory(index.snapshot().layout, images)
            background = None if calibration is None else background_for(calibration, codebook.digest)
            null = measure_strangers(small, sample_images(small), background, config).null
            searched = SearchedWith(small, index.query(features), None, config)
            hits = list(small.search(searched.words, config))
            for method, order in (
                ("off", hits),
                ("diffuse", reorder_by_diffusion(searched, hits, hardly_strangers(null))),
            ):
                orders.precisions[method].append(1 / (1 + [hit.id for hit in order].index(0)))
                orders.milliseconds[method].append(0.0)
    return orders


class SetQuery(NamedTuple):
    """A query of a set, and what was found first."""

    database: Index
    labelled: Labelled
    searched: SearchedWith
    hits: list[Hit]
    photos: dict[int, PlacedWords]
    query: Query
    floor: float  # of similarities that count


def look(asked: SetQuery, hits: Sequence[Hit]) -> list[SeenPhoto]:
    """As the engine does it, with places that are in memory."""
    metas = {
        hit.name: {"places": encode_places(asked.photos[hit.id].places), "size": asked.photos[hit.id].size}
        for hit in hits[:FIRST]
    }
    return look_again(asked.searched, hits, metas)


def by_expansion(asked: SetQuery) -> list[Hit]:
    wider = widened(asked.searched, look(asked, asked.hits))
    if wider is None:
        return asked.hits
    known = {hit.id for hit in asked.hits}
    found = wider.ordered(list(asked.searched.snapshot.search(wider.words, asked.searched.config)))
    return [hit for hit in found if hit.id in known]


def by_keypoints(asked: SetQuery) -> list[Hit]:
    """The first 20 matched by SIFT; those that are certain come first."""
    from superfeat.engine.matching import FIRST_MATCHED, Matcher
    from superfeat.images import read_image

    matcher = MATCHERS.setdefault("sift", Matcher())
    numbers, test = numbers_of(asked.database, asked.labelled), asked.labelled.test

    def read(path: Path, box: Any) -> Callable[[], np.ndarray]:
        return lambda: read_image(path, max_side=640, box=box)

    mine = asked.query.photo
    certain = []
    for hit in asked.hits[:FIRST_MATCHED]:
        theirs = test.photos[numbers[hit.id]]
        sides = [(str((photo.path, photo.box)), read(photo.path, photo.box)) for photo in (mine, theirs)]
        certain.append(matcher.match(hit.name, *sides).certain)
    order = sorted(range(len(certain)), key=lambda place: not certain[place])
    return [asked.hits[place] for place in order] + asked.hits[FIRST_MATCHED:]


MATCHERS: dict[str, Any] = {}
ORDERS: dict[str, Callable[[SetQuery], list[Hit]]] = {
    "off": lambda asked: asked.hits,
    "geometry": lambda asked: [one.hit for one in reorder_by_geometry(look(asked, asked.hits))],
    "expand": by_expansion,
    "diffuse": lambda asked: reorder_by_diffusion(asked.searched, asked.hits, asked.floor),
    "matcher": by_keypoints,
}


def numbers_of(index: Index, labelled: Labelled) -> dict[int, int]:
    """The number of each image in its set, by id."""
    database = names_in(labelled.store, labelled.test).database
    number = {numbered(0, name): place for place, name in enumerate(database)}
    return {image: number[entry.name] for image, entry in index.snapshot().images()}


def placed_images(index: Index, labelled: Labelled) -> Iterator[tuple[int, PlacedWords]]:
    for name in labelled.images():
        features = labelled.store[name]
        found = place_features(index.query(features, 1), features)
        if found is None:
            raise SystemExit(f"{labelled.store.path} has no places: extract it again, or into another folder")
        yield index.id(numbered(0, name)), found


def precision(query: Query, ranking: np.ndarray, known: set[int]) -> float:
    """Hard, where there are hard ones; of the photos that there are features of."""
    wanted = set(query.hard or query.positives)
    return average_precision(ranking, wanted & known, {*query.junk, *(set(query.positives) - wanted)})


# -- Duplicates


def duplicates(args: argparse.Namespace) -> dict[str, Any]:
    """Of the pairs of one thing, how many are in one group; of the pairs in a group, how many show one thing."""
    codebook, facts = Codebook.open(args.codebook), {}
    given = None if args.calibration is None else read_calibration(args.calibration)
    for source in args.sets:
        labelled = read_set(source, args)
        with tempfile.TemporaryDirectory() as folder:
            index = Index.create(Path(folder, "index"), codebook)
            for _ in add_features(index, labelled.store, set(labelled.images())):
                pass
            groups = [one for one in find_duplicates(index, given) if isinstance(one, Group)]
        facts[source] = one = count_pairs(labelled, groups)
        print(f"| {source} | {one['groups']} | {one['precision']:.3f} | {one['recall']:.3f} |", flush=True)
    return facts


def count_pairs(labelled: Labelled, groups: Sequence[Group]) -> dict[str, Any]:
    """By folders, which are the things of these sets; of two photos that are of none of them nobody knows."""
    names = names_in(labelled.store, labelled.test)
    photos = dict(zip(names.database, labelled.test.photos, strict=True))
    known = set(labelled.images())
    positives = {number for query in labelled.test.queries for number in query.positives}
    thing = {
        name: str(photo.path.parent) if number in positives else f"{name}{ALONE}"
        for number, (name, photo) in enumerate(photos.items())
        if name in known
    }
    sizes = np.unique(list(thing.values()), return_counts=True)[1]
    there, grouped, right = int((sizes * (sizes - 1) // 2).sum()), 0, 0
    for group in groups:
        things = [thing[member.name] for member in group.members]
        counts = np.unique(things, return_counts=True)[1]
        unknown = sum(one.endswith(ALONE) for one in things)
        grouped += (len(things) * (len(things) - 1) - unknown * (unknown - 1)) // 2
        right += int((counts * (counts - 1) // 2).sum())
    return {"groups": len(groups), "precision": right / max(grouped, 1), "recall": right / max(there, 1)}


# -- Time


def measure_time(args: argparse.Namespace) -> dict[str, Any]:
    """A search at so many images: alone, with the verification of the first 100, and with the first 400 diffused and
    20 of them verified, as the engine does it; taking turns.
    """
    collection = Collection(args.words, args.words_per_image)
    snapshot, metas = draw_collection(collection, args.images)
    config, rng = SearchConfig(), np.random.default_rng(1)
    times: dict[str, list[float]] = {"without": [], "with": [], "diffuse": []}
    for number in range(args.rounds + 1):
        query = collection.query(number, 5 * args.words_per_image)
        placed = PlacedWords(query, draw_places(rng, len(query)), SHAPE)
        for kind, spent in times.items():
            searched = SearchedWith(snapshot, query, placed, config)
            began = time.perf_counter()
            hits = list(snapshot.search(query, config, top=COMPARED if kind == "diffuse" else FIRST))
            if kind == "with":
                look_again(searched, hits, metas)
            elif kind == "diffuse":
                look_again(searched, reorder_by_diffusion(searched, hits, 0.0)[:TOP], metas)
            spent.append(1e3 * (time.perf_counter() - began))
    facts = {kind: float(np.median(spent[1:])) for kind, spent in times.items()}  # the first one compiles
    said = ", ".join(f"{kind} {value:.1f} ms" for kind, value in facts.items())
    print(f"{args.images} images: {said}", flush=True)
    return {"images": args.images, "rounds": args.rounds, "milliseconds": facts}


def draw_places(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.concatenate((rng.random((count, 2)), rng.random((count, 2)) / 5), axis=1)


def draw_collection(collection: Collection, count: int) -> tuple[Snapshot, dict[str, dict[str, Any]]]:
    """Images of random words in random places: the more of the hypotheses are tried, the less agrees."""
    layout = Layout(words=collection.words, dim=128, binary=True, codebook="digest")
    rng, segments, metas = np.random.default_rng(0), [], {}
    for first in range(0, count, SEGMENT):
        numbers = range(first, min(first + SEGMENT, count))
        parts = list(collection.images(first, len(numbers)))
        for number, (words, _) in zip(numbers, parts, strict=True):
            metas[str(number)] = {"places": encode_places(draw_places(rng, len(words))), "size": SHAPE}
        rows = [Image(str(number), 0, {}) for number in numbers]
        segments.append(build_segment(layout, numbers, rows, parts))
    alive = tuple(np.ones(len(segment), np.bool_) for segment in segments)
    return Snapshot(layout, tuple(segments), alive), metas


if __name__ == "__main__":
    main()
