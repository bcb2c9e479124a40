"""Appendix, visual localization: percent of queries localized, by retrieval, on Aachen or scenes with known poses."""

from pathlib import Path
from typing import NoReturn

from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.extract import extract_to
from superfeat.figures import Panel, Series
from superfeat.mapping.aachen import AACHEN, POSES, is_aachen, read_aachen, write_all_poses
from superfeat.mapping.measure import LEVELS, RESULTS, LocalizationScore, measure_localization, read_results
from superfeat.mapping.retrieval import photos_to_extract, similarities
from superfeat.mapping.scenes import LocalizationSet, read_scenes
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study
from superfeat.weights import load_network

PAPER_LEVELS = ("025m_2deg", "05m_5deg", "5m_10deg")
LIGHTS = ("day", "night")


def run(study: Study) -> Outcome:
    """FIRe with ASMK beside the same network pooled. The paper's rows are of Aachen, with R2D2's points."""
    if study.images is None:
        raise SuperfeatError(
            f"this table needs {AACHEN} or scenes with poses (docs/mapping.md); give their folder", arguments=["images"]
        )
    scenes, work = _read(study.images), study.work / "localization"
    photos = photos_to_extract(scenes)
    network = load_network(study.weights or DEFAULT_WEIGHTS)
    config = ExtractConfig.profile(DEFAULT_PROFILE)
    steps = extract_to(work / "features", network, photos, config, workers=study.workers, device=study.device)
    for done, _ in enumerate(steps, 1):
        study.on_progress("extracting", done, len(photos))
    asmk, pooled = similarities(scenes, work / "features", work / "retrieval")
    measuring = measure_localization(scenes, work / "map", {"ASMK": asmk, "pooled": pooled})
    for step in measuring:
        study.on_progress(step.doing, step.done, step.total)
    if not scenes.queries.poses:
        _for_the_server(scenes, work)
    return outcome(measuring.result())


def _read(images: Path) -> LocalizationSet:
    """Aachen, in the folder or below it by its name; or else scenes."""
    for folder in (images, images / AACHEN):
        if is_aachen(folder):
            return read_aachen(folder)
    return read_scenes(images)


def _for_the_server(scenes: LocalizationSet, work: Path) -> NoReturn:
    """There is no table without true poses: says where those are that were found."""
    written = write_all_poses(work / "poses", read_results(work / "map" / RESULTS), scenes)
    raise SuperfeatError(
        f"the true poses of {AACHEN}'s queries are not published, and visuallocalization.net alone can measure those "
        f"that were found: send it {written[-1]}, or one of the {len(written) - 1} others beside it; if you have true "
        f"poses, put them into {POSES} of the set, and nothing is matched again"
    )


def outcome(measured: list[LocalizationScore]) -> Outcome:
    """Our rows, then the paper's, by day and by night."""
    scores = [one for one in measured if one.percent]  # true poses of a group may be unknown
    paper = published("table-localization")
    levels = [f"{metres:g} m, {degrees:g} deg" for metres, degrees in LEVELS]
    rows = [[", ".join(["ours", one.method, *filter(None, [one.group])]), one.top, *one.percent] for one in scores]
    for light in LIGHTS:
        places = [paper["columns"].index(f"{light}_{level}") for level in PAPER_LEVELS]
        rows += [
            [f"paper, Aachen by {light}, {row[0]}", paper["retrieved"], *(row[n] for n in places)]
            for row in paper["rows"]
        ]
    kinds = dict.fromkeys((one.method, one.group) for one in scores)
    series = [
        Series(" ".join(kind).strip(), [str(one.top) for one in _of(scores, *kind)], _strictest(_of(scores, *kind)))
        for kind in kinds
    ]
    best = {kind: max(_strictest(_of(scores, *kind))) for kind in kinds}
    groups = dict.fromkeys(one.group for one in scores)
    found = [
        f"{best['ASMK', group]:.1f} % {f'by {group} ' if group else ''}with ASMK at best, "
        f"{best['pooled', group]:.1f} % pooled"
        for group in groups
    ]
    agrees = all(best["ASMK", group] >= best["pooled", group] for group in groups)
    panel = Panel("Localized", "photos retrieved", f"percent within {levels[0]}", series)
    finding = f"within {levels[0]}: {'; '.join(found)}"
    return Outcome(["method", "top", *levels], rows, finding, agrees, [panel], bars=True)


def _of(scores: list[LocalizationScore], method: str, group: str) -> list[LocalizationScore]:
    return [one for one in scores if (one.method, one.group) == (method, group)]


def _strictest(scores: list[LocalizationScore]) -> list[float]:
    return [one.percent[0] for one in scores]
