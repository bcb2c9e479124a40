"""Which photos of an index are worth matching: each with those most like it, or queries with photos of the index."""

import dataclasses
import datetime
import hashlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from superfeat.engine import Engine
from superfeat.errors import SuperfeatError
from superfeat.explain.explain import score_words
from superfeat.features import ImageWords
from superfeat.images import Skipped, read_header
from superfeat.mapping.pair_files import PairFormat, write_pairs_file
from superfeat.mapping.pair_journal import RECORD, PairJournal
from superfeat.mapping.rows import Forest, Pair, PairTable, connecting, join_tables, unique_pairs
from superfeat.mapping.sequence import by_names, by_times
from superfeat.probability.apply import judge_ranking
from superfeat.rerank.geometry import place_stored, verify_photos
from superfeat.threads import all_cores, in_order
from superfeat.work import Work

AT_ONCE = 256  # photos whose words are looked for together
JOURNAL_ENDING = ".unfinished"  # beside the file of pairs, until that is written
Sequenced = Literal["names", "times"]


@dataclasses.dataclass(frozen=True)
class PairChoice:
    """Which pairs are wanted."""

    top: int = 50  # photos that each photo is paired with
    min_probability: float = 0.0
    min_matches: int = 0  # words that both have and whose codes agree
    connected: bool = False  # with the best of the other pairs, where photos would not hang together
    sequence: Sequenced | None = None
    reach: int = 2  # how many photos after it, of a sequence

    def __post_init__(self) -> None:
        if self.top < 1 or self.reach < 1 or self.min_matches < 0 or not 0 <= self.min_probability <= 1:
            raise SuperfeatError(
                f"top {self.top} and reach {self.reach} must be 1 or more, matches {self.min_matches} 0 or more, and "
                f"the probability {self.min_probability} between 0 and 1"
            )


class PairProgress(NamedTuple):
    """How many photos have been looked for."""

    done: int
    photos: int


class PairsWritten(NamedTuple):
    """What became of it."""

    pairs: int
    photos: int
    parts: int | None  # sets of photos that hang together; None of queries
    alone: list[str]  # photos without any pair
    untimed: int  # photos that do not say when they were taken, if that was asked for
    skipped: list[Skipped]


def pairs_of_index(
    engine: Engine,
    output: Path,
    kind: PairFormat = "hloc",
    rules: PairChoice | None = None,
    *,
    workers: int | None = None,
) -> Work[PairProgress, PairsWritten]:
    """Pairs of all photos of an index among themselves, each pair once. Stopped, the same call goes on."""
    return Work(_pairs_of_index(engine, output, kind, rules or PairChoice(), workers or all_cores()))


class PairFinder:
    """What each photo finds, by its stored words."""

    def __init__(self, engine: Engine, rules: PairChoice, judged: bool) -> None:
        self.index, self.rules = engine.index, rules
        self.snapshot, self.config = self.index.snapshot(), self.index.config.search
        self.ids = self.snapshot.ids()
        self.calibration = engine.calibration if judged else None
        if rules.min_probability > 0 and self.calibration is None:
            raise SuperfeatError(
                f"{self.index.path} has no calibration, so pairs have no probability; fit one with superfeat "
                "calibrate, or ask for no least probability",
                arguments=["min_probability"],
            )

    def words(self, numbers: Iterable[int]) -> list[ImageWords]:
        """Of the photos with these numbers; to look for many at once takes a fraction of the time."""
        found = self.snapshot.words_of_many([int(self.ids[number]) for number in numbers])
        assert all(words is not None for words in found)
        return [words for words in found if words is not None]

    def __call__(self, numbers: range) -> list[np.ndarray]:
        """What each of these photos finds."""
        return [self.find(number, words) for number, words in zip(numbers, self.words(numbers), strict=True)]

    def find(self, number: int, words: ImageWords) -> np.ndarray:
        """What a photo with these words finds."""
        top = self.rules.top + 1  # it finds itself as well
        if self.calibration is None:
            best = self.snapshot.best(words, self.config, top=top)
            ids, scores, chances = best.ids, best.scores, np.full(len(best.ids), np.nan)
        else:
            ranking, found = judge_ranking(self.index, words, self.calibration, top=top, config=self.config, workers=1)
            assert found is not None
            ids, scores, chances = ranking.ids, ranking.scores, found
        kept = np.flatnonzero((ids != self.ids[number]) & (scores > 0))[: self.rules.top]
        records = np.empty(len(kept), RECORD)
        records["other"] = np.searchsorted(self.ids, ids[kept])
        records["score"], records["probability"], records["matches"] = scores[kept], chances[kept], -1
        records["verified"] = np.nan  # asked for when pairs are written, once for each
        return records

    def verified(self, number: int, others: Sequence[int], names: Sequence[str]) -> list[float | None]:
        """The share of the score of a photo with each of the others whose words lie alike in both; None where an index
        does not say where words lie.
        """
        numbers = [number, *others]
        metas = self.index.meta([names[one] for one in numbers])
        query, *photos = (
            place_stored(words, metas.get(names[one], {}))
            for one, words in zip(numbers, self.words(numbers), strict=True)
        )
        known = [place for place, photo in enumerate(photos) if photo is not None]
        shares: list[float | None] = [None] * len(others)
        if query is not None:
            some = [photo for photo in photos if photo is not None]
            for place, one in zip(known, verify_photos(self.snapshot, query, some, self.config), strict=True):
                shares[place] = one.verified
        return shares

    def agreements(self, pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[float, int]]:
        """The score of each two photos, and how many words of both agree."""
        for start in range(0, len(pairs), AT_ONCE):
            some = pairs[start : start + AT_ONCE]
            numbers = sorted({number for pair in some for number in pair})
            words = dict(zip(numbers, self.words(numbers), strict=True))
            for first, second in some:
                shared = score_words(self.snapshot, words[first], words[second], self.config)
                yield float(shared.scores.sum()), int((shared.scores > 0).sum())

    def run(self, *more: str) -> dict[str, object]:
        """What a journal must agree with."""
        digest = hashlib.sha256(self.ids.tobytes() + "\n".join([self.snapshot.layout.codebook, *more]).encode())
        return {"images": digest.hexdigest(), "top": self.rules.top, "judged": self.calibration is not None}


def _pairs_of_index(
    engine: Engine, output: Path, kind: PairFormat, rules: PairChoice, workers: int
) -> Generator[PairProgress, None, PairsWritten]:
    finder = PairFinder(engine, rules, judged=kind == "csv" or rules.min_probability > 0)
    count = len(finder.ids)
    if count < 2:
        raise SuperfeatError(f"{engine.index.path} has {count} photos; pairs need two: add photos with superfeat index")
    output.parent.mkdir(parents=True, exist_ok=True)
    journal = PairJournal(output.with_name(output.name + JOURNAL_ENDING), finder.run())
    try:
        done = journal.open()
        yield PairProgress(done, count)
        blocks = (range(first, min(first + AT_ONCE, count)) for first in range(done, count, AT_ONCE))
        for number, found in enumerate(itertools.chain.from_iterable(in_order(finder, blocks, workers)), done):
            journal.write(number, found)
            yield PairProgress(number + 1, count)
        table = unique_pairs(_table(journal.blocks(), count * rules.top))
    finally:
        journal.close()
    names = finder.snapshot.names(finder.ids)
    followed, untimed = _sequence(engine, names, rules)
    chosen, forest, matches = _choose(finder, table, followed)
    written = write_pairs_file(output, _rows(finder, chosen, names, matches, verified=kind == "csv"), kind)
    journal.remove()
    paired = np.union1d(chosen.first, chosen.second)
    alone = [names[number] for number in np.setdiff1d(np.arange(count), paired).tolist()]
    return PairsWritten(written, count, forest.parts, alone, untimed, [])


def _table(blocks: Iterable[np.ndarray], most: int) -> PairTable:
    """What all photos found, at most so many rows; filled as the blocks come, so that nothing is there twice."""
    table = PairTable(np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most))
    end = 0
    for number, block in enumerate(blocks):
        part = slice(end, end + len(block))
        table.first[part], table.second[part] = number, block["other"]
        table.score[part], table.probability[part] = block["score"], block["probability"]
        end += len(block)
    return table[:end]


def _sequence(engine: Engine, names: Sequence[str], rules: PairChoice) -> tuple[set[tuple[int, int]], int]:
    """Pairs of photos that follow each other, and how many photos do not say when they were taken."""
    if rules.sequence is None:
        return set(), 0
    if rules.sequence == "names":
        found, untimed = by_names(names, rules.reach), 0
    else:
        times = [_taken(engine, name) for name in names]
        found, untimed = by_times(times, rules.reach), times.count(None)
    return {(min(pair), max(pair)) for pair in found}, untimed


def _taken(engine: Engine, name: str) -> datetime.datetime | None:
    try:
        return read_header(engine.path_of(name)).taken
    except SuperfeatError:
        return None


def _choose(
    finder: PairFinder, table: PairTable, followed: set[tuple[int, int]]
) -> tuple[PairTable, Forest, Int64[np.ndarray, "n"] | None]:
    """The pairs that keep the rules, and those that are wanted in any case."""
    rules, count = finder.rules, len(finder.ids)
    known = set(zip(table.first.tolist(), table.second.tolist(), strict=True)) if followed else set()
    missing = sorted(followed - known)
    more = [(*pair, score, np.nan) for pair, (score, _) in zip(missing, finder.agreements(missing), strict=True)]
    if more:
        columns = np.asarray(more, np.float64).T
        added = PairTable(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2], columns[3])
        table = unique_pairs(join_tables([table, added]))
    kept = np.ones(len(table), np.bool_)
    if rules.min_probability > 0:
        kept &= table.probability >= rules.min_probability
    matches = None
    if rules.min_matches > 0:
        asked = list(zip(table.first.tolist(), table.second.tolist(), strict=True))
        matches = np.fromiter((count for _, count in finder.agreements(asked)), np.int64, len(asked))
        kept &= matches >= rules.min_matches
    if followed:
        pairs = zip(table.first.tolist(), table.second.tolist(), strict=True)
        kept |= np.asarray([pair in followed for pair in pairs], np.bool_)
    forest = Forest(count)
    if rules.connected:
        chosen = connecting(kept, table, forest)
        links = join_parts(finder, forest)
        return _with_links(table, chosen, matches, links, finder)
    for number in np.flatnonzero(kept).tolist():
        forest.join(int(table.first[number]), int(table.second[number]))
    return table[kept], forest, None if matches is None else matches[kept]


def _with_links(
    table: PairTable,
    chosen: Bool[np.ndarray, "n"],
    matches: Int64[np.ndarray, "n"] | None,
    links: list[tuple[int, int, float]],
    finder: PairFinder,
) -> tuple[PairTable, Forest, Int64[np.ndarray, "n"] | None]:
    """The chosen pairs, and links that no photo's list had."""
    columns = np.asarray(links, np.float64).reshape(-1, 3).T
    added = PairTable(
        columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2].copy(), np.full(len(links), np.nan)
    )
    whole = join_tables([table[chosen], added])
    order = np.lexsort((whole.second, whole.first))
    forest = Forest(len(finder.ids))
    for first, second in zip(whole.first.tolist(), whole.second.tolist(), strict=True):
        forest.join(first, second)
    if matches is not None:
        more = [count for _, count in finder.agreements([link[:2] for link in links])]
        matches = np.concatenate([matches[chosen], np.asarray(more, np.int64)])[order]
    return whole[order], forest, matches


def join_parts(finder: PairFinder, forest: Forest) -> list[tuple[int, int, float]]:
    """For parts that nothing joins yet, the best pair with a photo outside, found among all photos.

    Each round every part but the largest takes its best link; a part that is like nothing else stays alone.
    """
    links: list[tuple[int, int, float]] = []
    while forest.parts > 1:
        roots = forest.roots()
        parts, sizes = np.unique(roots, return_counts=True)
        found = [_best_outside(finder, roots, int(part)) for part in np.delete(parts, sizes.argmax())]
        wanted = sorted((link for link in found if link is not None), key=lambda link: (-link[2], link[:2]))
        made = [link for link in wanted if forest.join(link[0], link[1])]
        if not made:
            return links
        links += made
    return links


def _best_outside(finder: PairFinder, roots: Int64[np.ndarray, "n"], part: int) -> tuple[int, int, float] | None:
    best: tuple[int, int, float] | None = None
    for number in np.flatnonzero(roots == part).tolist():
        (words,) = finder.words([number])
        ranking = finder.snapshot.best(words, finder.config, top=None)
        others = np.searchsorted(finder.ids, ranking.ids)
        outside = np.flatnonzero((roots[others] != part) & (ranking.scores > 0))
        if len(outside):
            other, score = int(others[outside[0]]), float(ranking.scores[outside[0]])
            link = min(number, other), max(number, other), score
            best = link if best is None or (-score, *link[:2]) < (-best[2], *best[:2]) else best
    return best


def _rows(
    finder: PairFinder,
    table: PairTable,
    names: Sequence[str],
    matches: Int64[np.ndarray, "n"] | None,
    verified: bool,
) -> Iterator[Pair]:
    order = np.lexsort((table.second, -table.score, table.first)).tolist()
    for first, rows in itertools.groupby(order, key=lambda row: int(table.first[row])):
        mine = list(rows)
        others = [int(table.second[row]) for row in mine]
        shares = finder.verified(first, others, names) if verified else [None] * len(mine)
        for row, second, share in zip(mine, others, shares, strict=True):
            chance = float(table.probability[row])
            yield Pair(
                names[first],
                names[second],
                float(table.score[row]),
                None if np.isnan(chance) else chance,
                None if matches is None else int(matches[row]),
                share,
            )
