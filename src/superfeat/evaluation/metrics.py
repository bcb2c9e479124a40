"""How good rankings are: average precision by the trapezoid rule of the Oxford benchmark, and what stands beside it."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float64, Int, Int64

PRECISION_DEPTHS = (1, 5, 10)  # of mP@k
GRADES = {  # which answers count, and which are passed over
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}


def positive_ranks(
    ranking: Int[np.ndarray, "ranked"], positives: Collection[int], junk: Collection[int] = ()
) -> tuple[Int64[np.ndarray, "found"], int]:
    """Places of the positives, from 0, once junk is taken out; and how many positives there are. Junk is never one.

    A ranking that names a positive twice is judged by the better place.
    """
    ignored = np.fromiter(junk, np.int64, len(junk))
    wanted = np.setdiff1d(np.fromiter(positives, np.int64, len(positives)), ignored)
    judged = ranking[~np.isin(ranking, ignored)]
    places = np.flatnonzero(np.isin(judged, wanted))
    _, first = np.unique(judged[places], return_index=True)
    return places[np.sort(first)], len(wanted)


def average_precision(
    ranking: Int[np.ndarray, "ranked"], positives: Collection[int], junk: Collection[int] = ()
) -> float:
    """Area under the curve of precision over recall, 0 to 1; NaN for a query without positives.

    Junk is taken out of the ranking first, and is never a positive. Positives that the ranking lacks are not found.
    """
    ranks, wanted = positive_ranks(ranking, positives, junk)
    return precision_of_ranks(ranks, wanted)


def precision_of_ranks(ranks: Int64[np.ndarray, "found"], wanted: int) -> float:
    """Average precision of `wanted` positives of which some were found at these places, from 0."""
    if wanted == 0:
        return math.nan
    found = np.arange(len(ranks))  # how many positives stand before each
    before = np.where(ranks > 0, found / np.maximum(ranks, 1), 1.0)
    after = (found + 1) / (ranks + 1)
    return float((before + after).sum() / 2 / wanted)


def mean_average_precision(values: Iterable[float]) -> float:
    """Mean over the queries; those without positives (NaN) are left out. NaN if none is left."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def precisions_at(
    ranks: Int64[np.ndarray, "found"], wanted: int, depths: Sequence[int] = PRECISION_DEPTHS
) -> list[float]:
    """Precision among the first k, where k is no more than the place of the last positive that was found.

    That is how the revisited benchmarks define it. 0 if none was found; NaN for a query without positives.
    """
    if wanted == 0:
        return [math.nan] * len(depths)
    last = int(ranks[-1]) + 1 if len(ranks) else 1
    return [int((ranks < min(depth, last)).sum()) / min(depth, last) for depth in depths]


def recall_at(ranks: Int64[np.ndarray, "found"], wanted: int, depth: int) -> float:
    """Share of the positives among the first `depth`; NaN for a query without positives."""
    return int((ranks < depth).sum()) / wanted if wanted else math.nan


def precision_recall_curve(
    ranks: Int64[np.ndarray, "found"], wanted: int, levels: Float64[np.ndarray, "levels"]
) -> Float64[np.ndarray, "levels"]:
    """Precision at each level of recall: the best there is at that recall or beyond it; 0 where it is not reached."""
    recalls = np.arange(1, len(ranks) + 1) / wanted if wanted else np.empty(0)
    precisions = np.arange(1, len(ranks) + 1) / (ranks + 1)
    best = np.append(np.maximum.accumulate(precisions[::-1])[::-1], 0.0)
    return best[np.searchsorted(recalls, levels - 1e-12)]


@dataclasses.dataclass(frozen=True, eq=False)
class Totals:
    """mAP and mP at `depths` from 0 to 1, the values of each query, and how many of them have a right answer."""

    map: float
    mp: Float64[np.ndarray, "depths"]
    aps: Float64[np.ndarray, "queries"]
    prs: Float64[np.ndarray, "queries depths"]
    depths: tuple[int, ...]
    queries: int


def score(
    ranks: Sequence[Int64[np.ndarray, "_"]], wanted: Sequence[int], depths: Sequence[int] = PRECISION_DEPTHS
) -> Totals:
    """mAP and mP@k over queries, with the values of each; NaN where a query has no positive, and if none has."""
    each = [precision_of_ranks(places, count) for places, count in zip(ranks, wanted, strict=True)]
    at = np.asarray([precisions_at(*query, depths) for query in zip(ranks, wanted, strict=True)], np.float64)
    at = at.reshape(len(each), len(depths))
    asked = np.asarray(wanted, np.int64) > 0
    means = at[asked].mean(axis=0) if asked.any() else np.full(len(depths), np.nan)
    return Totals(
        map=mean_average_precision(each),
        mp=means,
        aps=np.asarray(each, np.float64),
        prs=at,
        depths=tuple(depths),
        queries=int(asked.sum()),
    )


def revisited(
    rankings: Int[np.ndarray, "queries ranked"] | Sequence[Int[np.ndarray, "_"]],
    truth: Sequence[Mapping[str, Collection[int]]],
    depths: Sequence[int] = PRECISION_DEPTHS,
) -> dict[str, Totals]:
    """Easy, Medium and Hard of the revisited benchmarks: `map`, `mp` (at `depths`), `aps`, `prs` of each, from 0 to 1.

    `rankings` has the database numbers of each query, best first; they may be cut off anywhere, and numbers that no
    list holds (distractors) are wrong answers. `truth` has for each query the lists `easy`, `hard` and `junk`.
    """
    if len(rankings) != len(truth):
        raise ValueError(f"{len(rankings)} rankings for {len(truth)} queries")
    found: dict[str, Totals] = {}
    for grade, (right, ignored) in GRADES.items():
        judged = [
            positive_ranks(np.asarray(ranking), _all_of(query, right), _all_of(query, ignored))
            for ranking, query in zip(rankings, truth, strict=True)
        ]
        found[grade] = score([ranks for ranks, _ in judged], [wanted for _, wanted in judged], depths)
    return found


def _all_of(query: Mapping[str, Collection[int]], lists: Iterable[str]) -> list[int]:
    return [int(image) for name in lists for image in query.get(name, ())]


def ns_score(rankings: Sequence[Int[np.ndarray, "_"]], positives: Sequence[Collection[int]]) -> float:
    """UKBench: how many of the first four are right, on average; the query itself is one of them."""
    right = [int(np.isin(ranking[:4], list(wanted)).sum()) for ranking, wanted in zip(rankings, positives, strict=True)]
    return math.fsum(right) / len(right) if right else math.nan


def paired_bootstrap(
    first: Float64[np.ndarray, "queries"], second: Float64[np.ndarray, "queries"], *, rounds: int = 10000, seed: int = 0
) -> dict[str, float]:
    """Whether two systems differ on the same queries: how the difference of means varies when queries are drawn anew.

    `p` is two-sided: twice the share of draws on the other side of zero. Queries that either has no value for are left
    out.
    """
    known = ~(np.isnan(first) | np.isnan(second))
    gains = (second - first)[known]
    if len(gains) == 0:
        raise ValueError("no query has a value in both")
    generator = np.random.default_rng(seed)
    means = np.concatenate(
        [gains[generator.integers(0, len(gains), (part, len(gains)))].mean(axis=1) for part in _parts(rounds)]
    )
    low, high = np.quantile(means, (0.025, 0.975))
    other = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p = min(1.0, 2 * (other + 1) / (rounds + 1))
    return {"difference": float(gains.mean()), "low": float(low), "high": float(high), "p": float(p)}


def _parts(rounds: int, size: int = 1000) -> list[int]:
    """In parts, so that memory stays small however many queries there are."""
    return [size] * (rounds // size) + ([rounds % size] if rounds % size else [])
