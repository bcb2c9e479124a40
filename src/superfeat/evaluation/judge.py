"""From rankings to scores: which answers were right, by the protocol of the set."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.evaluation.metrics import (
    GRADES,
    PRECISION_DEPTHS,
    ns_score,
    positive_ranks,
    precision_recall_curve,
    recall_at,
    score,
)
from superfeat.images import Photo

RECALL_DEPTHS = (1, 10, 100, 1000)
RECALL_LEVELS = np.linspace(0, 1, 101)  # of recall, in a curve
HITS_SHOWN = 10  # hits that are named with each query
MISSED = 3  # positives that are named where they stand lowest


class ImageFacts(TypedDict):
    """Which photo."""

    name: str
    path: str


class JudgedHit(ImageFacts):
    """One that a query found."""

    score: float
    judgement: str  # right, hard, wrong or junk


class LowestFacts(ImageFacts):
    """A positive that stands low."""

    rank: int


class QueryFound(ImageFacts):
    """A query, and what it found."""

    box: list[float] | None
    positives: int
    hits: list[JudgedHit]
    lowest: list[LowestFacts]


class QueryScores(QueryFound):
    """The same with its average precision by each grade; None where it has no right answer."""

    ap: dict[str, float | None]


class Curve(TypedDict):
    """Precision at levels of recall, in percent."""

    recall: list[float]
    precision: list[float]


class GradeScores(TypedDict):
    """The scores of all queries by one grade, in percent; at depths where the key is a number."""

    map: float | None
    mp: dict[str, float | None]
    recall: dict[str, float | None]
    queries: int
    curve: Curve


class _Scores(TypedDict):
    dataset: str
    protocol: str
    grades: dict[str, GradeScores]
    queries: list[QueryScores]


class Scores(_Scores, total=False):
    """scores.json of a run."""

    ns: float  # of UKBench


class Chain:
    """Two lists of photos as one, without a copy."""

    def __init__(self, photos: Sequence[Photo], distractors: Sequence[Photo]) -> None:
        self.photos, self.distractors = photos, distractors

    def __getitem__(self, number: int) -> Photo:
        own = len(self.photos)
        return self.photos[number] if number < own else self.distractors[number - own]


@dataclasses.dataclass(frozen=True)
class GradedRanking:
    """What a query found: numbers and scores, best first, and for each grade the places of its positives."""

    numbers: Int64[np.ndarray, "ranked"]
    scores: Float64[np.ndarray, "ranked"]
    ranks: dict[str, Int64[np.ndarray, "_"]]
    wanted: dict[str, int]
    lowest: list[tuple[int, int]]  # rank and number of the positives that stand lowest


def grades_of(test: RetrievalSet) -> tuple[str, ...]:
    """What the answers are judged by."""
    return tuple(GRADES) if test.protocol == "revisited" else ("all",)


def lists_of(query: Query, grade: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The positives and the junk of a query under a grade."""
    if grade == "all":
        return query.positives, query.junk
    parts = {"easy": query.easy, "hard": query.hard, "junk": query.junk}
    right, ignored = GRADES[grade]
    return tuple(n for name in right for n in parts[name]), tuple(n for name in ignored for n in parts[name])


def grade_ranking(
    query: Query, grades: Iterable[str], numbers: Int64[np.ndarray, "ranked"], scores: Float64[np.ndarray, "ranked"]
) -> GradedRanking:
    """Judges a whole ranking."""
    ranks, wanted = {}, {}
    for grade in grades:
        ranks[grade], wanted[grade] = positive_ranks(numbers, *lists_of(query, grade))
    judged = numbers[~np.isin(numbers, query.junk)]
    places = np.flatnonzero(np.isin(judged, query.positives))[-MISSED:]
    lowest = [(int(place), int(judged[place])) for place in places[::-1]]
    return GradedRanking(numbers, scores, ranks, wanted, lowest)


def shortened(one: GradedRanking) -> GradedRanking:
    """What is shown of a ranking: the whole of it is on disk, and need not stay in memory."""
    return dataclasses.replace(one, numbers=one.numbers[:HITS_SHOWN].copy(), scores=one.scores[:HITS_SHOWN].copy())


def judge(test: RetrievalSet, answers: Sequence[GradedRanking], distractors: Sequence[Photo] = ()) -> Scores:
    """The scores of a run in percent, over all queries and for each. Distractors are numbered after the photos."""
    photos = Chain(test.photos, distractors)
    judged = {grade: _grade(answers, grade) for grade in grades_of(test)}
    found: Scores = {
        "dataset": test.name,
        "protocol": test.protocol,
        "grades": {grade: scores for grade, (scores, _) in judged.items()},
        "queries": [
            {**_query(photos, query, one), "ap": {grade: _percent(aps[number]) for grade, (_, aps) in judged.items()}}
            for number, (query, one) in enumerate(zip(test.queries, answers, strict=True))
        ],
    }
    if test.protocol == "ukbench":
        positives = [query.positives for query in test.queries]
        found["ns"] = round(ns_score([one.numbers for one in answers], positives), 4)
    return found


def _grade(answers: Sequence[GradedRanking], grade: str) -> tuple[GradeScores, Float64[np.ndarray, "queries"]]:
    """The scores of all queries, and the average precision of each."""
    ranks, wanted = [one.ranks[grade] for one in answers], [one.wanted[grade] for one in answers]
    totals = score(ranks, wanted, PRECISION_DEPTHS)
    asked = [(places, count) for places, count in zip(ranks, wanted, strict=True) if count]
    curves = [precision_recall_curve(places, count, RECALL_LEVELS) for places, count in asked]
    recalls = {
        str(depth): _percent(math.fsum(recall_at(*one, depth) for one in asked) / len(asked)) if asked else None
        for depth in RECALL_DEPTHS
    }
    scores: GradeScores = {
        "map": _percent(totals.map),
        "mp": {str(depth): _percent(value) for depth, value in zip(PRECISION_DEPTHS, totals.mp, strict=True)},
        "recall": recalls,
        "queries": totals.queries,
        "curve": {
            "recall": _percents(RECALL_LEVELS),
            "precision": _percents(np.mean(curves, axis=0)) if curves else [],
        },
    }
    return scores, totals.aps


def _query(photos: Chain, query: Query, one: GradedRanking) -> QueryFound:
    right, junk, hard = set(query.positives), set(query.junk), set(query.hard)

    def judgement(number: int) -> str:
        if number in junk:
            return "junk"
        return ("hard" if number in hard else "right") if number in right else "wrong"

    def image(number: int) -> ImageFacts:
        return {"name": photos[number].name, "path": str(photos[number].where)}

    hits = zip(one.numbers[:HITS_SHOWN].tolist(), one.scores[:HITS_SHOWN].tolist(), strict=True)
    return {
        "name": query.photo.name,
        "path": str(query.photo.where),
        "box": None if query.photo.box is None else list(query.photo.box),
        "positives": len(right),
        "hits": [{**image(number), "score": score, "judgement": judgement(number)} for number, score in hits],
        "lowest": [{**image(number), "rank": rank + 1} for rank, number in one.lowest],
    }


def _percents(values: Float64[np.ndarray, "_"]) -> list[float]:
    return [round(100 * float(value), 4) for value in values]


def _percent(value: float) -> float | None:
    return None if math.isnan(value) else round(100 * float(value), 4)
