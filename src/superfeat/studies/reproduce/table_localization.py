"""Appendix, visual localization: percent of queries localized, by retrieval, on scenes with known poses."""

from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.extract import extract_to
from superfeat.figures import Panel, Series
from superfeat.mapping.measure import LEVELS, LocalizationScore, measure_localization
from superfeat.mapping.retrieval import similarities
from superfeat.mapping.scenes import read_scenes
from superfeat.sources.listing import list_photos
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study
from superfeat.weights import load_network

PAPER_COLUMNS = ("day_025m_2deg", "day_05m_5deg", "day_5m_10deg")


def run(study: Study) -> Outcome:
    """FIRe with ASMK beside the same network pooled. The paper's rows are of Aachen, with other local features."""
    if study.images is None:
        raise SuperfeatError(
            "this table needs scenes with poses (docs/mapping.md); give their folder", arguments=["images"]
        )
    scenes, work = read_scenes(study.images), study.work / "localization"
    photos = list_photos([study.images]).photos
    network = load_network(study.weights or DEFAULT_WEIGHTS)
    config = ExtractConfig.profile(DEFAULT_PROFILE)
    steps = extract_to(work / "features", network, photos, config, workers=study.workers, device=study.device)
    for done, _ in enumerate(steps, 1):
        study.on_progress("extracting", done, len(photos))
    asmk, pooled = similarities(scenes, work / "features", work / "retrieval")
    measuring = measure_localization(scenes, work / "map", {"ASMK": asmk, "pooled": pooled})
    for step in measuring:
        study.on_progress(step.doing, step.done, step.total)
    return outcome(measuring.result())


def outcome(scores: list[LocalizationScore]) -> Outcome:
    """Our rows, then the paper's by day; by night there is nothing of ours."""
    paper = published("table-localization")
    levels = [f"{metres:g} m, {degrees:g} deg" for metres, degrees in LEVELS]
    rows = [[f"ours, {one.method}", one.top, *one.percent] for one in scores]
    places = [paper["columns"].index(column) for column in PAPER_COLUMNS]
    rows += [
        [f"paper, Aachen by day, {row[0]}", paper["retrieved"], *(row[n] for n in places)] for row in paper["rows"]
    ]
    series = [
        Series(name, [str(one.top) for one in scores if one.method == name], _strictest(scores, name))
        for name in dict.fromkeys(one.method for one in scores)
    ]
    best = {name: max(_strictest(scores, name)) for name in ("ASMK", "pooled")}
    finding = f"within {levels[0]}: {best['ASMK']:.1f} % with ASMK at best, {best['pooled']:.1f} % pooled"
    panel = Panel("Localized on these scenes", "photos retrieved", f"percent within {levels[0]}", series)
    return Outcome(["method", "top", *levels], rows, finding, best["ASMK"] >= best["pooled"], [panel], bars=True)


def _strictest(scores: list[LocalizationScore], name: str) -> list[float]:
    return [one.percent[0] for one in scores if one.method == name]
