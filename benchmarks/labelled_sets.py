"""Sets of photos with queries and right answers, and their features: extracted as far as they are not there yet."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from superfeat.config import EvaluateConfig, ExtractConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.drawn import draw_folder
from superfeat.evaluation.stages import extract_set
from superfeat.extraction.folder import FeatureStore
from superfeat.images import Photo
from superfeat.probability.comparing import Labelled
from superfeat.settings import overlay, parse_assignment

VALIDATION = ("terrassa12", "rparis6k_mini_ext", "val_landmarks")
DRAWN = "drawn"
ALONE = " alone"  # ends the thing of a photo that shows nothing that is looked for
THINGS, VIEWS, SIDE, SEED = 60, 4, 480, 7  # of drawn landmarks; none of them is trained on


def add_set_arguments(parser: argparse.ArgumentParser, sets: Sequence[str]) -> None:
    """What `read_set` needs of a command line, and --json."""
    parser.add_argument("--weights", help="the network; not needed where there are features of all sets")
    parser.add_argument("--codebook", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the folder with gnd/SET.json and the photos")
    parser.add_argument("--features", type=Path, required=True, help="a features folder for each set, by its name")
    kinds = "SET, SET:PREFIX for a part of its photos, a folder, or FOLDER~SET: a folder of --data without what SET has"
    parser.add_argument("--sets", nargs="+", default=sets, help=kinds)
    parser.add_argument("--set", action="append", default=[], help="of the extraction, e.g. max_side=320")
    parser.add_argument("--json", type=Path)


def read_set(source: str, args: argparse.Namespace) -> Labelled:
    """A set, or a folder with a folder of photos for each thing, and its features, extracted as far as they are not
    there.
    """
    name, _, prefix = source.partition(":")
    folder, _, known = source.partition("~")
    if known:
        test = read_others(folder, known, args)
    elif Path(source).is_dir():
        test = dataclasses.replace(read_benchmark(source), name=Path(source).name)
    elif name == DRAWN:
        test = read_drawn(args)
    else:
        test = read_json(name, args)
        test = take_part(test, Path(prefix).name, lambda photo: photo.name.startswith(prefix)) if prefix else test
    features = args.features / test.name
    if not (features / "manifest.json").is_file() or not FeatureStore(features).manifest["complete"]:
        from superfeat.weights import load_network

        if args.weights is None:
            raise SystemExit(f"{features} does not hold all features: give --weights to extract them")
        config = EvaluateConfig(extract=looks_at(test, args))
        for step in extract_set(load_network(args.weights), test, features, config, None, "cpu"):
            if step.done % 50 == 0:
                print(f"{test.name}: {step.done} of {step.total} photos", flush=True)
    return Labelled(test, FeatureStore(features))


def read_json(name: str, args: argparse.Namespace) -> RetrievalSet:
    return read_benchmark(str(args.data / "gnd" / f"{name}.json"), args.data)


def looks_at(test: RetrievalSet, args: argparse.Namespace, **more: object) -> ExtractConfig:
    """How its photos are looked at: the profile `fast`, and what the command line and `more` change."""
    given = dict(parse_assignment(text) for text in args.set)
    changes = {"upright": not test.as_stored, "attention": "regions", **given, **more}
    return overlay(ExtractConfig.profile("fast"), changes)


def read_drawn(args: argparse.Namespace) -> RetrievalSet:
    folder = args.features / "drawn photos"
    for _ in draw_folder(folder, things=THINGS, views=VIEWS, seed=SEED, max_side=SIDE):
        pass
    return dataclasses.replace(read_benchmark(str(folder)), name=DRAWN)


def read_others(folder: str, known: str, args: argparse.Namespace) -> RetrievalSet:
    """The things of a folder of the data that a set has no photos of."""
    seen = {photo.path.parent for photo in read_json(known, args).photos}
    test = dataclasses.replace(read_benchmark(str(args.data / folder)), name=Path(folder).name)
    return take_part(test, f"but {known}", lambda photo: photo.path.parent not in seen)


def read_alone(folder: str, args: argparse.Namespace) -> Labelled:
    """The photos of a folder, none of which is looked for."""
    one = read_set(folder, args)
    return Labelled(dataclasses.replace(one.test, queries=()), one.store)


def read_strangers(features: Path, args: argparse.Namespace, test: RetrievalSet) -> Labelled:
    """The photos of DATA/distractors that are not a set's own, with features that `superfeat extract` made of them."""
    folder, store = args.data / "distractors", FeatureStore(features)
    own = {photo.path for photo in (*test.photos, *(query.photo for query in test.queries))}
    photos = [Photo(folder / name, name) for name in sorted(store.names()) if folder / name not in own]
    return Labelled(RetrievalSet("distractors", tuple(photos), ()), store)


def take_part(test: RetrievalSet, name: str, wanted: Callable[[Photo], bool]) -> RetrievalSet:
    """These photos, and those of the queries that are among them."""
    kept = [number for number, photo in enumerate(test.photos) if wanted(photo)]
    place = {number: new for new, number in enumerate(kept)}

    def moved(numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[number] for number in numbers if number in place)

    queries = [
        Query(query.photo, moved(query.positives), moved(query.junk), moved(query.hard))
        for query in test.queries
        if wanted(query.photo)
    ]
    photos = [test.photos[number] for number in kept]
    return with_positives(f"{test.name} {name}", photos, queries, as_stored=test.as_stored)
