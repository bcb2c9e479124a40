"""What a second look at the first results is worth: re-ranking, probabilities, groups of duplicates, and its time.

    python -m benchmarks.verification rerank --weights NETWORK --codebook CODEBOOK --data ../shared/data \
        --features FOLDER --json benchmarks/results/rerank.json [--matcher] [--folders 50]
    python -m benchmarks.verification probability ... --json benchmarks/results/probability.json --write NEW.json
    python -m benchmarks.verification duplicates ... --calibration NEW.json
    python -m benchmarks.verification time --images 100000 --json benchmarks/results/verification_time.json

Features that are not in FOLDER are extracted into it with the profile `fast` and the places of features (it can be
stopped and goes on). Which photos are alike enough for diffusion is told by the calibration beside the codebook, or
without one by the collection. --folders orders what is found in small folders with a single match, drawn from a set.
Probabilities are judged by leaving one collection out: a fit to all others, for each. A fit counts what the queries of
its sets find in random collections, and what all their photos find in those that they themselves fall into. The
calibration that is written is fitted to the sets of --ship alone, whose licences allow it. With --calibration nothing
is fitted, and the sets are judged by that one: by features of int8, say. A codebook may be that of the network's
teacher.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.calibration import DRAWN, FIT, judge, origin_of, read_set, show
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
from superfeat.probability.comparing import Labelled, compare_photos, compare_sets, index_sets
from superfeat.probability.fit import (
    ALL,
    DRAWN_SIZES,
    PADDED_SIZES,
    Results,
    choose_results,
    draw_results,
    fit_results,
    join_results,
    measure_background,
    predict,
    whole_results,
)
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
from superfeat.rerank.strangers import Null, hardly_strangers, measure_strangers, sample_images

VALIDATION = ("terrassa12", "rparis6k_mini_ext", "val_landmarks")
TESTS = ("ukbench50_val", "museum_qs")
SIZES = (*DRAWN_SIZES, ALL, *PADDED_SIZES)
METHODS = ("off", "geometry", "expand", "diffuse")
SEGMENT, SHAPE = 32768, (4, 3)  # images of a segment, and width and height of drawn photos
ALONE = " alone"  # a photo of no thing that is looked for
# Results of which one counts in a fit; 20 of a search follow each other.
DRAWN_EVERY, ASKED_EVERY, OWN_EVERY = 31, 2, 1  # of drawn landmarks; of queries and of a collection's own photos
MIDDLE = (0.5, 0.7)  # of results that are said to be so likely right, 40 to 80 of 100 should be


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, work in (("rerank", rerank), ("probability", probability), ("duplicates", duplicates)):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work)
        verb.add_argument("--weights", help="the network; not needed where there are features of all sets")
        verb.add_argument("--codebook", type=Path, required=True)
        verb.add_argument("--data", type=Path, required=True, help="the folder with gnd/SET.json and the photos")
        verb.add_argument("--features", type=Path, required=True, help="a features folder for each set, by its name")
        verb.add_argument("--sets", nargs="+", default=(*VALIDATION[:2], *FIT) if name == "probability" else VALIDATION)
        verb.add_argument("--set", action="append", default=[], help="of the extraction, e.g. max_side=320")
        verb.add_argument("--json", type=Path)
        verb.add_argument("--matcher", action="store_true", help="also match the first 20 by SIFT (rerank)")
        verb.add_argument("--folders", type=int, help="photos of small folders with one match each (rerank)")
        verb.add_argument("--ship", nargs="+", default=FIT, help="sets that the written calibration is fitted to")
        verb.add_argument("--alike", help="folder with photos of things that look alike: one more set, and fitted to")
        verb.add_argument("--tests", nargs="*", default=(), help="sets to judge what is shipped by, never fitted to")
        verb.add_argument("--kept", type=Path, help="folder that keeps what was found, for other fits (probability)")
        verb.add_argument("--write", type=Path, help="where to write the calibration (probability)")
        verb.add_argument(
            "--calibration", type=Path, help="to judge by, for duplicates, and for rerank [there: beside the codebook]"
        )
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


def read_calibration(path: Path) -> Calibration:
    return Calibration.from_dict(json.loads(path.read_text()))


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
    return [hit for hit in asked.searched.snapshot.search(wider[0], asked.searched.config) if hit.id in known]


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


# -- Probabilities


class Found(NamedTuple):
    """The results of searches in some sets: in random collections, in whole sets, and those of all their photos in the
    collections that these fall into, where they are fitted to.
    """

    background: Null
    random: Results
    whole: Results
    own: Results | None


def find_results(
    args: argparse.Namespace, codebook: Codebook, labelled: Sequence[Labelled], fitted: bool = False
) -> Found:
    """Compares all photos of these sets, or takes what is kept of that."""
    name = " ".join(one.test.name for one in labelled)
    file, fields = None if args.kept is None else args.kept / f"{name}.npz", Found._fields[1 : None if fitted else -1]
    if file is not None and file.is_file() and f"{fields[-1]} labels" in (kept := np.load(file)):
        random, whole, *own = (Results(*(kept[f"{part} {field}"] for field in Results._fields)) for part in fields)
        return Found(Null(*kept["background"].tolist()), random, whole, own[0] if own else None)
    with tempfile.TemporaryDirectory() as folder:
        index = index_sets(Path(folder, "index"), codebook, labelled)
        comparisons = compare_sets(index, labelled)
        photos = compare_photos(index, labelled, [folder_things(one) for one in labelled]) if fitted else None
    background = measure_background(comparisons) if args.background is None else args.background
    found = Found(
        background,
        draw_results(comparisons, background, sizes=SIZES),
        whole_results(comparisons, background),
        None if photos is None else draw_results(photos, background, sizes=SIZES, absent=None),
    )
    if file is not None:
        columns = {
            f"{part} {field}": values
            for part, one in found._asdict().items()
            if part in fields
            for field, values in one._asdict().items()
        }
        np.savez(file, background=np.asarray(background), **columns)
    return found


def probability(args: argparse.Namespace) -> dict[str, Any]:
    """Each collection by a fit to all others; and those that are not fitted to by what is shipped: with clues, with
    scores alone, and by always saying the share.
    """
    codebook, args.background = Codebook(Codebook.open(args.codebook).centroids), None  # of any network: a student
    if args.calibration is not None:
        given = read_calibration(args.calibration)
        args.background = given.background
        return judge_by(given, args, codebook, args.sets)
    alike = [args.alike] if args.alike else []
    sources, shipped = [*args.sets, *alike], [*args.ship, *alike]
    labelled = [read_set(source, args) for source in sources]
    found, origin = find_results(args, codebook, labelled, fitted=True), origin_of(codebook, labelled)
    (results, counted), facts = to_fit(found, sources), dict[str, Any]()
    for number, one in enumerate(labelled):
        rows = results.sets != number
        fitted = fit_results(choose_results(results, rows), found.background, origin, None, counted[rows])
        facts |= judge_set(fitted, found, number, f"{one.test.name} by others")
    written = ship(args, codebook, shipped)
    args.background = written.background
    others = [source for source in sources if source not in shipped]
    return facts | judge_by(written, args, codebook, [*others, *args.tests])


def judge_by(
    calibration: Calibration, args: argparse.Namespace, codebook: Codebook, sources: Sequence[str]
) -> dict[str, Any]:
    """Sets that it was not fitted to, each by itself."""
    facts: dict[str, Any] = {}
    for source in sources:
        one = read_set(source, args)
        facts |= judge_set(calibration, find_results(args, codebook, [one]), 0, f"{one.test.name} by shipped")
    return facts


def judge_set(fitted: Calibration, found: Found, number: int, name: str) -> dict[str, Any]:
    """One of the sets, in random collections and as a whole."""
    facts = {}
    for kind, results in (("drawn", found.random), ("whole", found.whole)):
        part = choose_results(results, results.sets == number)
        facts[f"{kind}: {name}"] = judge_both(fitted, part, f"{kind}: {name}")
    return facts


def to_fit(found: Found, sources: Sequence[str]) -> tuple[Results, np.ndarray]:
    """What a fit is made of, and which of it counts: few of the drawn landmarks, which are more alike than what is
    photographed, half of what queries found, and all that photos found where they belong.
    """
    assert found.own is not None
    parts, counted = ((found.random, ASKED_EVERY), (found.own, OWN_EVERY)), []
    for results, every in parts:
        kept = np.zeros(len(results.sets), np.bool_)
        for number, source in enumerate(sources):
            own = results.sets == number
            kept |= own & (np.cumsum(own) % (DRAWN_EVERY if source == DRAWN else every) == 0)
        counted.append(kept)
    return join_results([results for results, _ in parts]), np.concatenate(counted)


def folder_things(labelled: Labelled) -> dict[str, str]:
    """What each photo shows, by its folder; those of a folder that holds no answer to any query are alone."""
    names = names_in(labelled.store, labelled.test)
    folders = [str(photo.path.parent) for photo in labelled.test.photos]
    known = {folders[number] for query in labelled.test.queries for number in query.positives}
    shown = zip(names.database, folders, strict=True)
    return {name: folder if folder in known else f"{name}{ALONE}" for name, folder in shown}


def judge_both(fitted: Calibration, part: Results, name: str) -> dict[str, Any]:
    """With clues, with those of each result alone, and with scores alone; with the log loss of one who always says the
    share.
    """
    alone = dataclasses.replace(fitted, together=None)
    said = {
        kind: predict(one, part)
        for kind, one in (("clues", fitted), ("alone", alone), ("scores", fitted.without_clues()))
    }
    share = float(np.clip(part.labels.mean(), 1e-9, 1 - 1e-9))
    always = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    facts: dict[str, Any] = {"always": float(always), "results": len(part.labels)}
    show({f"{name}, {kind}": judge(values, part) for kind, values in said.items()})
    for kind, values in said.items():
        one = judge(values, part).reliability
        middle = (values >= MIDDLE[0]) & (values < MIDDLE[1])
        right = float(part.labels[middle].mean()) if middle.any() else None
        facts[kind] = {"error": one.error, "log_loss": one.log_loss, "brier": one.brier}
        facts[kind] |= {"middle": int(middle.sum()), "middle_right": right}
        print(f"  {kind}: log loss {one.log_loss:.3f}, always {always:.3f}; {middle.sum()} said 50-70 %, right {right}")
    return facts


def ship(args: argparse.Namespace, codebook: Codebook, sources: Sequence[str]) -> Calibration:
    """The calibration that comes with the network."""
    labelled = [read_set(source, args) for source in sources]
    found = find_results(args, codebook, labelled, fitted=True)
    results, counted = to_fit(found, sources)
    fitted = fit_results(results, found.background, origin_of(codebook, labelled), None, counted)
    if args.write:
        args.write.write_text(json.dumps(fitted.to_dict(), indent=2) + "\n")
    return fitted


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
