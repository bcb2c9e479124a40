"""What each photo found, kept in a file while pairs are being looked for: a run that was stopped goes on from there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from superfeat.errors import StoreError
from superfeat.storage.store import explained

VERSION = 2  # the first had no verified share
RECORD = np.dtype([("other", "<i8"), ("score", "<f8"), ("probability", "<f8"), ("matches", "<i8"), ("verified", "<f8")])
HEAD = np.dtype([("number", "<i8"), ("count", "<i8")])
FLUSH_EVERY = 256


class PairJournal:
    """A line that says of which run it is, then a block for each photo in order. A torn block is cut off."""

    def __init__(self, path: Path, run: dict[str, object]) -> None:
        self.path = path
        self._line = (json.dumps({"superfeat-pairs": VERSION, **run}, sort_keys=True) + "\n").encode()
        self._file: IO[bytes] | None = None

    def open(self) -> int:
        """How many photos are done already."""
        with explained(self.path):
            self._file = self.path.open("r+b" if self.path.exists() else "w+b")
            head = self._file.readline()
            if head and head != self._line:
                self.close()
                raise StoreError(
                    f"{self.path} is of a run with another index or other settings; remove it to start again"
                )
            if not head:
                self._file.write(self._line)
            done, end = 0, len(self._line)
            for block in self._blocks(end):
                done, end = done + 1, end + HEAD.itemsize + block.nbytes
            self._file.truncate(end)
            self._file.seek(end)
        return done

    def _blocks(self, start: int) -> Iterator[np.ndarray]:
        assert self._file is not None
        self._file.seek(start)
        number = 0
        while len(raw := self._file.read(HEAD.itemsize)) == HEAD.itemsize:
            head = np.frombuffer(raw, HEAD)[0]
            wanted = int(head["count"]) * RECORD.itemsize
            if head["number"] != number or not 0 <= wanted <= 1 << 30:
                return
            body = self._file.read(wanted)
            if len(body) < wanted:
                return
            number += 1
            yield np.frombuffer(body, RECORD)

    def write(self, number: int, found: np.ndarray) -> None:
        """What the photo of this number found."""
        assert self._file is not None
        with explained(self.path):
            self._file.write(np.asarray([(number, len(found))], HEAD).tobytes() + found.tobytes())
            if number % FLUSH_EVERY == 0:
                self._file.flush()

    def blocks(self) -> Iterator[np.ndarray]:
        """What was found, photo by photo."""
        assert self._file is not None
        self._file.flush()
        with explained(self.path, "read"):
            yield from self._blocks(len(self._line))

    def close(self) -> None:
        """Keeps the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """The run is done."""
        self.close()
        self.path.unlink(missing_ok=True)
