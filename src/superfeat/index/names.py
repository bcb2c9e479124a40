"""Who the images of a segment are: a small SQLite file, written once and then only read."""

import errno
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import Meta
from superfeat.storage.store import as_json

SCHEMA = """
CREATE TABLE images (number INTEGER PRIMARY KEY, name NOT NULL, content INTEGER NOT NULL, meta TEXT);
CREATE UNIQUE INDEX by_name ON images (name);
"""
MOST_VARIABLES = 500  # of one SQL statement


class Image(NamedTuple):
    """What the index knows of an image besides its words."""

    name: str
    content: int  # a digest of its words and codes
    meta: Meta


def _to_sql(name: str) -> str | bytes:
    """Text, or bytes for a file name that is not Unicode."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return _as_bytes(name)
    return name


def _as_bytes(name: str) -> bytes:
    try:
        return name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return name.encode(errors="surrogatepass")  # no image has such a name


def _from_sql(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="surrogateescape")


def require_json(name: str, meta: Meta | None) -> Meta:
    """What is noted with an image as it will be read again: a copy of our own."""
    try:
        return dict(as_json(dict(meta or {})))
    except (TypeError, ValueError) as error:
        raise SuperfeatError(f"what is noted with {name} cannot be written as JSON: {error}") from error


def require_name(name: object) -> str:
    """A name that comes back from the disk as it went there: Unicode, or a file name as the system gives it."""
    try:
        if isinstance(name, str) and name.encode(errors="surrogateescape").decode(errors="surrogateescape") == name:
            return name
    except UnicodeError:
        pass
    raise SuperfeatError(f"an image cannot be called {name!r}: it is neither Unicode nor the name of a file")


def write_names(path: Path, images: Iterable[Image]) -> None:
    """Writes the file; the caller makes it durable and known."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.executescript(f"BEGIN; {SCHEMA}")
            rows = (
                (number, _to_sql(image.name), image.content, json.dumps(image.meta) if image.meta else None)
                for number, image in enumerate(images)
            )
            connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?)", rows)
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        full = "full" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from error


class Names:
    """Read access; it stays usable when the file is removed by a later compaction."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self._count = count
        self._lock = threading.Lock()
        try:
            uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise StoreError(f"cannot read {path}: {error}") from error
        found = self._query("SELECT count(*), min(number), max(number) FROM images")[0]
        if found != (count, 0, count - 1):
            raise StoreError(f"{path} is damaged: it names {found[0]} images, not {count}")

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a message that quotes damaged text
            raise StoreError(f"{self.path} is damaged: {error}; run superfeat verify") from error

    def find(self, names: Sequence[str]) -> dict[int, Image]:
        """The images of these names, by number within their segment."""
        rows = self._select("name", [_to_sql(name) for name in names])
        found = {number: self._image(*row) for number, *row in rows}
        if not all(0 <= number < self._count for number in found):
            raise StoreError(f"{self.path} is damaged: it names images that are not there; run superfeat verify")
        return found

    def _select(self, column: str, values: Sequence[Any]) -> Iterator[Any]:
        for first in range(0, len(values), MOST_VARIABLES):
            some = values[first : first + MOST_VARIABLES]
            marks = ",".join("?" * len(some))
            yield from self._query(f"SELECT number, name, content, meta FROM images WHERE {column} IN ({marks})", some)

    def names_of(self, numbers: Sequence[int]) -> dict[int, str]:
        """Names by number."""
        found = {number: self._image(*row).name for number, *row in self._select("number", numbers)}
        if len(found) < len(numbers):
            raise StoreError(f"{self.path} is damaged: it does not name all images; run superfeat verify")
        return found

    def __iter__(self) -> Iterator[Image]:
        """All images in the order of their numbers."""
        return (self._image(*row) for row in self._query("SELECT name, content, meta FROM images ORDER BY number"))

    def _image(self, name: str | bytes, content: int, meta: str | None) -> Image:
        try:
            return Image(_from_sql(name), int(content), json.loads(meta) if meta else {})
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreError(f"{self.path} is damaged: {error}; run superfeat verify") from error


class MemoryNames:
    """The same for images that are still in the journal."""

    def __init__(self, images: Sequence[Image]) -> None:
        self._images = images
        self._numbers = {image.name: number for number, image in enumerate(images)}  # the latest of a name

    def find(self, names: Sequence[str]) -> dict[int, Image]:
        numbers = [self._numbers[name] for name in names if name in self._numbers]
        return {number: self._images[number] for number in numbers}

    def names_of(self, numbers: Sequence[int]) -> dict[int, str]:
        return {int(number): self._images[number].name for number in numbers}

    def __iter__(self) -> Iterator[Image]:
        return iter(self._images)
