"""superfeat evaluate --localization: how many photos are localized, by retrieval and number of photos retrieved."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superfeat.cli.accounts import as_told
from superfeat.cli.lines import Follow
from superfeat.cli.terminal import Told, print_result

if TYPE_CHECKING:
    from superfeat.mapping.scenes import LocalizationSet

AACHEN = "aachen-v1.1"  # measured by localization, and by nothing else


@dataclasses.dataclass(frozen=True)
class LocalizationChoice:
    """What the command was given."""

    dataset: str  # aachen-v1.1, or a folder of scenes
    output: Path
    weights: str
    images: Path | None = None  # where Aachen's files are
    poses: Path | None = None  # of its queries
    features: Path | None = None
    codebook: Path | None = None
    local: Path | None = None  # the name of a local method, sift by default
    exhaustive: bool = False
    workers: int | None = None
    device: str = "cpu"


def evaluate_localization(choice: LocalizationChoice, as_json: bool) -> None:
    """Extracts, if no features are given, retrieves, matches, and prints a table."""
    from superfeat.mapping.measure import LEVELS, measure_localization
    from superfeat.mapping.retrieval import similarities

    scenes = _read(choice)
    follow, output = Follow(), choice.output
    features = choice.features or _extract(scenes, choice, follow)
    asmk, pooled = similarities(scenes, features, output / "retrieval", choice.codebook)
    methods, local = {"asmk": asmk, "pooled": pooled}, str(choice.local or "sift")
    work = measure_localization(scenes, output / "map", methods, exhaustive=choice.exhaustive, local=local)
    for step in work:
        follow(step.doing, step.done, step.total)
    follow.end()
    counts = {"photos": len(scenes.photos.photos), "queries": len(scenes.queries.photos)}
    counts["judged"] = len(scenes.queries.poses)
    facts: dict[str, Any] = {**counts, "levels": LEVELS, "skipped": as_told(scenes.skipped)}
    if choice.dataset == AACHEN:
        facts["poses"] = _write_poses(scenes, output)
    scores = [one._asdict() for one in work.result()]
    print_result({"scenes": choice.dataset, **facts, "scores": scores}, as_json, _report)


def _read(choice: LocalizationChoice) -> "LocalizationSet":
    from superfeat.errors import DatasetError
    from superfeat.mapping.aachen import LAYOUT, read_aachen
    from superfeat.mapping.scenes import read_scenes

    if choice.dataset != AACHEN and choice.poses is not None:
        raise DatasetError(f"poses are given for {AACHEN} alone: scenes have their own")
    if choice.dataset != AACHEN:
        return read_scenes(choice.dataset)
    if choice.images is None:
        raise DatasetError(f"{AACHEN} needs the folder of its files: give one with {LAYOUT}", arguments=["images"])
    return read_aachen(choice.images, choice.poses)


def _write_poses(scenes: "LocalizationSet", output: Path) -> list[str]:
    from superfeat.mapping.aachen import write_all_poses
    from superfeat.mapping.measure import RESULTS, read_results

    return [str(path) for path in write_all_poses(output / "poses", read_results(output / "map" / RESULTS), scenes)]


def _extract(scenes: "LocalizationSet", choice: LocalizationChoice, follow: Follow) -> Path:
    from superfeat.config import DEFAULT_PROFILE, PROFILES
    from superfeat.extraction.extract import extract_to
    from superfeat.mapping.retrieval import photos_to_extract
    from superfeat.weights import load_network

    photos, features = photos_to_extract(scenes), choice.output / "features"
    network, config = load_network(choice.weights), PROFILES[DEFAULT_PROFILE]
    steps = extract_to(features, network, photos, config, workers=choice.workers, device=choice.device)
    for done, _ in enumerate(steps, 1):
        follow("extracting", done, len(photos))
    return features


def _report(result: Told) -> Iterable[str]:
    levels = "  ".join(f"{metres:g} m, {degrees:g}°" for metres, degrees in result["levels"])
    counted = f"{result['queries']} queries, {result['photos']} photos of the map"
    yield f"{counted}; percent within {levels}" if result["judged"] else counted
    if 0 < result["judged"] < result["queries"]:
        yield f"  the true poses of {result['judged']} queries are known: percent of these"
    for one in result["skipped"]:
        yield f"  left out: {one['name']}: {one['reason']}"
    for one in result["scores"]:
        shares = "  ".join(f"{value:5.1f}" for value in one["percent"])
        found = shares or f"{one['located']} of {one['queries']} have a pose"
        cost = f"{one['right_scene']:4.0%} of the right scene, {one['cpu_seconds']:.2f} CPU-seconds"
        yield f"  {one['method']:12} top {one['top']:4}  {one['group']:6}{found}   ({cost})"
    if result.get("poses"):
        yield f"  poses for visuallocalization.net: {result['poses'][0]} and {len(result['poses']) - 1} more"
        if not result["judged"]:
            yield "  no percentages: the true poses of these queries are not published, and the server measures them"
