"""Matches of queries with photos of a map, kept on disk: a measurement that goes on does not match them again."""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np

from superfeat.mapping.localize import Match
from superfeat.storage.store import explained, write_file

NO_MODEL = -1  # of a photo without a place
Matched = dict[int, tuple[Match | None, float]]  # by photo of the map; the CPU-seconds that it took


class MatchCache:
    """A file for each query, in a folder of the measurement."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def _path(self, query: str) -> Path:
        return self.folder / f"{hashlib.sha256(query.encode()).hexdigest()[:24]}.npz"

    def read(self, query: str) -> Matched:
        """What is known of a query. A file that cannot be read counts as none."""
        path = self._path(query)
        if not path.is_file():
            return {}
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                numbers, models, seconds, pairs = (file[name] for name in ("numbers", "models", "seconds", "pairs"))
                parts = np.split(pairs, np.cumsum(file["counts"])[:-1])
                return {
                    number: (None if model == NO_MODEL else Match(number, model, part[:, 0], part[:, 1]), took)
                    for number, model, took, part in zip(
                        numbers.tolist(), models.tolist(), seconds.tolist(), parts, strict=True
                    )
                }
        except (ValueError, KeyError, EOFError, OSError, IndexError, zipfile.BadZipFile):
            return {}

    def write(self, query: str, matched: Matched) -> None:
        """Whole or not at all."""
        found = [match for match, _ in matched.values()]
        pairs = [np.stack([one.query, one.points], axis=1) for one in found if one is not None and len(one.query)]
        data = io.BytesIO()
        np.savez_compressed(
            data,
            numbers=np.asarray(list(matched), np.int64),
            models=np.asarray([NO_MODEL if one is None else one.model for one in found], np.int64),
            seconds=np.asarray([took for _, took in matched.values()], np.float64),
            counts=np.asarray([0 if one is None else len(one.query) for one in found], np.int64),
            pairs=np.concatenate([np.empty((0, 2), np.int64), *pairs]),
        )
        write_file(self._path(query), data.getvalue())
