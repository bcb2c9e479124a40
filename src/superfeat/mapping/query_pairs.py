"""Photos that are not in an index, each with the photos of the index that are most like it."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from superfeat.engine import Engine
from superfeat.errors import ImageError, SuperfeatError
from superfeat.explain.explain import score_words
from superfeat.images import Photo, Skipped
from superfeat.mapping.pair_files import PairFormat, write_pairs_file
from superfeat.mapping.pair_journal import RECORD, PairJournal
from superfeat.mapping.pairs import JOURNAL_ENDING, PairChoice, PairFinder, PairProgress, PairsWritten
from superfeat.mapping.rows import Pair
from superfeat.work import Work


def pairs_of_queries(
    engine: Engine, queries: Sequence[Photo], output: Path, kind: PairFormat = "hloc", choice: PairChoice | None = None
) -> Work[PairProgress, PairsWritten]:
    """Writes the pairs of queries with photos of an index. Stopped, the same call goes on."""
    return Work(_pairs_of_queries(engine, queries, output, kind, choice or PairChoice()))


def _pairs_of_queries(
    engine: Engine, queries: Sequence[Photo], output: Path, kind: PairFormat, choice: PairChoice
) -> Generator[PairProgress, None, PairsWritten]:
    if choice.connected or choice.sequence:
        raise SuperfeatError("a forest and sequences are for the photos of an index, not for queries; leave them out")
    finder = PairFinder(engine, choice, judged=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    asked = [f"{photo.path} {photo.name}" for photo in queries]
    wanted = [str(choice.min_probability), str(choice.min_matches)]
    journal = PairJournal(output.with_name(output.name + JOURNAL_ENDING), finder.run(*asked, *wanted))
    skipped: list[Skipped] = []
    alone: list[str] = []
    try:
        done = journal.open()
        yield PairProgress(done, len(queries))
        for number in range(done, len(queries)):
            try:
                journal.write(number, retrieve(engine, queries[number], finder, choice))
            except ImageError as error:
                skipped.append(Skipped(queries[number].name, str(error)))
                journal.write(number, np.empty(0, RECORD))
            yield PairProgress(number + 1, len(queries))
        written = write_pairs_file(output, _rows(journal, queries, finder, alone), kind)
    finally:
        journal.close()
    journal.remove()
    unread = {one.name for one in skipped}
    return PairsWritten(written, len(queries), None, [name for name in alone if name not in unread], 0, skipped)


def _rows(journal: PairJournal, queries: Sequence[Photo], finder: PairFinder, alone: list[str]) -> Iterator[Pair]:
    for photo, block in zip(queries, journal.blocks(), strict=True):
        names = finder.snapshot.names(block["other"])
        if not names:
            alone.append(photo.name)
        for name, record in zip(names, block, strict=True):
            chance, share = (
                None if np.isnan(record[column]) else float(record[column]) for column in ("probability", "verified")
            )
            yield Pair(photo.name, name, float(record["score"]), chance, int(record["matches"]), share)


def retrieve(engine: Engine, photo: Photo, finder: PairFinder, choice: PairChoice) -> np.ndarray:
    """The photos most like one, best first, as records with their ids. ImageError if it cannot be read."""
    asked = engine.ask(photo.path)
    found = []
    for hit in engine.answer(asked, top=choice.top):
        words = finder.snapshot.words_of(hit.id)
        if hit.score <= 0 or words is None or (hit.probability or 0.0) < choice.min_probability:
            continue
        agreeing = int((score_words(finder.snapshot, asked.words, words, asked.config).scores > 0).sum())
        if agreeing >= choice.min_matches:
            chance, share = (np.nan if value is None else value for value in (hit.probability, hit.verified))
            found.append((hit.id, hit.score, chance, agreeing, share))
    return np.asarray(found, RECORD)
