"""superfeat evaluate --localization: how many photos are localized, by retrieval and number of photos retrieved."""

from collections.abc import Iterable
from pathlib import Path

from superfeat.cli.lines import Follow
from superfeat.cli.terminal import Told, print_result


def evaluate_localization(
    folder: Path,
    output: Path,
    weights: str,
    features: Path | None,
    codebook: Path | None,
    exhaustive: bool,
    as_json: bool,
) -> None:
    """Extracts, if no features are given, retrieves, matches, and prints a table."""
    from superfeat.mapping.measure import LEVELS, measure_localization
    from superfeat.mapping.retrieval import similarities
    from superfeat.mapping.scenes import read_scenes

    scenes = read_scenes(folder)
    follow = Follow()
    if features is None:
        features = output / "features"
        _extract(folder, features, weights, follow)
    asmk, pooled = similarities(scenes, features, output / "retrieval", codebook)
    work = measure_localization(scenes, output / "map", {"asmk": asmk, "pooled": pooled}, exhaustive=exhaustive)
    for step in work:
        follow(step.doing, step.done, step.total)
    follow.end()
    facts = {"photos": len(scenes.photos.photos), "queries": len(scenes.queries.photos), "levels": LEVELS}
    scores = [one._asdict() for one in work.result()]
    print_result({"scenes": str(folder), **facts, "scores": scores}, as_json, _report)


def _extract(folder: Path, features: Path, weights: str, follow: Follow) -> None:
    from superfeat.config import DEFAULT_PROFILE, PROFILES
    from superfeat.extraction.extract import extract_to
    from superfeat.sources.listing import list_photos
    from superfeat.weights import load_network

    photos = list_photos([folder]).photos
    for done, _ in enumerate(extract_to(features, load_network(weights), photos, PROFILES[DEFAULT_PROFILE]), 1):
        follow("extracting", done, len(photos))


def _report(result: Told) -> Iterable[str]:
    levels = "  ".join(f"{metres:g} m, {degrees:g}°" for metres, degrees in result["levels"])
    yield f"{result['queries']} queries, {result['photos']} photos of the map; percent within {levels}"
    for one in result["scores"]:
        shares = "  ".join(f"{value:5.1f}" for value in one["percent"])
        cost = f"{one['right_scene']:4.0%} of the right scene, {one['cpu_seconds']:.2f} CPU-seconds"
        yield f"  {one['method']:12} top {one['top']:4}  {shares}   ({cost})"
