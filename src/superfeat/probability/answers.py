"""A calibration from yes and no: what people said of the results of their own searches."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from superfeat.errors import DatasetError
from superfeat.features import ImageWords
from superfeat.index.index import Index
from superfeat.index.labels import Said, Searched, read_labels
from superfeat.probability.apply import background_for
from superfeat.probability.clues import CLUES
from superfeat.probability.comparing import origin_of
from superfeat.probability.fit import BACKGROUND_IMAGES, Fitted, Results, fit_results, predict_in_turn
from superfeat.probability.model import Calibration, match_prior
from superfeat.probability.stored import shipped_calibration
from superfeat.rerank.strangers import Null, adapt_null, evidence, measure_strangers, sample_images

LEAST_ANSWERS, LEAST_THINGS = 10, 2  # of yes and of no each, and on how many things


class JudgedResult(NamedTuple):
    """A result that somebody has said yes or no to."""

    query: ImageWords
    found: int
    same: bool
    thing: int


class Judged(NamedTuple):
    """All of them whose photos are in the index, and how many are not."""

    results: list[JudgedResult]
    gone: int

    @property
    def yes(self) -> int:
        return sum(one.same for one in self.results)

    @property
    def no(self) -> int:
        return len(self.results) - self.yes

    @property
    def things(self) -> int:
        return len({one.thing for one in self.results})

    def needed(self) -> str:
        """What is missing before a calibration can be fitted, in words; empty if nothing is."""
        parts = []
        for word, answer, count in (("yes", True, self.yes), ("no", False, self.no)):
            things = len({one.thing for one in self.results if one.same is answer})
            if count < LEAST_ANSWERS:
                parts.append(f"{LEAST_ANSWERS - count} more {word}")
            elif things < LEAST_THINGS:
                parts.append(f"a {word} in a search for another thing")
        return f"needed are {' and '.join(parts)}" if parts else ""


def calibrate_answers(index: Index) -> Fitted:
    """Fits to what was said of results; with few answers, not far from what the index came with."""
    judged = read_judged(index)
    if judged.needed():
        raise DatasetError(
            f"{index.path} has {judged.yes} yes and {judged.no} no to results, on {judged.things} things: "
            f"{judged.needed()}; say yes or no to results, or give labels of photos"
        )
    start, origin = shipped_calibration(index), origin_of(index)
    background, results = compare_answers(index, judged.results, start)
    fitted = fit_results(results, background, origin, start)
    return Fitted(fitted, results, predict_in_turn(results, background, origin, start, folds=judged.things))


def read_judged(index: Index) -> Judged:
    """What was said of results whose photos are there."""
    said = read_labels(index.path)
    ids = _resolve(index, {mark for searched, found in said.labels for mark in (searched.photo, found)})
    things = _group(said)
    results: list[JudgedResult] = []
    for (searched, found), same in said.labels.items():
        words = _words(index, said, searched, ids)
        if words is not None and found in ids:
            results.append(JudgedResult(words, ids[found], same, things[searched.photo]))
    return Judged(results, len(said.labels) - len(results))


def _resolve(index: Index, marks: Iterable[str]) -> dict[str, int]:
    """The ids of photos by what labels know them by; of copies, that of the oldest."""
    known = list(marks)
    named = {mark: mark.removeprefix("name ") for mark in known if mark.startswith("name ")}
    found = index.snapshot().find(list(named.values()))
    ids = {mark: found[name] for mark, name in named.items() if name in found}
    for digest, images in index.find("digest", [mark for mark in known if mark not in named]).items():
        ids[digest] = min(image.id for image in images)
    return ids


def _words(index: Index, said: Said, searched: Searched, ids: dict[str, int]) -> ImageWords | None:
    """What was searched with; None if it is not there any more, or of another codebook."""
    if searched in said.words:
        words = said.words[searched]
        return words if words.codebook == index.snapshot().layout.codebook else None
    whole = searched.box is None and searched.photo in ids
    return index.snapshot().words_of(ids[searched.photo]) if whole else None


def _group(said: Said) -> dict[str, int]:
    """A number for each thing: a yes says that two photos show the same."""
    owner: dict[str, str] = {}

    def root(mark: str) -> str:
        while owner.setdefault(mark, mark) != mark:
            mark = owner[mark]
        return mark

    for (searched, found), same in said.labels.items():
        first = root(searched.photo)
        if same:
            owner[root(found)] = first
    roots = {searched.photo: root(searched.photo) for searched, _ in said.labels}
    numbers = {name: number for number, name in enumerate(dict.fromkeys(roots.values()))}
    return {mark: numbers[name] for mark, name in roots.items()}


def compare_answers(index: Index, judged: Sequence[JudgedResult], start: Calibration | None) -> tuple[Null, Results]:
    """How strangers score beforehand, and how far each judged result stands above those of this collection."""
    snapshot, config = index.snapshot(), index.config.search
    background = None if start is None else background_for(start, snapshot.layout.codebook)
    strangers = measure_strangers(snapshot, sample_images(snapshot), background, config)
    rows = []
    for one in judged:
        null = adapt_null(strangers.null, strangers.images.search(one.query, config).scores)
        score = snapshot.score_of(one.found, one.query, config) or 0.0
        rows.append(float(evidence(np.asarray([score]), null)[0]))
    ones = np.ones(len(judged), np.int64)
    results = Results(
        np.asarray(rows),
        ones * len(index),
        np.asarray([one.same for one in judged], np.bool_),
        np.asarray([one.thing for one in judged], np.int64),
        0 * ones,
        ones * match_prior(strangers.linked, strangers.sample, len(index)),
        np.zeros((len(judged), len(CLUES))),  # of a photo that was sent nobody knows any more where its words lay
        np.arange(len(judged)),
    )
    return background or strangers.null._replace(images=BACKGROUND_IMAGES), results
