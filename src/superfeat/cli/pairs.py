"""superfeat pairs-from-labels: which photos of one thing verifiably show the same view."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.accounts import accounts_for_files, as_told
from superfeat.cli.lines import Progress
from superfeat.cli.terminal import Told, json_option, print_result, weights_option, workers_option
from superfeat.config import DEFAULT_WEIGHTS

if TYPE_CHECKING:
    from superfeat.geometry.pairs import VectorsOf

PATH = click.Path(path_type=Path)
KINDS = ("sift", "xfeat", "aliked", "disk")


@click.command("pairs-from-labels")
@click.argument("images", type=PATH)
@click.option("--labels", type=PATH, help="CSV with the columns image and thing. [default: one sub-folder per thing]")
@click.option("--output", "-o", required=True, type=PATH, help="CSV of pairs, for train --pairs.")
@click.option("--keypoints", "kind", default="sift", type=click.Choice(KINDS), show_default=True)
@click.option("--inliers", type=int, help="Least matches that agree. [default: 20 with sift, 25 with others]")
@click.option("--exhaustive", type=int, help="Look at all pairs of things with at most so many photos. [default: 200]")
@click.option("--neighbours", type=int, help="Of larger things, at the nearest of each photo. [default: 30]")
@click.option("--vouchers", type=int, help="Also take pairs that do not agree where so many photos agree with both.")
@weights_option
@workers_option
@json_option
@accounts_for_files
def pairs_from_labels(
    images: Path,
    labels: Path | None,
    output: Path,
    kind: str,
    inliers: int | None,
    exhaustive: int | None,
    neighbours: int | None,
    vouchers: int | None,
    weights: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Find pairs of photos that show the same view among the photos of each thing below IMAGES.

    A label names a place: its other sides, rooms and details are photos of it too, and would teach a network that
    they look alike. A pair is kept where many local features agree on one homography. Things with many photos are
    looked through with the network's help. With --vouchers 4 two photos are a pair too where four others agree with
    both: views by day and night, from near and far, that local features cannot match.
    """
    from superfeat.datasets.folders import read_folders
    from superfeat.datasets.labelled import read_labelled
    from superfeat.extraction.extract import default_workers, keep_memory
    from superfeat.geometry import pairs

    keep_memory()
    training_set = read_labelled(labels, images) if labels else read_folders(images)
    chosen = {"inliers": inliers, "exhaustive": exhaustive, "neighbours": neighbours, "vouchers": vouchers}
    given = {name: value for name, value in chosen.items() if value is not None}
    rules = pairs.PairRules(kind=kind, **given)  # type: ignore[arg-type]
    threads = workers or default_workers()
    found: list[pairs.VerifiedPair] = []
    things: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    progress = Progress("photos", len(training_set.photos))
    done = 0
    for thing in pairs.pairs_from_labels(training_set, rules, vectors=_pooled(weights, threads), workers=threads):
        found += thing.pairs
        paired = {number for pair in thing.pairs for number in (pair.a, pair.b)}
        things.append({"thing": thing.name, "images": thing.photos, "paired": len(paired), "pairs": len(thing.pairs)})
        skipped += as_told(thing.skipped)
        progress.at(done := done + thing.photos)
    progress.done()
    pairs.write_pairs(output, training_set.photos, found)
    result = {"output": str(output), "pairs": len(found), "things": things, "skipped": skipped}
    print_result(result, as_json, _report)


def _pooled(weights: str, workers: int) -> "VectorsOf":
    """A network's pooled vectors, loaded when they are first asked for."""
    import numpy as np

    def vectors(photos: Any) -> Any:
        from superfeat.config import ExtractConfig
        from superfeat.extraction.extract import EVERY_FEATURE, extract, pool_features
        from superfeat.weights import load_network

        config = ExtractConfig(features_per_image=EVERY_FEATURE, max_side=320, scales=(1.0,))
        network = load_network(weights or DEFAULT_WEIGHTS).without_points()
        found = extract(network, photos, config, workers=workers)
        return np.concatenate([pool_features(features).vectors for features in found])

    return vectors


def _report(result: Told) -> Iterable[str]:
    things = result["things"]
    yield f"{result['output']}: {result['pairs']} pairs in {sum(thing['pairs'] > 0 for thing in things)} things"
    for thing in things:
        yield f"  {thing['pairs']:6d} pairs of {thing['paired']} of {thing['images']} photos  {thing['thing']}"
