"""Two runs side by side: what differs between their cards, which queries were won and lost, and whether it matters."""

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import numpy as np

from superfeat.errors import SuperfeatError
from superfeat.evaluation.card import Card
from superfeat.evaluation.judge import QueryScores, Scores
from superfeat.evaluation.metrics import paired_bootstrap

IGNORED = ("seconds", "software", "format", "version")  # that differ without changing what was measured
WON = 0.01  # percent points of AP: less is neither won nor lost


class Change(TypedDict):
    """A setting that differs."""

    setting: str
    first: Any
    second: Any


class QueryChange(TypedDict):
    """The average precision of a query in both runs."""

    query: str
    first: float
    second: float


class _Compared(TypedDict):
    queries: int  # that have right answers in both


class GradeComparison(_Compared, total=False):
    """mAP of both by one grade, the queries won and lost, and the test; without queries there is none of it."""

    first: float
    second: float
    won: list[QueryChange]
    lost: list[QueryChange]
    bootstrap: dict[str, float]


class Comparison(TypedDict):
    """What differs between two runs."""

    settings: list[Change]
    grades: dict[str, GradeComparison]


def compare(first: Scores, second: Scores, cards: tuple[Card, Card]) -> Comparison:
    """From the scores of two runs on the same queries; SuperfeatError if they are of different ones."""
    names = [[_identity(query) for query in scores["queries"]] for scores in (first, second)]
    if names[0] != names[1]:
        raise SuperfeatError(
            f"the runs are of different queries ({first['dataset']}: {len(names[0])}, {second['dataset']}: "
            f"{len(names[1])}); compare runs of the same set"
        )
    grades = [grade for grade in first["grades"] if grade in second["grades"]]
    return {
        "settings": [
            {"setting": name, "first": before, "second": after} for name, before, after in _changes(*cards, "")
        ],
        "grades": {grade: _grade(first, second, grade) for grade in grades},
    }


def _identity(query: QueryScores) -> tuple[Any, ...]:
    return query["name"], query["positives"], tuple(query["box"] or ())


def _grade(first: Scores, second: Scores, grade: str) -> GradeComparison:
    before, after = (
        np.asarray([np.nan if query["ap"][grade] is None else query["ap"][grade] for query in scores["queries"]])
        for scores in (first, second)
    )
    known = ~(np.isnan(before) | np.isnan(after))
    if not known.any():
        return {"queries": 0}
    gains = after - before
    order = [int(number) for number in np.argsort(-np.where(known, gains, 0), kind="stable") if known[number]]
    names = [query["name"] for query in first["queries"]]

    def told(number: int) -> QueryChange:
        return {"query": names[number], "first": float(before[number]), "second": float(after[number])}

    return {
        "queries": int(known.sum()),
        "first": float(before[known].mean()),
        "second": float(after[known].mean()),
        "won": [told(number) for number in order if gains[number] > WON],
        "lost": [told(number) for number in reversed(order) if gains[number] < -WON],
        "bootstrap": paired_bootstrap(before, after),
    }


def _changes(first: Any, second: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Settings that differ, by their path; one that only one card has differs from nothing."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys((*first, *second)):
            if where or key not in IGNORED:
                yield from _changes(first.get(key), second.get(key), f"{where}.{key}" if where else key)
    elif first != second:
        yield where, first, second


def comparison_in_words(result: Comparison, shown: int = 5) -> Iterator[str]:
    """The comparison as lines."""
    if not result["settings"]:
        yield "the cards are the same"
    for change in result["settings"]:
        yield f"{change['setting']}: {_short(change['first'])} -> {_short(change['second'])}"
    for grade, found in result["grades"].items():
        if not found["queries"]:
            yield f"{grade}: no query has right answers in both"
            continue
        test = found["bootstrap"]
        verdict = f"{'significant' if test['p'] < 0.05 else 'not significant'} over {found['queries']} queries"
        yield (
            f"{grade}: mAP {found['first']:.2f} -> {found['second']:.2f} ({test['difference']:+.2f}, 95 % from "
            f"{test['low']:+.2f} to {test['high']:+.2f}, p = {test['p']:.4f}: {verdict})"
        )
        for what, queries in (("won", found["won"]), ("lost", found["lost"])):
            named = [f"{one['query']} {one['first']:.1f} -> {one['second']:.1f}" for one in queries[:shown]]
            more = ", …" if len(queries) > shown else ""
            yield f"  {what} {len(queries)}{': ' if named else ''}{', '.join(named)}{more}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
