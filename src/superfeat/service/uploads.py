"""Photos that are added through the service: files of our own in INDEX/uploads, each indexed under its name.

A file is called DIGEST-NAME. It is written before the index knows it and removed after the index has forgotten it, so
a crash leaves at most a file that nobody refers to; `sweep` removes those. Files elsewhere are never touched.
"""

import hashlib
import re
import unicodedata
from pathlib import Path

from superfeat.engine import Engine
from superfeat.index.entries import Added
from superfeat.service.photos import Known, readable
from superfeat.service.problems import Problem
from superfeat.service.watch import Watch
from superfeat.storage.store import explained, write_file

FOLDER = "uploads"
LONGEST_NAME, MOST_BYTES = 100, 180  # letters and bytes of a name: file systems take 255 bytes with the digest
PLAIN_MARKS = frozenset("._-+()@ ")  # besides letters and digits
OURS = re.compile(r"[0-9a-f]{16}-(.+)", re.DOTALL)


class Uploads:
    """Adds and deletes photos."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self.engine, self.watch = engine, watch
        self.folder = engine.index.path.resolve() / FOLDER

    def add(self, data: bytes, name: str, *, replace: bool) -> Added:
        """Stores a photo and indexes it, safe on disk when this returns."""
        index = self.engine.index
        before = index.meta([name]).get(name)
        path = self.folder / f"{hashlib.blake2b(data, digest_size=8).hexdigest()}-{name}"
        if before is not None and not replace:
            raise Problem(409, "name_taken", f"there is a photo called {name}; choose another name, or replace it")
        if before is not None and before.get("path") == str(path) and path.is_file():
            return Added(name, index.id(name), "same")
        readable(data)
        with index.writing():
            with explained(self.folder):
                self.folder.mkdir(exist_ok=True)
            write_file(path, data)
            try:
                added = self.engine.add(name, path)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            self._remove((before or {}).get("path"), kept=path)
            self.watch.seen()
        return added

    def delete(self, known: Known) -> None:
        """Takes a photo out of the index and, if it was uploaded, away."""
        with self.engine.index.writing():
            self.engine.index.delete(known.name)
            self._remove(known.meta.get("path"))
            self.watch.seen()

    def _remove(self, path: object, kept: Path | None = None) -> None:
        """A file, if it is one of ours."""
        if isinstance(path, str) and Path(path).parent == self.folder and Path(path) != kept:
            with explained(Path(path), "remove"):
                Path(path).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Removes files that a crash left without an image; returns how many."""
        if not self.folder.is_dir():
            return 0
        with self.engine.index.writing():
            ours = {file: match[1] for file in self.folder.iterdir() if (match := OURS.fullmatch(file.name))}
            known = self.engine.index.meta(sorted(set(ours.values())))
            lost = [file for file, name in ours.items() if known.get(name, {}).get("path") != str(file)]
            for file in lost:
                self._remove(str(file))
        return len(lost)


def plain_name(wanted: str) -> str:
    """A name for a file and an image: letters, digits and a few signs; no folders."""
    last = re.split(r"[/\\]", wanted)[-1]
    letters = (
        letter if letter.isalnum() or letter in PLAIN_MARKS else "_" for letter in unicodedata.normalize("NFC", last)
    )
    name = "".join(letters).strip(" .")
    while len(name) > LONGEST_NAME or len(name.encode()) > MOST_BYTES:
        stem, dot, ending = name.rpartition(".")
        name = stem[:-1] + dot + ending if dot and len(stem) > 1 and len(ending) < 10 else name[:-1]
    return name or "photo"
