"""Who the images of a segment are: a small SQLite file, written once and then only read."""

import errno
import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import Meta
from superfeat.storage.store import as_json

SCHEMA = """
CREATE TABLE images (number INTEGER PRIMARY KEY, name NOT NULL, content INTEGER NOT NULL, meta TEXT);
CREATE INDEX by_name ON images (name);
CREATE TABLE keys (key INTEGER, number INTEGER, PRIMARY KEY (key, number)) WITHOUT ROWID;
"""
MOST_VARIABLES = 500  # of one SQL statement
KEYED = ("path", "digest")  # what images are looked for by, of what is noted with them


class Image(NamedTuple):
    """What the index knows of an image besides its words."""

    name: str
    content: int  # a digest of its words and codes
    meta: Meta


def key_of(field: str, value: str) -> int:
    """What is looked up for a value of a keyed field: a signed 64-bit number, so that any path is one."""
    digest = hashlib.blake2b(f"{field}\0".encode() + _as_bytes(value), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def keys_of(meta: Meta) -> list[int]:
    """The keys of an image."""
    return [key_of(field, meta[field]) for field in KEYED if isinstance(meta.get(field), str)]


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
            keys: list[tuple[int, int]] = []
            connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?)", _rows(images, keys))
            connection.executemany("INSERT INTO keys VALUES (?, ?)", sorted(set(keys)))
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        full = "full" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from error


def _rows(images: Iterable[Image], keys: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    """The rows of the table, one per image; `keys` gets theirs."""
    for number, image in enumerate(images):
        keys += [(key, number) for key in keys_of(image.meta)]
        yield number, _to_sql(image.name), image.content, json.dumps(image.meta) if image.meta else None


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
        self._scanned: dict[int, list[int]] | None = None  # keys, of a file that has no table of them
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

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        """The images that have one of these keys, by number within their segment."""
        numbers: set[int] = set()
        if self._has_keys():
            for first in range(0, len(keys), MOST_VARIABLES):
                some = keys[first : first + MOST_VARIABLES]
                rows = self._query(f"SELECT number FROM keys WHERE key IN ({','.join('?' * len(some))})", some)
                numbers.update(number for (number,) in rows)
        else:
            scanned = self._scan()
            numbers.update(number for key in keys for number in scanned.get(key, ()))
        return self.images_of(sorted(numbers))

    def _has_keys(self) -> bool:
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'keys'"))

    def _scan(self) -> dict[int, list[int]]:
        """Keys of a file that was written before there was a table of them: read once."""
        if self._scanned is None:
            self._scanned = _by_key(enumerate(self))
        return self._scanned

    def _select(self, column: str, values: Sequence[Any]) -> Iterator[Any]:
        for first in range(0, len(values), MOST_VARIABLES):
            some = values[first : first + MOST_VARIABLES]
            marks = ",".join("?" * len(some))
            yield from self._query(f"SELECT number, name, content, meta FROM images WHERE {column} IN ({marks})", some)

    def images_of(self, numbers: Sequence[int]) -> dict[int, Image]:
        """Images by number."""
        found = {number: self._image(*row) for number, *row in self._select("number", numbers)}
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


def _by_key(images: Iterable[tuple[int, Image]]) -> dict[int, list[int]]:
    """Numbers of images by key."""
    found: dict[int, list[int]] = {}
    for number, image in images:
        for key in keys_of(image.meta):
            found.setdefault(key, []).append(number)
    return found


class MemoryNames:
    """The same for images that are still in the journal."""

    def __init__(self, images: Sequence[Image]) -> None:
        self._images = images
        self._numbers = {image.name: number for number, image in enumerate(images)}  # the latest of a name
        self._keys: dict[int, list[int]] | None = None

    def find(self, names: Sequence[str]) -> dict[int, Image]:
        numbers = [self._numbers[name] for name in names if name in self._numbers]
        return {number: self._images[number] for number in numbers}

    def images_of(self, numbers: Sequence[int]) -> dict[int, Image]:
        return {int(number): self._images[number] for number in numbers}

    def __iter__(self) -> Iterator[Image]:
        return iter(self._images)

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        if self._keys is None:
            self._keys = _by_key(enumerate(self._images))
        numbers = {number for key in keys for number in self._keys.get(key, ())}
        return {number: self._images[number] for number in sorted(numbers)}


class NotedNames:
    """Names of which the journal has changed some: `changed` are images as they are now, by number."""

    def __init__(self, base: Names | MemoryNames, changed: Mapping[int, Image]) -> None:
        self.base, self.changed = base, dict(changed)

    @classmethod
    def of(cls, names: "Names | MemoryNames | NotedNames", changed: Mapping[int, Image]) -> "NotedNames":
        """With more changes."""
        return cls(names.base, {**names.changed, **changed}) if isinstance(names, cls) else cls(names, changed)  # type: ignore[arg-type]

    def find(self, names: Sequence[str]) -> dict[int, Image]:
        before = {number: image for number, image in self.base.find(names).items() if number not in self.changed}
        wanted = set(names)
        return before | {number: image for number, image in self.changed.items() if image.name in wanted}

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        before = {number: image for number, image in self.base.find_keys(keys).items() if number not in self.changed}
        wanted = set(keys)
        return before | {n: image for n, image in self.changed.items() if not wanted.isdisjoint(keys_of(image.meta))}

    def images_of(self, numbers: Sequence[int]) -> dict[int, Image]:
        found = self.base.images_of(numbers)
        return found | {number: self.changed[number] for number in found if number in self.changed}

    def __iter__(self) -> Iterator[Image]:
        return (self.changed.get(number, image) for number, image in enumerate(self.base))
