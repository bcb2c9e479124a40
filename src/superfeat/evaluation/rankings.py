"""The whole rankings of a run on disk: every image of the set by its number, for every query."""

import shutil
from pathlib import Path
from types import TracebackType

import numpy as np

from superfeat.evaluation.judge import GradedRanking
from superfeat.storage.store import explained, sync_folder

NONE = -1  # in place of images that share no word with the query


class RankingsWriter:
    """Rows of rankings, written as they come and put in place when all are there: memory holds one at a time."""

    def __init__(self, folder: Path, queries: int, images: int) -> None:
        self.folder, self.shape = folder, (queries, images)
        self.partial = folder.with_name(f".{folder.name}.partial")
        self.rows = 0

    def __enter__(self) -> "RankingsWriter":
        with explained(self.folder):
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.mkdir(parents=True)
            self.numbers = np.lib.format.open_memmap(self.partial / "numbers.npy", "w+", "<i4", self.shape)
            self.scores = np.lib.format.open_memmap(self.partial / "scores.npy", "w+", "<f8", self.shape)
        return self

    def add(self, ranking: GradedRanking) -> None:
        """The ranking of the next query that could be asked."""
        ranked = len(ranking.numbers)
        self.numbers[self.rows] = NONE
        self.numbers[self.rows, :ranked] = ranking.numbers
        self.scores[self.rows, :ranked] = ranking.scores
        self.rows += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with explained(self.folder):
            self.numbers.flush()
            self.scores.flush()
            if kind is None:
                self._drop_unasked()
                shutil.rmtree(self.folder, ignore_errors=True)
                self.partial.rename(self.folder)
                sync_folder(self.folder.parent)
            else:
                shutil.rmtree(self.partial, ignore_errors=True)

    def _drop_unasked(self) -> None:
        """Takes away the rows that queries whose photo could not be read left empty."""
        if self.rows == self.shape[0]:
            return
        kept = {"numbers.npy": self.numbers[: self.rows].copy(), "scores.npy": self.scores[: self.rows].copy()}
        for name, array in kept.items():
            (self.partial / name).unlink()  # the mapped file lives on until it is closed
            np.save(self.partial / name, array)
